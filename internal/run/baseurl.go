package run

import (
	"context"
	"fmt"
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

// restartProxies restarts the front-proxies after the base URL of a shard has changed. A running front-proxy deletes
// the shard from its index when the URL changes, and adds it again only when it starts. Until then it answers requests
// for the workspaces of the shard with 403 (kcp: pkg/proxy/index/index_controller.go, UpdateFunc). Those that the run
// changes after the shard start again anyway.
func (r *rollout) restartProxies(ctx context.Context, shard *topology.Component) error {
	var all []*topology.Component
	for _, p := range r.Topology.FrontProxies() {
		ch := r.changes.of[p.ID()]
		if _, left := plan.UnreachableIn(r.left, p.Cluster.Name); left {
			r.note(fmt.Sprintf("%s must restart, because the base URL of %s has changed, but cluster %s cannot be reached",
				p.ID(), shard.ID(), p.Cluster.Name))
		} else if ch == nil || !ch.isNew && !ch.rolls {
			all = append(all, p)
			r.component(shard.ID(), Running, fmt.Sprintf("has a new base URL; %s restarts", p.ID()))
		}
	}
	var failed error
	r.restarts.Do(func() {
		for _, p := range all {
			if err := r.Runtime.Replace(ctx, p); err != nil && failed == nil {
				failed = clierr.New(clierr.Failed, "restart it: kubectl rollout restart deployment/"+p.Object()+" -n "+p.Cluster.Namespace,
					"%s does not find %s until it restarts, because the base URL of the shard has changed: %w", p.ID(), shard.ID(), err)
			}
		}
	})
	return failed
}
