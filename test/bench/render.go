package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// sharded is the measured setup: three shards, a cache server and a front-proxy.
const sharded = "examples/sharded.yaml"

// measureRender renders setups, each time with new certificates. It removes them only at the end: an ext4 without a
// journal takes seconds to create files while it looks for inodes that were not deleted recently (recently_deleted in
// fs/ext4/ialloc.c).
func measureRender(ctx context.Context, b *bench, runs int) error {
	dir, err := os.MkdirTemp("", "kcpctl-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory
	small, err := b.render(ctx, runs, dir, sharded)
	if err != nil {
		return err
	}
	hundred, err := b.renderShards(ctx, runs, dir, 100)
	if err != nil {
		return err
	}
	thousand, err := b.renderShards(ctx, runs, dir, 1000)
	if err != nil {
		return err
	}
	const tenfold = "ten times that of 100"
	r := &b.report
	r.add("render, 3 shards", "s", small.wall, limit(0.15))
	r.add("render, 3 shards, CPU time", "s", small.cpu)
	r.add("render, 3 shards, memory", "MB", small.rss)
	m := r.add("render, 100 shards", "s", hundred.wall, limit(0.5))
	r.add("render, 100 shards, CPU time", "s", hundred.cpu)
	r.add("render, 100 shards, memory", "MB", hundred.rss, limit(200))
	r.add("render, 1000 shards", "s", thousand.wall, limit(5), reference(tenfold, 10*m))
	r.add("render, 1000 shards, CPU time", "s", thousand.cpu, reference(tenfold, 10*median(hundred.cpu)))
	r.add("render, 1000 shards, memory", "MB", thousand.rss, limit(500), reference(tenfold, 10*median(hundred.rss)))
	return nil
}

func (b *bench) renderShards(ctx context.Context, runs int, dir string, n int) (*series, error) {
	file := filepath.Join(dir, fmt.Sprintf("%d.yaml", n))
	if err := os.WriteFile(file, []byte(setupOf(n)), 0o600); err != nil {
		return nil, err
	}
	return b.render(ctx, runs, dir, file)
}

// render renders a file several times, each time with a new PKI in dir.
func (b *bench) render(ctx context.Context, runs int, dir, file string) (*series, error) {
	s := &series{}
	for range runs {
		u, err := b.renderOnce(ctx, dir, file)
		if err != nil {
			return nil, err
		}
		s.add(u)
	}
	b.logf("render %s: %.3f s", filepath.Base(file), median(s.wall))
	return s, nil
}

func (b *bench) renderOnce(ctx context.Context, dir, file string) (usage, error) {
	pki, err := os.MkdirTemp(dir, "pki-")
	if err != nil {
		return usage{}, err
	}
	return command{name: b.kcpctl, args: []string{"render", "-f", file, "--pki-dir", pki}}.run(ctx)
}

// setupOf returns a setup with n shards including the root shard, a cache server and a front-proxy, and with other
// fields of its spec.
func setupOf(n int, fields ...string) string {
	var b strings.Builder
	b.WriteString(`apiVersion: kcpctl.dev/v1alpha1
kind: Setup
metadata: {name: bench}
spec:
  cacheServer: {}
  frontProxies: [{name: main}]
`)
	for _, f := range fields {
		b.WriteString("  " + f + "\n")
	}
	b.WriteString("  shards:\n")
	for i := range n - 1 {
		fmt.Fprintf(&b, "  - name: shard-%d\n", i+1)
	}
	return b.String()
}
