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

// drain moves all logical clusters of the shard to the other shards in turn, and waits until it is empty.
func (x *removal) drain(ctx context.Context) error {
	step, c := x.stepOf(stepDrain), x.Topology.Component(x.id())
	x.step(step, Running, "")
	from, err := x.connect(c)
	if err != nil {
		return x.fail(step, err)
	}
	to, err := x.destinations(ctx, c)
	if err != nil {
		return x.fail(step, err)
	}
	x.moving = true
	if err := x.root.BindMigration(ctx, func(reason string) { x.step(step, Running, reason) }); err != nil {
		return x.fail(step, err)
	}
	moved := 0
	for {
		clusters, err := from.LogicalClusters(ctx)
		if err != nil {
			return x.fail(step, err)
		}
		if len(clusters) == 0 {
			break
		}
		if err := x.move(ctx, clusters, to, &moved); err != nil {
			return x.fail(step, err)
		}
		select {
		case <-ctx.Done():
			return x.fail(step, clierr.New(clierr.NotReady, "run the command again: it continues",
				"%s still has %s: %w", c.ID(), clusters[0], context.Cause(ctx)))
		case <-time.After(pollInterval):
		}
	}
	if err := x.root.UnbindMigration(ctx); err != nil {
		return x.fail(step, err)
	}
	x.step(step, Done, count(moved, "logical cluster", "logical clusters")+" moved")
	return nil
}

// move moves logical clusters one after another, except those that are being deleted.
func (x *removal) move(ctx context.Context, all []kcp.LogicalCluster, to []string, moved *int) error {
	step := x.stepOf(stepDrain)
	for _, l := range all {
		if l.Deleting {
			x.step(step, Running, l.String())
			continue
		}
		target := to[*moved%len(to)]
		what := fmt.Sprintf("%s to shard %s", l.Path, target)
		x.step(step, Running, what)
		report := func(reason string) { x.step(step, Running, what+": "+reason) }
		if err := x.root.Migrate(ctx, l.Name, target, report); err != nil {
			return clierr.New(clierr.Failed, "fix the cause and run the command again: it continues",
				"move %s: %w", what, err)
		}
		*moved++
	}
	return nil
}

// destinations returns the shards that the logical clusters of c can move to. If there are none, or kcp cannot move
// them, the error has the reason.
func (r *RemoveShards) destinations(ctx context.Context, c *topology.Component) ([]string, error) {
	if err := r.canMigrate(ctx, c); err != nil {
		return nil, err
	}
	var out []string
	var why error
	for _, t := range r.Topology.Shards() {
		schedulable := slices.ContainsFunc(r.shards, func(s kcp.Shard) bool { return s.Name == t.ShardName() && !s.Cordoned })
		if slices.Contains(r.Names, t.ShardName()) || !schedulable {
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
func (r *RemoveShards) canMigrate(ctx context.Context, c *topology.Component) error {
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
