package run

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/kcp"
	"github.com/kcpctl/kcpctl/internal/release"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// migrationGate is the feature gate of kcp for moving logical clusters.
const migrationGate = "LogicalClusterMigration"

// drain moves all logical clusters of a shard to the other shards in turn, and waits until the shard is empty.
func (r *RemoveShard) drain(ctx context.Context, c *topology.Component, from *kcp.Client, shards []kcp.Shard) error {
	r.step(stepDrain, Running, "")
	to, err := r.destinations(ctx, c, shards)
	if err != nil {
		return r.fail(stepDrain, err)
	}
	r.moving = true
	if err := r.root.BindMigration(ctx, func(reason string) { r.step(stepDrain, Running, reason) }); err != nil {
		return r.fail(stepDrain, err)
	}
	moved := 0
	for {
		clusters, err := from.LogicalClusters(ctx)
		if err != nil {
			return r.fail(stepDrain, err)
		}
		if len(clusters) == 0 {
			break
		}
		if err := r.move(ctx, clusters, to, &moved); err != nil {
			return r.fail(stepDrain, err)
		}
		select {
		case <-ctx.Done():
			return r.fail(stepDrain, clierr.New(clierr.NotReady, "run the command again: it continues",
				"%s still has %s: %w", c.ID(), clusters[0], context.Cause(ctx)))
		case <-time.After(pollInterval):
		}
	}
	if err := r.root.UnbindMigration(ctx); err != nil {
		return r.fail(stepDrain, err)
	}
	r.step(stepDrain, Done, count(moved, "logical cluster", "logical clusters")+" moved")
	return nil
}

// move moves logical clusters one after another, except those that are being deleted.
func (r *RemoveShard) move(ctx context.Context, all []kcp.LogicalCluster, to []string, moved *int) error {
	for _, l := range all {
		if l.Deleting {
			r.step(stepDrain, Running, l.String())
			continue
		}
		target := to[*moved%len(to)]
		what := fmt.Sprintf("%s to shard %s", l.Path, target)
		r.step(stepDrain, Running, what)
		report := func(reason string) { r.step(stepDrain, Running, what+": "+reason) }
		if err := r.root.Migrate(ctx, l.Name, target, report); err != nil {
			return clierr.New(clierr.Failed, "fix the cause and run the command again: it continues",
				"move %s: %w", what, err)
		}
		*moved++
	}
	return nil
}

// destinations returns the shards that the logical clusters of c can move to. If there are none, or kcp cannot move
// them, the error has the reason.
func (r *RemoveShard) destinations(ctx context.Context, c *topology.Component, shards []kcp.Shard) ([]string, error) {
	if err := r.canMigrate(ctx, c); err != nil {
		return nil, err
	}
	var out []string
	var why error
	for _, t := range r.Topology.Shards() {
		schedulable := slices.ContainsFunc(shards, func(s kcp.Shard) bool { return s.Name == t.ShardName() && !s.Cordoned })
		if t == c || !schedulable {
			continue
		}
		if err := r.canMigrate(ctx, t); err != nil {
			why = err
			continue
		}
		out = append(out, t.ShardName())
	}
	switch {
	case len(out) > 0:
		return out, nil
	case why != nil:
		return nil, why
	}
	return nil, clierr.New(clierr.Failed, "add another shard, or uncordon one", "no other shard accepts workspaces")
}

// canMigrate returns an error if logical clusters cannot be moved from or to a shard.
func (r *RemoveShard) canMigrate(ctx context.Context, c *topology.Component) error {
	const byHand = "; or move the workspaces yourself"
	if !release.Of(c.Version).Migration {
		return clierr.New(clierr.Failed, "upgrade kcp to v0.32 or later"+byHand,
			"%s runs kcp %s, which cannot move logical clusters", c.ID(), c.Version)
	}
	client, err := r.connect(c)
	if err != nil {
		return err
	}
	on, err := client.CanMigrate(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", c.ID(), err)
	}
	if !on {
		return clierr.New(clierr.Failed,
			fmt.Sprintf("add --feature-gates=%s=true to the extraArgs of every shard and run kcpctl up%s", migrationGate, byHand),
			"the feature gate %s, which kcp needs to move logical clusters, is off on %s", migrationGate, c.ID())
	}
	return nil
}
