package check

import (
	"context"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
)

// The kinds of objects that confine workspaces in a cluster.
var (
	networkPolicies = schema.GroupKind{Group: "networking.k8s.io", Kind: "NetworkPolicy"}
	priorityClasses = schema.GroupVersionKind{Group: "scheduling.k8s.io", Version: "v1", Kind: "PriorityClass"}
	nodeKind        = schema.GroupVersionKind{Version: "v1", Kind: "Node"}
)

// What the checks of tenancy have in common.
const (
	explainTenancy = "Tenancy confines the objects of workspaces in a physical cluster. Isolation needs the API of NetworkPolicies. Whether the " +
		"network of the cluster enforces them cannot be asked: read its documentation, or try a connection. Pods that name a PriorityClass " +
		"that does not exist are refused, and pods for which no node has the labels of the node selector stay Pending. What the user of the " +
		"kubeconfig may not list is skipped."
	fixTenancy = "correct spec.workloads.clusters[].tenancy, or create the PriorityClasses and label the nodes; for a cluster without " +
		"NetworkPolicies, set tenancy.isolation to None"
)

// confinable looks for what tenancy needs and the physical clusters of the setup do not have, before their Clusters are
// applied.
func confinable(ctx context.Context, s *Subject) (o outcome) {
	var clusters []*api.Cluster
	for _, object := range s.Objects {
		if object.GroupVersionKind() != api.ClusterGVK() {
			continue
		}
		cl, err := api.ClusterOf(object.Unstructured)
		if err != nil {
			o.add(err)
			continue
		}
		if len(s.Only) == 0 || slices.Contains(s.Only, topology.IDOf(topology.Physical, cl.Name)) {
			clusters = append(clusters, cl)
		}
	}
	if len(clusters) == 0 && o.status == "" {
		return skipped("the setup has no physical clusters")
	}
	o.absorb("", s.confines(ctx, clusters))
	return o
}

// confined is confinable for the Clusters that are registered.
func confined(ctx context.Context, c *compute) outcome { return c.confines(ctx, c.clusters) }

// confines checks the clusters. It skips clusters that do not answer, or that the setup does not have: other checks
// name them.
func (s *Subject) confines(ctx context.Context, clusters []*api.Cluster) (o outcome) {
	for i, found := range parallel.Map(atOnce, clusters, func(cl *api.Cluster) (o outcome) {
		at := slices.IndexFunc(s.facts.Physical, func(p Physical) bool { return p.Name == cl.Name })
		if at < 0 {
			return o
		}
		p := s.facts.Physical[at]
		if _, _, ok := p.answers(ctx); ok {
			o = p.confines(ctx, cl)
		}
		return o
	}) {
		o.absorb(string(topology.IDOf(topology.Physical, clusters[i].Name)), found)
	}
	return o
}

// confines looks in a cluster for what its tenancy needs.
func (p *Physical) confines(ctx context.Context, cl *api.Cluster) (o outcome) {
	if cl.Isolation() == api.IsolationWorkspace {
		if _, err := p.Versions(ctx, networkPolicies); err != nil {
			o.fail("tenancy.isolation %s needs NetworkPolicies: %s", api.IsolationWorkspace, reason(ctx, err))
		}
	}
	t := cl.Spec.Tenancy
	if t == nil || p.List == nil {
		return o
	}
	if len(t.PriorityClasses) > 0 {
		o.absorb("", p.lacksPriorityClasses(ctx, t.PriorityClasses))
	}
	if len(t.NodeSelector) > 0 {
		selector := labels.Set(t.NodeSelector).String()
		switch nodes, err := p.List(ctx, kcp.Place{GroupVersionKind: nodeKind}, selector); {
		case err != nil:
			o.absorb("", unread(ctx, "nodes", err))
		case len(nodes) == 0:
			o.warn("no node has the labels %s of tenancy.nodeSelector: pods of workspaces stay Pending", selector)
		}
	}
	return o
}

// lacksPriorityClasses looks for PriorityClasses that pods may name and that do not exist: such pods are refused.
func (p *Physical) lacksPriorityClasses(ctx context.Context, names []string) (o outcome) {
	all, err := p.List(ctx, kcp.Place{GroupVersionKind: priorityClasses}, "")
	if err != nil {
		return unread(ctx, "PriorityClasses", err)
	}
	missing := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return slices.ContainsFunc(all, func(o unstructured.Unstructured) bool { return o.GetName() == name })
	})
	if len(missing) > 0 {
		o.warn("PriorityClasses of tenancy.priorityClasses do not exist: %s: pods that name them are refused",
			strings.Join(missing, ", "))
	}
	return o
}

// unread is the outcome if objects cannot be read. A lack of permissions is not a defect of the setup.
func unread(ctx context.Context, what string, err error) (o outcome) {
	if apierrors.IsForbidden(err) {
		return skipped("the user may not list %s", what)
	}
	o.warn("list %s: %s", what, reason(ctx, err))
	return o
}
