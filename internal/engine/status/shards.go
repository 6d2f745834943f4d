package status

import (
	"context"
	"fmt"
	"slices"

	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
)

// shards reads the registered shards from the root shard, if it is ready, and the logical clusters from each shard.
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
	registered, err := c.registered(ctx)
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
	c.Shards = parallel.Map(atOnce, registered,
		func(sh kcp.Shard) Shard { return Shard{sh, c.count(ctx, serving[sh.Name])} })
}

func (c *collector) registered(ctx context.Context) ([]kcp.Shard, error) {
	root, err := kcp.Connect(c.runtime, c.topology.Root(), c.state, c.now)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return root.Shards(ctx)
}

// count returns how many logical clusters a shard has; nil if it cannot be asked.
func (c *collector) count(ctx context.Context, shard *topology.Component) *int {
	if shard == nil {
		return nil // it does not serve, or is not part of the setup
	}
	client, err := kcp.Connect(c.runtime, shard, c.state, c.now)
	if err != nil {
		return nil
	}
	defer client.Close()
	clusters, err := client.LogicalClusters(ctx)
	if err != nil {
		return nil
	}
	n := len(clusters)
	return &n
}
