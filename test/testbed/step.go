package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

// step is a step of up.
type step struct {
	name  string
	needs []string                              // names of earlier steps
	do    func(context.Context) (string, error) // returns a description of what it did
}

// runSteps runs each step as soon as the steps that it needs are done. The first failure cancels the others.
func runSteps(ctx context.Context, log *progress, steps []step) error {
	if err := checkSteps(steps); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	done := map[string]chan struct{}{}
	for _, s := range steps {
		needs := make([]<-chan struct{}, 0, len(s.needs))
		for _, n := range s.needs {
			needs = append(needs, done[n])
		}
		finished := make(chan struct{})
		done[s.name] = finished
		g.Go(func() error {
			if err := waitAll(ctx, needs); err != nil {
				return err
			}
			began := time.Now()
			did, err := s.do(ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			log.step(s.name+" "+did, time.Since(began))
			close(finished)
			return nil
		})
	}
	return g.Wait()
}

// checkSteps fails if a step needs a later one, so that steps cannot wait for each other.
func checkSteps(steps []step) error {
	earlier := map[string]bool{}
	for _, s := range steps {
		for _, n := range s.needs {
			if !earlier[n] {
				return fmt.Errorf("step %s needs %s, which is not an earlier step", s.name, n)
			}
		}
		earlier[s.name] = true
	}
	return nil
}

func waitAll(ctx context.Context, needs []<-chan struct{}) error {
	for _, n := range needs {
		select {
		case <-n:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
