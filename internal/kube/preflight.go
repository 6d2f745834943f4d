package kube

import (
	"context"
	"errors"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/render"
)

// permission is something that the user must be allowed to do.
type permission struct {
	verb        string
	group       string
	resource    string
	subresource string
	// namespace is empty for what concerns the cluster.
	namespace string
}

func (p permission) String() string {
	out := p.verb + " " + p.resource
	if p.group != "" {
		out += "." + p.group
	}
	if p.subresource != "" {
		out += "/" + p.subresource
	}
	if p.namespace != "" {
		out += " in namespace " + p.namespace
	}
	return out
}

// Preflight finds out, before anything is written, whether the user may do all that a run will do, and whether all Secrets
// and ConfigMaps that the objects refer to exist. It returns everything that is missing.
func (r *Runtime) Preflight(ctx context.Context, objects []render.Object) error {
	return r.each(quiet(ctx), func(ctx context.Context, s *site) error {
		here := slices.DeleteFunc(slices.Clone(objects), func(o render.Object) bool { return o.Cluster != s.Name })
		return errors.Join(s.permitted(ctx, here), s.references(ctx, here))
	})
}

// permitted returns an error with all permissions that the user lacks to apply objects of a cluster.
func (s *site) permitted(ctx context.Context, objects []render.Object) error {
	if err := s.connect(ctx); err != nil {
		return err
	}
	ns, err := s.readNamespace(ctx)
	if err != nil {
		return err
	}
	seen := ns != nil && ns.GetName() != ""
	return s.mayDo(ctx, permissions(s.Namespace, objects, seen || ns != nil && !s.lacksNamespace(ctx)), seen)
}

