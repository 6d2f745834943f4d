package run

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/dag"
	"github.com/kcpctl/kcpctl/internal/plan"
	"github.com/kcpctl/kcpctl/internal/ready"
	"github.com/kcpctl/kcpctl/internal/topology"
)

const (
	pollInterval = 100 * time.Millisecond
	// patience is how long a component may be stuck before the wait for it ends: a missing image may still be pushed, a
	// crash may be a start in the wrong order.
	patience = 30 * time.Second
	// atOnce limits how many components are worked on at a time.
	atOnce = 32
)

// components applies every component once all that it needs is ready, and waits until it is ready itself.
func (u *Up) components(ctx context.Context, res *Result) error {
	needs := map[topology.ID][]topology.ID{}
	for _, c := range u.Topology.Components {
		needs[c.ID()] = c.Needs
		u.emit(Event{Scope: Component, Name: string(c.ID()), Status: Pending, Needs: names(c.Needs)})
	}
	if u.Options.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, u.Options.Timeout, errTimeout{u.Options.Timeout})
		defer cancel()
	}
	errs, err := dag.Run(ctx, needs, atOnce, func(ctx context.Context, id topology.ID) error {
		err := u.one(ctx, u.Topology.Component(id), res)
		if err != nil {
			u.component(id, Failed, firstLine(err))
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(errs)) {
		if errors.Is(errs[id], dag.ErrSkipped) {
			u.component(id, Skipped, strings.TrimPrefix(errs[id].Error(), dag.ErrSkipped.Error()+": "))
		}
	}
	return u.summarize(ctx, errs)
}

// one applies a component and waits for it.
func (u *Up) one(ctx context.Context, c *topology.Component, res *Result) error {
	items := res.Plan.Of(c.ID())
	items = slices.DeleteFunc(items, func(it plan.Item) bool { return it.Kind == "Namespace" && it.Action == plan.Create })
	if len(items) > 0 {
		u.component(c.ID(), Running, "applying "+count(len(items), "object", "objects"))
		if err := u.Runtime.Apply(ctx, items, u.Options.PlanOptions); err != nil {
			return err
		}
	}
	state, err := u.waitReady(ctx, c)
	if err != nil {
		return err
	}
	if !res.Plan.Empty() {
		if err := u.gate(ctx, c, res.PKI.State); err != nil {
			return err
		}
	}
	u.component(c.ID(), Done, doneMessage(c, state, len(items)))
	return nil
}

// waitReady waits until the runtime calls a component ready.
func (u *Up) waitReady(ctx context.Context, c *topology.Component) (ready.State, error) {
	var stuckSince time.Time
	reported := ""
	for {
		s, err := u.Runtime.State(ctx, c)
		switch {
		case err != nil && ctx.Err() == nil:
			s.Reason = err.Error() // a lost connection heals, or the time is up
		case err == nil && s.Ready:
			return s, nil
		}
		if msg := waitMessage(s); ctx.Err() == nil && msg != reported {
			reported = msg
			u.component(c.ID(), Running, msg)
		}
		if !s.Stuck {
			stuckSince = time.Time{}
		} else if stuckSince.IsZero() {
			stuckSince = u.Now()
		} else if u.Now().Sub(stuckSince) > patience {
			return s, &notReady{reported, s.Detail, nil}
		}
		select {
		case <-ctx.Done():
			return s, &notReady{reported, s.Detail, context.Cause(ctx)}
		case <-time.After(pollInterval):
		}
	}
}

// notReady is the error of a component that did not become ready.
type notReady struct {
	reason string
	detail []string
	cause  error
}

func (e *notReady) Error() string {
	msg := "not ready"
	if e.cause != nil && !errors.Is(e.cause, context.Canceled) {
		msg += " (" + e.cause.Error() + ")"
	}
	if e.reason != "" {
		msg += ": " + e.reason
	}
	for _, line := range e.detail {
		msg += "\n    " + line
	}
	return msg
}

func (e *notReady) Unwrap() error { return e.cause }

type errTimeout struct{ after time.Duration }

func (e errTimeout) Error() string { return fmt.Sprintf("timed out after %s", e.after) }

// summarize makes one error of those of the components.
func (u *Up) summarize(ctx context.Context, errs map[topology.ID]error) error {
	code, skipped := 0, 0
	var msgs []string
	for _, c := range u.Topology.Components {
		err := errs[c.ID()]
		var nr *notReady
		switch {
		case err == nil:
			continue
		case errors.Is(err, dag.ErrSkipped):
			skipped++
			continue
		case errors.As(err, &nr):
			code = max(code, clierr.NotReady)
		default:
			code = max(code, clierr.Code(err))
		}
		msgs = append(msgs, fmt.Sprintf("%s: %v", c.ID(), err))
	}
	if len(msgs) == 0 {
		return nil
	}
	if errors.Is(context.Cause(ctx), context.Canceled) {
		return clierr.New(clierr.Interrupted, "run the same command again: it continues", "interrupted; what is done is kept")
	}
	if skipped > 0 {
		msgs = append(msgs, count(skipped, "component that needs", "components that need")+" them did not start")
	}
	hint := "mend the cause and run the same command again: what is done is kept"
	for _, err := range errs {
		if h := clierr.Hint(err); h != "" {
			hint = h
		}
	}
	return clierr.New(code, hint, "%s", strings.Join(msgs, "\n"))
}

func waitMessage(s ready.State) string {
	switch {
	case s.Reason != "":
		return s.Reason
	case s.Replicas > 0:
		return fmt.Sprintf("%d/%d ready", s.ReadyReplicas, s.Replicas)
	}
	return "starting"
}

func doneMessage(c *topology.Component, s ready.State, applied int) string {
	switch {
	case s.Replicas > 0 && applied > 0:
		return fmt.Sprintf("ready %d/%d", s.ReadyReplicas, s.Replicas)
	case s.Replicas > 0:
		return fmt.Sprintf("ready %d/%d, unchanged", s.ReadyReplicas, s.Replicas)
	case applied > 0:
		return count(applied, "object", "objects") + " applied"
	}
	return "unchanged"
}

func names(ids []topology.ID) []string {
	var out []string
	for _, id := range ids {
		out = append(out, string(id))
	}
	return out
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}
