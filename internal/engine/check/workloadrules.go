package check

import (
	"context"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/agentstate"
)

var (
	clusterRoleKind        = rbacv1.SchemeGroupVersion.WithKind("ClusterRole")
	clusterRoleBindingKind = rbacv1.SchemeGroupVersion.WithKind("ClusterRoleBinding")
)

// lacks returns what the syncer of a physical cluster needs there and its ClusterRole does not grant, such as patch
// deployments.apps.
func (c *compute) lacks(ctx context.Context, p *topology.Component) ([]string, error) {
	binding, err := c.Runtime.Read(ctx, p, clusterRoleBindingKind, "", p.SyncerRole())
	if err != nil {
		return nil, err
	}
	if binding == nil {
		return []string{"anything, because the ClusterRoleBinding with its name does not exist"}, nil
	}
	live, err := c.Runtime.Read(ctx, p, clusterRoleKind, "", p.SyncerRole())
	if err != nil {
		return nil, err
	}
	var role rbacv1.ClusterRole
	if live != nil {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(live.Object, &role); err != nil {
			return nil, fmt.Errorf("read ClusterRole %s: %w", p.SyncerRole(), err)
		}
	}
	var out []string
	// The setup grants nothing for an API that it no longer has, and that is still published: its objects are not
	// synced.
	synced := slices.DeleteFunc(agentstate.Resources(c.export),
		func(gr schema.GroupResource) bool { return !slices.Contains(c.APIs, gr.String()) })
	for _, r := range api.SyncerRules(synced) {
		for _, group := range r.APIGroups {
			for _, resource := range r.Resources {
				for _, verb := range r.Verbs {
					if !slices.ContainsFunc(role.Rules, func(rule rbacv1.PolicyRule) bool { return grants(rule, group, resource, verb) }) {
						out = append(out, verb+" "+schema.GroupResource{Group: group, Resource: resource}.String())
					}
				}
			}
		}
	}
	return out, nil
}

// grants reports whether a rule grants a verb on all objects of a resource.
func grants(r rbacv1.PolicyRule, group, resource, verb string) bool {
	has := func(all []string, one string) bool { return slices.Contains(all, "*") || slices.Contains(all, one) }
	return len(r.ResourceNames) == 0 && has(r.APIGroups, group) && has(r.Resources, resource) && has(r.Verbs, verb)
}
