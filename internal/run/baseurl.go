package run

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/plan"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// baseURL returns the base URL that the workload of a shard registers; "" for other objects.
func baseURL(workload *unstructured.Unstructured) string {
	if workload == nil {
		return ""
	}
	containers, _, _ := unstructured.NestedSlice(workload.Object, "spec", "template", "spec", "containers")
	for _, c := range containers {
		container, _ := c.(map[string]any)
		args, _, _ := unstructured.NestedStringSlice(container, "args")
		for _, a := range args {
			if url, is := strings.CutPrefix(a, "--shard-base-url="); is {
				return url
			}
		}
	}
	return ""
}

// recordMoved finds out which front-proxies must restart: all, for a shard whose base URL the run changes, and those that an
// earlier run has not restarted. They are in the record while the run writes, so that the next one continues. Afterwards, only those remain
// that the run has left out.
func (p *preparation) recordMoved(res *Result) {
	res.moved = map[topology.ID][]topology.ID{}
	remain := map[topology.ID][]topology.ID{}
	for _, shard := range p.Topology.Shards() {
		all, id := p.known.Moved[shard.ID()], shard.ID()
		if !p.scope().includes(id) {
			if len(all) > 0 {
				res.moved[id], remain[id] = all, all
			}
			continue
		}
		if moves(res.Plan.Of(id)) {
			all = nil
			for _, c := range p.Topology.FrontProxies() {
				all = append(all, c.ID())
			}
		}
		for _, proxy := range all {
			c := p.Topology.Component(proxy)
			if c == nil {
				continue // it is no longer in the setup
			}
			res.moved[id] = append(res.moved[id], proxy)
			if _, left := plan.UnreachableIn(p.left, c.Cluster.Name); left {
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

// restartProxies restarts the front-proxies after the base URL of a shard has changed. A running front-proxy deletes
// the shard from its index when the URL changes, and adds it again only when it starts. Until then it answers requests
// for the workspaces of the shard with 403 (kcp: pkg/proxy/index/index_controller.go, UpdateFunc). Those that the run
// changes start again anyway, after the shards. Other shards are not restarted: each keeps the first client of a shard that it has
// scheduled a workspace on (kcp: pkg/reconciler/tenancy/workspace/workspace_controller.go, clientPool), which often still works, and a
// restart of all shards would take hours in a large setup.
func (r *rollout) restartProxies(ctx context.Context, shard *change) error {
	for _, id := range shard.moved {
		c := r.Topology.Component(id)
		if _, left := plan.UnreachableIn(r.left, c.Cluster.Name); left {
			r.note(fmt.Sprintf("%s must restart, because the base URL of %s has changed, but cluster %s cannot be reached; "+
				"run kcpctl up when it answers", id, shard.ID(), c.Cluster.Name))
		} else if r.mustRestart(c) {
			r.component(shard.ID(), Running, fmt.Sprintf("has a new base URL; %s restarts", id))
		}
	}
	if len(r.Topology.Shards()) > 1 {
		r.note(fmt.Sprintf("the other shards may use the previous base URL of %s to schedule workspaces until they restart; "+
			"if nothing answers there any more, restart them", shard.ID()))
	}
	var failed error
	r.restarts.Do(func() {
		for _, p := range r.Topology.FrontProxies() {
			if !r.mustRestart(p) {
				continue
			}
			if err := r.Runtime.Replace(ctx, p); err != nil && failed == nil {
				failed = clierr.New(clierr.Failed, "rerun the command: it restarts "+string(p.ID()),
					"%s does not find %s until it restarts, because the base URL of the shard has changed: %w", p.ID(), shard.ID(), err)
			}
		}
	})
	return failed
}

// mustRestart reports whether a front-proxy must restart because of any shard, can be reached, and does not start again anyway.
func (r *rollout) mustRestart(proxy *topology.Component) bool {
	_, left := plan.UnreachableIn(r.left, proxy.Cluster.Name)
	ch := r.changes.of[proxy.ID()]
	return !left && (ch == nil || !ch.rolls) &&
		slices.ContainsFunc(r.changes.all, func(shard *change) bool { return slices.Contains(shard.moved, proxy.ID()) })
}
