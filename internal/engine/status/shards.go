package status

import (
	"context"
	"fmt"
	"slices"

	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
)

// shards reads the registered shards and the moves from the root shard, if it is ready, and the logical clusters from
// each shard.
func (c *collector) shards(ctx context.Context) {
	switch root := c.component(c.topology.Root().ID()); {
	case root.Unexamined:
		c.Problem = "the state of the root shard is unknown, so the registered shards are, too"
		return
	case root.Unknown:
		c.Problem = "the cluster of the root shard cannot be reached, so the registered shards are unknown"
		return
	case !root.Ready:
		c.Problem = "the root shard is not ready, so the registered shards are unknown"
		return
	case len(c.state.CAs) == 0:
		c.Problem = "the PKI store is empty, so kcp cannot be asked"
		return
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no answer within %s", patience))
	defer cancel()
	registered, begun, err := c.registered(ctx)
	if err != nil {
		c.Problem = "the root shard does not answer: " + err.Error()
		return
	}
	serving := map[string]*topology.Component{}
	for _, comp := range c.topology.Shards() {
		found := c.component(comp.ID())
		known := slices.ContainsFunc(registered, func(sh kcp.Shard) bool { return sh.Name == comp.ShardName() })
		if found.Registered = &known; found.ReadyReplicas > 0 {
			serving[comp.ShardName()] = comp
		}
	}
	lists := parallel.Map(atOnce, registered, func(sh kcp.Shard) listed { return c.list(ctx, serving[sh.Name]) })
	on := map[string][]kcp.LogicalCluster{}
	for i, sh := range registered {
		shown := Shard{Shard: sh}
		if n := len(lists[i].clusters); lists[i].known {
			shown.LogicalClusters = &n
		}
		c.Shards = append(c.Shards, shown)
		on[sh.Name] = lists[i].clusters
	}
	c.moves(ctx, kcp.NewUnfinished(begun, on))
}

// registered returns the registered shards, and the moves that have begun. If those are not known, there are none.
func (c *collector) registered(ctx context.Context) ([]kcp.Shard, []kcp.Begun, error) {
	root, err := kcp.Connect(c.runtime, c.topology.Root(), c.state, c.now)
	if err != nil {
		return nil, nil, err
	}
	defer root.Close()
	shards, err := root.Shards(ctx)
	if err != nil {
		return nil, nil, err
	}
	if bound, err := root.MigrationBound(ctx); err != nil || !bound {
		return shards, nil, nil
	}
	begun, _ := root.Migrating(ctx)
	return shards, begun, nil
}

// moves reports moves that have begun, if no run is in progress. The runs are read again: one may have begun since.
func (c *collector) moves(ctx context.Context, all []kcp.Unfinished) {
	if len(all) == 0 || c.Run != nil {
		return
	}
	if current, _, err := c.runtime.Runs(ctx); err != nil || current != nil {
		return
	}
	var paths []string
	for _, u := range all {
		paths = append(paths, u.Path)
	}
	c.Moves = all
	c.Problem = fmt.Sprintf("%s being moved, and may refuse requests until the moves are completed: %s",
		gather.Count(len(all), "workspace is", "workspaces are"), gather.Few(paths, gather.Listed, ", "))
}

// listed are the logical clusters of a shard.
type listed struct {
	clusters []kcp.LogicalCluster
	known    bool
}

// list returns the logical clusters of a shard, if it can be asked.
func (c *collector) list(ctx context.Context, shard *topology.Component) (out listed) {
	if shard == nil {
		return out // it does not serve, or is not part of the setup
	}
	client, err := kcp.Connect(c.runtime, shard, c.state, c.now)
	if err != nil {
		return out
	}
	defer client.Close()
	out.clusters, err = client.LogicalClusters(ctx)
	out.known = err == nil
	return out
}