// lacksNamespace tells whether the namespace does not exist, for users who may not read it: it would take no object.
func (s *site) lacksNamespace(ctx context.Context) bool {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(known("ConfigMap").GroupVersionKind)
	o.SetName("kcpctl-dry-run")
	_, err := s.resource(known("ConfigMap").gvr()).Create(ctx, o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return apierrors.IsNotFound(err)
}

// permissions are what a run needs to write some objects, or objects of all kinds if there are none.
func permissions(namespace string, objects []render.Object, namespaceExists bool) []permission {
	var out []permission
	add := func(r schema.GroupResource, subresource string, verbs ...string) {
		for _, v := range verbs {
			out = append(out, permission{v, r.Group, r.Resource, subresource, namespace})
		}
	}
	if !namespaceExists {
		out = append(out, permission{verb: "create", resource: known("Namespace").resource})
	}
	for _, k := range kinds() {
		isKind := func(o render.Object) bool { return o.GroupVersionKind() == k.GroupVersionKind }
		used := len(objects) == 0 || slices.ContainsFunc(objects, isKind)
		switch {
		case k.clusterScoped:
		case used && k.hasPods():
			add(k.gvr().GroupResource(), "", "get", "list", "watch", "create", "patch", "delete")
		case used:
			add(k.gvr().GroupResource(), "", "get", "list", "create", "patch", "delete")
		default:
			add(k.gvr().GroupResource(), "", "list")
		}
	}
	// PKI and inventory are updated, not applied.
	add(known("Secret").gvr().GroupResource(), "", "update")
	add(leases().GroupResource(), "", "get", "create", "update")
	add(replicaSets().GroupResource(), "", "list", "watch")
	add(pods().GroupResource(), "", "get", "list", "watch", "delete")
	add(pods().GroupResource(), "log", "get")
	add(pods().GroupResource(), "portforward", "create")
	return out
}

// PreflightPurge finds out, before anything is deleted, whether the user may do all that Purge does, and may see all that it looks
// at.
func (r *Runtime) PreflightPurge(ctx context.Context) error {
	return r.everywhere(quiet(ctx), func(ctx context.Context, s *site) error {
		ns, err := s.readNamespace(ctx)
		if err != nil || ns == nil {
			return err
		}
		all := purgePermissions(s.Namespace, s == r.home, r.made(ns))
		if err := s.mayDo(ctx, all, true); err != nil || !r.made(ns) {
			return err
		}
		_, err = s.contents(ctx) // of a namespace that the setup made: is it empty?
		return err
	})
}

// purgePermissions are what down and Purge need on a cluster.
func purgePermissions(namespace string, home, made bool) []permission {
	var out []permission
	add := func(r schema.GroupResource, verbs ...string) {
		for _, v := range verbs {
			out = append(out, permission{verb: v, group: r.Group, resource: r.Resource, namespace: namespace})
		}
	}
	for _, k := range kinds() {
		if !k.clusterScoped {
			add(k.gvr().GroupResource(), "get", "list", "delete")
		}
	}
	add(known("Secret").gvr().GroupResource(), "update")
	add(pods().GroupResource(), "list")
	if home {
		add(leases().GroupResource(), "get", "create", "update", "delete")
	}
	if made {
		out = append(out, permission{verb: "delete", resource: known("Namespace").resource})
	}
	return out
}

// mayDo returns an error with all permissions that the user lacks. It is told whether the namespace is known to exist.
func (s *site) mayDo(ctx context.Context, all []permission, exists bool) error {
	rules, err := s.rules(ctx)
	if err != nil {
		return err
	}
	lacks := make([]bool, len(all))
	if err := concurrently(ctx, indices(all), func(ctx context.Context, i int) (err error) {
		if !all[i].grantedBy(rules) {
			lacks[i], err = s.denied(ctx, all[i])
		}
		return err
	}); err != nil {
		return err
	}
	var missing []string
	for i, p := range all {
		if lacks[i] {
			missing = append(missing, p.String())
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return clierr.New(clierr.Failed, s.howToBeAllowed(exists), "not allowed (%s):\n  %s", s.where(), strings.Join(missing, "\n  "))
}

// howToBeAllowed is the next step of a user who lacks permissions. Few may create namespaces, or see whether one exists:
// somebody else can do that.
func (s *site) howToBeAllowed(exists bool) string {
	if !exists {
		return "ask an administrator of the cluster to create the namespace, if it does not exist (kubectl create namespace " +
			s.Namespace + "), and for the role admin in it, or choose another context"
	}
	return "ask an administrator of the cluster for these permissions (the role admin has all that concern a namespace), or choose another context"
}

// rules are what the API server says at once that the user may do. The list need not be complete.
func (s *site) rules(ctx context.Context) ([]authorizationv1.ResourceRule, error) {
	review := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: s.Namespace}}
	if err := s.review(ctx, "SelfSubjectRulesReview", "selfsubjectrulesreviews", review); err != nil {
		return nil, err
	}
	return review.Status.ResourceRules, nil
}

// denied asks for a single permission.
func (s *site) denied(ctx context.Context, p permission) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: p.verb, Group: p.group, Version: "*", Resource: p.resource, Subresource: p.subresource, Namespace: p.namespace,
		},
	}}
	err := s.review(ctx, "SelfSubjectAccessReview", "selfsubjectaccessreviews", review)
	return !review.Status.Allowed, err
}

// review sends a review and reads the answer into it.
func (s *site) review(ctx context.Context, kind, resource string, review any) error {
	o, err := runtime.DefaultUnstructuredConverter.ToUnstructured(review)
	if err != nil {
		return err
	}
	gv := authorizationv1.SchemeGroupVersion
	u := &unstructured.Unstructured{Object: o}
	u.SetGroupVersionKind(gv.WithKind(kind))
	u, err = s.dynamic.Resource(gv.WithResource(resource)).Create(ctx, u, metav1.CreateOptions{})
	if err != nil {
		return s.explain(err, "ask for permissions")
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, review)
}

// grantedBy tells whether one of some rules grants a permission.
func (p permission) grantedBy(rules []authorizationv1.ResourceRule) bool {
	if p.namespace == "" {
		return false // rules of a namespace do not tell
	}
	resource := p.resource
	if p.subresource != "" {
		resource += "/" + p.subresource
	}
	has := func(all []string, one string) bool { return slices.Contains(all, one) || slices.Contains(all, "*") }
	return slices.ContainsFunc(rules, func(r authorizationv1.ResourceRule) bool {
		return len(r.ResourceNames) == 0 && has(r.Verbs, p.verb) && has(r.APIGroups, p.group) && has(r.Resources, resource)
	})
}
