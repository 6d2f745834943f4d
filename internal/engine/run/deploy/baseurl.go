package deploy

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// baseURL returns the base URL that the workload of a shard registers; "" for other objects.
func baseURL(workload *unstructured.Unstructured) string {
	return record.FlagOf(topology.Shard, workload, "shard-base-url")
}

// recordMoved finds out which front-proxies must restart: all, for a shard whose base URL the run changes or that
// leaves its data, and those that an earlier run has not restarted. They are in the record while the run writes, so
// that the next one continues. Afterwards, only those remain that the run has left out.
func (g *guard) recordMoved() {
	res := g.res
	res.moved = map[topology.ID][]topology.ID{}
	remain := map[topology.ID][]topology.ID{}
	for _, shard := range g.Topology.Shards() {
		all, id := g.known.Moved[shard.ID()], shard.ID()
		if !g.scope().Includes(id) {
			if len(all) > 0 {
				res.moved[id], remain[id] = all, all
			}
			continue
		}
		if moves(res.Plan.Of(id)) || g.leavesData(id) {
			all = nil
			for _, c := range g.Topology.FrontProxies() {
				all = append(all, c.ID())
			}
		}
		for _, proxy := range all {
			c := g.Topology.Component(proxy)
			if c == nil {
				continue // it is no longer in the setup
			}
			res.moved[id] = append(res.moved[id], proxy)
			if _, left := plan.UnreachableIn(g.left, c.Cluster.Name); left {
				remain[id] = append(remain[id], proxy)
			}
		}
	}
	res.record.Moved = remain
}

// moves reports whether a plan changes the base URL of a running shard.
func moves(items []plan.Item) bool {
	return slices.ContainsFunc(items, func(it plan.Item) bool {
		return baseURL(it.Live) != "" && it.Want != nil && baseURL(it.Live) != baseURL(it.Want)
	})
}

// leavesData reports whether a shard starts without its previous data, as the user has allowed.
func (g *guard) leavesData(id topology.ID) bool {
	if !g.mayLose(id) && !g.mayLose(id.EtcdID()) {
		return false
	}
	allowed := func(of topology.ID) bool { return (of == id || of == id.EtcdID()) && g.mayLose(of) }
	return g.known.CheckData(g.data, allowed, func(topology.ID) bool { return false }) != nil
}

// restartProxies restarts the front-proxies after the base URL or the data of a shard has changed. A running
// front-proxy deletes the shard from its index when the URL changes, and adds it again only when it starts. Until then
// it answers requests for the workspaces of the shard with 403 (kcp: pkg/proxy/index/index_controller.go, UpdateFunc).
// It continues its watches of the shard at the last revision of the previous data. Until the new data has that
// revision, it sees no new workspace, so that none is initialized. The front-proxies that the run changes start again
// anyway, after the shards. Other shards are not restarted: each keeps the first client of a shard that it has
// scheduled a workspace on (kcp: pkg/reconciler/tenancy/workspace/workspace_controller.go, clientPool), which often
// still works, and a restart of all shards would take hours in a large setup.
func (r *rollout) restartProxies(ctx context.Context, shard *change) error {
	for _, id := range shard.moved {
		c := r.Topology.Component(id)
		if _, left := plan.UnreachableIn(r.left, c.Cluster.Name); left {
			r.Note(fmt.Sprintf("%s must restart, because the base URL or the data of %s has changed, but cluster %s "+
				"cannot be reached; run kcpctl up when it answers", id, shard.ID(), c.Cluster.Name))
		} else if r.mustRestart(c) {
			r.Component(shard.ID(), run.Running, fmt.Sprintf("has another base URL or other data; %s restarts", id))
		}
	}
	if len(r.Topology.Shards()) > 1 && moves(shard.items) {
		r.Note(fmt.Sprintf("the other shards may use the previous base URL of %s to schedule workspaces until they "+
			"restart; if nothing answers there any more, restart them", shard.ID()))
	}
	var failed error
	r.restarts.Do(func() {
		for _, p := range r.Topology.FrontProxies() {
			if !r.mustRestart(p) {
				continue
			}
			if err := r.Runtime.Replace(ctx, p); err != nil && failed == nil {
				failed = clierr.New(clierr.Failed, "rerun the command: it restarts "+string(p.ID()),
					"%s does not find %s until it restarts, because the base URL or the data of the shard has "+
						"changed: %w", p.ID(), shard.ID(), err)
			}
		}
	})
	return failed
}

// mustRestart reports whether a front-proxy must restart because of any shard, can be reached, and does not start again
// anyway.
func (r *rollout) mustRestart(proxy *topology.Component) bool {
	_, left := plan.UnreachableIn(r.left, proxy.Cluster.Name)
	ch := r.changes.of[proxy.ID()]
	return !left && (ch == nil || !ch.rolls) &&
		slices.ContainsFunc(r.changes.all, func(shard *change) bool { return slices.Contains(shard.moved, proxy.ID()) })
}
