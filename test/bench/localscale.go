package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// measureLocalScale brings up setups of more and more shards. If time and memory are linear in the number of shards, the
// part of a shard falls as they share the cache server and the front-proxy: it is compared with that of a single shard.
func measureLocalScale(ctx context.Context, b *bench, runs int) error {
	bin, err := testbed(ctx, "kcp-bin-dir")
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "kcpctl-bench-setups-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)    //nolint:errcheck // a folder of ours in the folder for such
	var time, memory []against // of a single shard
	for _, n := range []int{1, 2, 5} {
		file := filepath.Join(dir, fmt.Sprintf("%d.yaml", n))
		if err := os.WriteFile(file, []byte(setupOf(n)), 0o600); err != nil {
			return err
		}
		var runsOf localRuns
		for range runs {
			if err := b.bringUpHere(ctx, bin, file, &runsOf); err != nil {
				return fmt.Errorf("%d shards: %w", n, err)
			}
		}
		name := fmt.Sprintf("local-scale, %d shards: ", n)
		b.report.add(name+"start", "s", runsOf.up.of(wall))
		b.report.add(name+"memory", "MB", runsOf.rss)
		t := b.report.add(name+"start per shard", "s", per(n, runsOf.up.of(wall)), time...)
		m := b.report.add(name+"memory per shard", "MB", per(n, runsOf.rss), memory...)
		if n == 1 {
			time, memory = []against{reference("of one shard", t)}, []against{reference("of one shard", m)}
		}
	}
	return nil
}

// per divides the samples.
func per(n int, samples []float64) []float64 {
	var out []float64
	for _, s := range samples {
		out = append(out, s/float64(n))
	}
	return out
}
