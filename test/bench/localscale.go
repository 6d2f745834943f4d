package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// scaled is the cost of a setup of n shards, in seconds and megabytes.
type scaled struct {
	n            int
	time, memory []float64
}

// measureLocalScale runs setups with an increasing number of shards, and reports the cost of each additional shard,
// which is constant if time and memory are linear.
func measureLocalScale(ctx context.Context, b *bench, runs int) error {
	bin, err := testbed(ctx, "kcp-bin-dir")
	if err != nil {
		return err
	}
	var all []scaled
	for _, n := range []int{1, 2, 5} {
		s, err := b.bringUpShards(ctx, bin, n, runs)
		if err != nil {
			return fmt.Errorf("shards: %d: %w", n, err)
		}
		all = append(all, s)
	}
	b.report.addScaled(all)
	return nil
}

// addScaled compares setups with the first, which has one shard, and the costs of additional shards with each other.
func (r *report) addScaled(all []scaled) {
	for _, what := range []struct {
		name, unit string
		of         func(scaled) []float64
	}{
		{"start", "s", func(s scaled) []float64 { return s.time }},
		{"memory", "MB", func(s scaled) []float64 { return s.memory }},
	} {
		one := r.add("local-scale, shards: 1, "+what.name, what.unit, what.of(all[0]))
		var before []against
		for _, s := range all[1:] {
			name := fmt.Sprintf("local-scale, shards: %d, %s", s.n, what.name)
			m := r.add(name, what.unit, what.of(s), reference(fmt.Sprintf("%d times that of 1", s.n), float64(s.n)*one))
			further := (m - one) / float64(s.n-1)
			r.add(name+" per further one", what.unit, []float64{further}, before...)
			before = []against{reference(fmt.Sprintf("with %d", s.n), further)}
		}
	}
}

// bringUpShards runs a setup of n shards.
func (b *bench) bringUpShards(ctx context.Context, bin string, n, runs int) (scaled, error) {
	dir, err := os.MkdirTemp("", "kcpctl-bench-setup-")
	if err != nil {
		return scaled{}, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory
	file := filepath.Join(dir, fmt.Sprintf("shards-%d.yaml", n))
	if err := os.WriteFile(file, []byte(setupOf(n)), 0o600); err != nil {
		return scaled{}, err
	}
	var r localRuns
	for range runs {
		if err := b.bringUpHere(ctx, bin, file, &r); err != nil {
			return scaled{}, err
		}
	}
	return scaled{n, r.up.of(wall), r.rss}, nil
}
