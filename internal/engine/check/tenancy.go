package check

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
)

// The kinds of objects that rules for pods need.
var (
	podPolicies     = schema.GroupKind{Group: "admissionregistration.k8s.io", Kind: "ValidatingAdmissionPolicy"}
	priorityClasses = schema.GroupVersionKind{Group: "scheduling.k8s.io", Version: "v1", Kind: "PriorityClass"}
	nodeKind        = schema.GroupVersionKind{Version: "v1", Kind: "Node"}
)

// enforceable looks for what the rules for pods of workspaces need and physical clusters do not have. It skips clusters
// that do not answer: another check names them.
func enforceable(ctx context.Context, s *Subject) (o outcome) {
	ruled := slices.DeleteFunc(s.Topology.OfKind(topology.Physical), func(c *topology.Component) bool {
		t := c.Physical.Tenancy
		return t == nil || t.Pods == nil || len(s.Only) > 0 && !slices.Contains(s.Only, c.ID())
	})
	if len(ruled) == 0 {
		return skipped("the setup has no rules for pods in physical clusters")
	}
	for i, found := range parallel.Map(atOnce, ruled, func(c *topology.Component) (o outcome) {
		at := slices.IndexFunc(s.facts.Physical, func(p Physical) bool { return p.Name == c.Name })
		if at < 0 {
			return o
		}
		p := s.facts.Physical[at]
		if _, _, ok := p.answers(ctx); ok {
			o = p.enforces(ctx, c.Physical.Tenancy.Pods)
		}
		return o
	}) {
		o.absorb(string(ruled[i].ID()), found)
	}
	return o
}

// enforces looks in a cluster for what rules for pods need.
func (p *Physical) enforces(ctx context.Context, r *v1alpha1.PodRules) (o outcome) {
	switch versions, err := p.Versions(ctx, podPolicies); {
	case err != nil:
		o.fail("tenancy.pods needs ValidatingAdmissionPolicies: %s", reason(ctx, err))
	case !slices.Contains(versions, "v1"):
		o.fail("tenancy.pods needs ValidatingAdmissionPolicies in version v1, and the API server has %s",
			fmt.Sprint(versions))
	}
	if p.List == nil {
		return o
	}
	o.absorb("", p.fitPriorityClasses(ctx, r.PriorityClasses))
	if len(r.NodeSelector) > 0 {
		selector := labels.Set(r.NodeSelector).String()
		switch nodes, err := p.List(ctx, plan.Ref{GroupVersionKind: nodeKind}, selector); {
		case err != nil:
			o.absorb("", unread(ctx, "nodes", err))
		case len(nodes) == 0:
			o.warn("no node has the labels %s of tenancy.pods.nodeSelector: pods of workspaces stay Pending", selector)
		}
	}
	return o
}

// fitPriorityClasses compares the PriorityClasses that pods may have with the PriorityClasses of the cluster. Pods with
// one that does not exist are refused. All pods without one have the default of the cluster.
func (p *Physical) fitPriorityClasses(ctx context.Context, names []string) (o outcome) {
	all, err := p.List(ctx, plan.Ref{GroupVersionKind: priorityClasses}, "")
	if err != nil {
		return unread(ctx, "PriorityClasses", err)
	}
	missing := slices.Clone(names)
	for _, class := range all {
		missing = slices.DeleteFunc(missing, func(name string) bool { return name == class.GetName() })
		isDefault, _, _ := unstructured.NestedBool(class.Object, "globalDefault")
		if isDefault && !slices.Contains(names, class.GetName()) {
			o.fail("all pods have the PriorityClass %s, the default of the cluster, and tenancy.pods.priorityClasses "+
				"does not have it: all pods of workspaces would be refused", class.GetName())
		}
	}
	if len(missing) > 0 {
		o.warn("PriorityClasses of tenancy.pods.priorityClasses do not exist: %s: pods that name them are refused",
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
