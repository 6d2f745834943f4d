package main

import (
	"context"
	"fmt"
)

// operation is a command that is measured on an installation.
type operation struct {
	name string
	args []string
}

// operations returns the measured commands in the order in which they run: the first creates the installation, the last
// removes it.
func operations() []operation {
	return []operation{
		{"up", []string{"up"}},
		{"up again", []string{"up"}},
		{"diff", []string{"diff"}},
		{"status", []string{"status"}},
		{"top", []string{"top"}},
		{"capacity", []string{"capacity"}},
		{"certs renew", []string{"certs", "renew"}},
		{"down --purge", []string{"down", "--purge", "--yes"}},
	}
}

// cost is what a command takes.
type cost struct {
	usage
	requests int64 // to the API server
}

// figures are the columns of a cost.
func figures() []figure {
	return []figure{
		{"time", "s", func(c cost) float64 { return c.wall.Seconds() }},
		{"CPU time", "s", func(c cost) float64 { return c.cpu.Seconds() }},
		{"memory", "MB", func(c cost) float64 { return megabytes(c.rss) }},
		{"requests", "n", func(c cost) float64 { return float64(c.requests) }},
	}
}

type figure struct {
	name, unit string
	of         func(cost) float64
}

// sized has the costs of the operations on an installation of n shards, by the name of the operation, one for each run.
type sized struct {
	n     int
	costs map[string][]cost
}

// few and many are the measured numbers of shards.
const few, many = 10, 100

// measureScale runs the commands on installations of two sizes. The API server and its etcd are real. Pods are those of
// the stand-in, which are ready at once: what remains is the time of kcpctl, its requests, and its pauses between them.
func measureScale(ctx context.Context, b *bench, runs int) error {
	var all []sized
	for _, n := range []int{few, many} {
		s := sized{n, map[string][]cost{}}
		for range runs {
			if err := b.operate(ctx, s); err != nil {
				return fmt.Errorf("shards: %d: %w", n, err)
			}
		}
		all = append(all, s)
	}
	b.report.addSized(all[0], all[1])
	return nil
}

// addSized compares each figure of the larger installation with the multiple of the smaller one that is linear growth.
func (r *report) addSized(small, large sized) {
	times := large.n / small.n
	for _, op := range operations() {
		for _, f := range figures() {
			row := func(s sized, bounds ...against) float64 {
				var samples []float64
				for _, c := range s.costs[op.name] {
					samples = append(samples, f.of(c))
				}
				return r.add(fmt.Sprintf("scale, shards: %d, %s, %s", s.n, op.name, f.name), f.unit, samples, bounds...)
			}
			m := row(small)
			row(large, reference(fmt.Sprintf("%d times that of %d", times, small.n), float64(times)*m))
		}
	}
}

// operate runs all operations on a new installation.
func (b *bench) operate(ctx context.Context, s sized) error {
	return onStandIn(ctx, setupOf(s.n, replicatedEtcd), func(ctx context.Context, h *host) error {
		for _, op := range operations() {
			c, err := h.run(ctx, command{name: b.kcpctl, args: op.args})
			if err != nil {
				return err
			}
			s.costs[op.name] = append(s.costs[op.name], c)
			b.logf("scale, shards: %d, %s: %.1f s, %d requests", s.n, op.name, c.wall.Seconds(), c.requests)
		}
		return h.problems()
	})
}
