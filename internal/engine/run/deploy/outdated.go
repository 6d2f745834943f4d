package deploy

import (
	"context"
	"errors"

	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// findOutdated finds the shards of which the root shard has another base URL than the setup, before they start: the
// data of a backup has the URL of the place where it was taken.
func (r *rollout) findOutdated(ctx context.Context, root *kcp.Client) error {
	for _, shard := range r.changes.all {
		if !restored(shard) {
			continue
		}
		err := r.until(ctx, r.Topology.Root(), func() error {
			known, err := root.Shard(ctx, shard.ShardName())
			if errors.Is(err, kcp.ErrNotRegistered) {
				return nil
			}
			if err == nil && known.BaseURL != shard.URL {
				r.outdated = append(r.outdated, shard.ID())
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// restored reports whether a shard other than the root shard starts with data that it did not have here before.
func restored(c *change) bool {
	return c.IsShard() && c.Kind != topology.RootShard && c.isNew && len(c.moved) > 0
}

// refresh adds the restart of the root shard to the graph of a rollout that starts it together with restored shards.
// All shards are registered before.
func (cs *changes) refresh(graph map[node][]node, root topology.ID) {
	var needs []node
	some := false
	for _, c := range cs.all {
		serving := node{c.ID(), serves}
		if _, ok := graph[serving]; ok && c.IsShard() {
			needs = append(needs, serving)
			some = some || restored(c)
		}
	}
	if _, found := graph[node{root, answers}]; found && some {
		graph[node{root, refreshed}] = needs
	}
}

// restartOutdated restarts the root shard if it had outdated base URLs. It keeps the first one that it uses for another
// shard (kcp: pkg/reconciler/tenancy/workspace/workspace_controller.go, clientPool), and it uses them at once if the
// backup has Workspaces that are being deleted (workspace_reconcile_deletion.go). Until it restarts, new workspaces on
// the shard would not leave the phase Scheduling.
func (r *rollout) restartOutdated(ctx context.Context) error {
	if len(r.outdated) == 0 {
		return nil
	}
	root := r.Topology.Root()
	r.Component(root.ID(), run.Running, "began with other base URLs of shards; it restarts")
	if err := r.Runtime.Replace(ctx, root); err != nil {
		return r.Failed(root.ID(), clierr.New(clierr.Failed, "restart it with kcpctl restart root-shard",
			"%s may use outdated base URLs of shards until it restarts: %w", root.ID(), err))
	}
	r.Component(root.ID(), run.Done, "restarted")
	return nil
}
