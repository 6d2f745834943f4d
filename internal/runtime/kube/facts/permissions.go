package facts

import (
	"context"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/client/cluster"
	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
)

// permission is something that the user must be allowed to do.
type permission struct {
	verb        string
	group       string
	resource    string
	subresource string
	// namespace is empty for cluster-scoped resources.
	namespace string
	// name restricts it to an object.
	name string
}

func (p permission) String() string {
	out := p.verb + " " + p.resource
	if p.group != "" {
		out += "." + p.group
	}
	if p.subresource != "" {
		out += "/" + p.subresource
	}
	if p.name != "" {
		out += " " + p.name
	}
	if p.namespace != "" {
		out += " in namespace " + p.namespace
	}
	return out
}

// permissionSet collects the permissions for a namespace.
type permissionSet struct {
	namespace string
	all       []permission
}

func (s *permissionSet) add(r schema.GroupResource, verbs ...string) { s.addSub(r, "", verbs...) }

func (s *permissionSet) addSub(r schema.GroupResource, subresource string, verbs ...string) {
	for _, v := range verbs {
		s.all = append(s.all, permission{v, r.Group, r.Resource, subresource, s.namespace, ""})
	}
}

func (s *permissionSet) addForNamespaces(verb string) {
	s.all = append(s.all, permission{verb: verb, resource: kind.Namespace.Resource})
}

// isOf returns a function that reports whether an object is of a kind on a cluster.
func isOf(k kind.Kind) func(render.Object) bool {
	return func(o render.Object) bool { return o.Workspace == "" && o.GroupVersionKind() == k.GroupVersionKind }
}

// addForKinds adds what is needed to apply and to prune objects of their kinds, or of all kinds if there are none.
// Shared objects are never pruned.
func (s *permissionSet) addForKinds(objects []render.Object) {
	for _, k := range slices.Concat(kind.Applied, kind.OnPhysical) {
		used := len(objects) == 0 && !k.Optional || slices.ContainsFunc(objects, isOf(k))
		if !used || k.Kind == kind.Namespace.Kind {
			continue
		}
		at := permissionSet{namespace: s.namespace}
		if k.ClusterScoped {
			at.namespace = ""
		}
		switch r := k.GVR().GroupResource(); {
		case k.Shared:
			at.add(r, "get", "create", "patch")
		case k.HasPods():
			at.add(r, "get", "list", "watch", "create", "patch", "delete")
		default:
			at.add(r, "get", "list", "create", "patch", "delete")
		}
		s.all = append(s.all, at.all...)
	}
}

// MayApply returns an error with all permissions that the user lacks to apply objects on a cluster, or objects of all
// kinds if there are none. With probes, runs also create pods. A dry run would stop at the first permission, and needs
// none to list, watch, delete or forward ports: users get the whole list for their administrator.
func MayApply(ctx context.Context, cl *cluster.Client, objects []render.Object, probes bool) error {
	if err := cl.Connect(ctx); err != nil {
		return err
	}
	ns, err := cl.ReadNamespace(ctx)
	if err != nil {
		return err
	}
	seen := ns != nil && ns.GetName() != ""
	exists := seen || ns != nil && !lacksNamespace(ctx, cl)
	all := toApply(cl.Namespace, objects, exists)
	if probes {
		all = append(all, permission{verb: "create", resource: kind.Pods.Resource, namespace: cl.Namespace})
	}
	return verify(ctx, cl, all, seen)
}

// lacksNamespace reports whether the namespace does not exist, for users who may not read it: it would accept no
// object.
func lacksNamespace(ctx context.Context, cl *cluster.Client) bool {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(kind.ConfigMap.GroupVersionKind)
	o.SetName("kcpctl-dry-run")
	_, err := cl.For(kind.ConfigMap).Create(ctx, o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return apierrors.IsNotFound(err)
}

// toApply are the permissions that a run needs to apply objects, or objects of all kinds if there are none.
func toApply(namespace string, objects []render.Object, namespaceExists bool) []permission {
	s := permissionSet{namespace: namespace}
	if !namespaceExists {
		s.addForNamespaces("create")
	}
	s.addForKinds(objects)
	for _, k := range kind.Applied {
		if !k.ClusterScoped && !k.Optional && len(objects) > 0 && !slices.ContainsFunc(objects, isOf(k)) {
			s.add(k.GVR().GroupResource(), "list")
		}
	}
	// PKI and inventory are updated, not applied.
	s.add(kind.Secret.GVR().GroupResource(), "update")
	s.add(kind.Leases.GroupResource(), "get", "create", "update")
	if slices.ContainsFunc(objects, isOf(kind.PublishedResource)) { // the Lease of an agent is deleted with it
		s.add(kind.Leases.GroupResource(), "list", "delete")
	}
	s.add(kind.ReplicaSets.GroupResource(), "list", "watch")
	s.add(kind.Pods.GroupResource(), "get", "list", "watch", "delete")
	s.addSub(kind.Pods.GroupResource(), "log", "get")
	s.addSub(kind.Pods.GroupResource(), "portforward", "create")
	return s.all
}

// MayRestore returns an error with all permissions that the user lacks to place data in volumes on a cluster. The
// permissions to apply the setup are separate.
func MayRestore(ctx context.Context, cl *cluster.Client) error {
	ns, err := cl.ReadNamespace(ctx)
	if err != nil {
		return err
	}
	return verify(ctx, cl, toRestore(cl.Namespace), ns != nil && ns.GetName() != "")
}

func toRestore(namespace string) []permission {
	s := permissionSet{namespace: namespace}
	s.add(kind.PersistentVolumeClaim.GVR().GroupResource(), "get", "list", "create", "patch")
	s.add(kind.Pods.GroupResource(), "get", "list", "watch", "create", "delete")
	s.addSub(kind.Pods.GroupResource(), "portforward", "create")
	return s.all
}

// Purge lists what a purge deletes on a cluster besides the objects of the setup.
type Purge struct {
	// Lease: the cluster has the Lease of the setup.
	Lease bool
	// Namespace: the setup has created the namespace.
	Namespace bool
}

// MayPurge returns an error with all permissions that the user lacks to delete a setup with its data on a cluster.
func MayPurge(ctx context.Context, cl *cluster.Client, p Purge) error {
	return verify(ctx, cl, toPurge(cl.Namespace, p), true)
}

func toPurge(namespace string, p Purge) []permission {
	s := permissionSet{namespace: namespace}
	for _, k := range kind.Applied {
		if !k.ClusterScoped && !k.Optional {
			s.add(k.GVR().GroupResource(), "get", "list", "delete")
		}
	}
	s.add(kind.Secret.GVR().GroupResource(), "update")
	s.add(kind.Pods.GroupResource(), "get", "list", "delete")
	if p.Lease {
		s.add(kind.Leases.GroupResource(), "get", "create", "update", "delete")
	}
	if p.Namespace {
		s.addForNamespaces("delete")
	}
	return s.all
}

// verify returns an error with all permissions that the user lacks. namespaceExists means that the namespace is known
// to exist.
func verify(ctx context.Context, cl *cluster.Client, all []permission, namespaceExists bool) error {
	granted, err := rules(ctx, cl)
	if err != nil {
		return err
	}
	missing, err := lacking(ctx, cl, all, granted)
	if err != nil || len(missing) == 0 {
		return err
	}
	return notAllowed(cl, missing, hint(cl.Namespace, namespaceExists))
}

func notAllowed(cl *cluster.Client, missing []string, next string) error {
	return clierr.New(clierr.Failed, next, "not allowed (%s):\n  %s", cl.Where(), strings.Join(missing, "\n  "))
}

// lacking returns the permissions that neither some rules nor the API server grants to the user.
func lacking(ctx context.Context, cl *cluster.Client, all []permission, granted []rbacv1.PolicyRule) ([]string, error) {
	lacks := make([]bool, len(all))
	if err := parallel.Each(ctx, parallel.Indices(all), func(ctx context.Context, i int) (err error) {
		if !all[i].grantedBy(granted) {
			lacks[i], err = isDenied(ctx, cl, all[i])
		}
		return err
	}); err != nil {
		return nil, err
	}
	var missing []string
	for i, p := range all {
		if lacks[i] {
			missing = append(missing, p.String())
		}
	}
	return missing, nil
}

// hint is the next step of a user who lacks permissions. Few users may create namespaces, or see that one exists: an
// administrator can do that for them.
func hint(namespace string, exists bool) string {
	if !exists {
		return "ask an administrator of the cluster to create the namespace, if it does not exist (kubectl create namespace " +
			namespace + "), and for the role admin in it, or choose another context"
	}
	return "ask an administrator of the cluster for these permissions " +
		"(the role admin has all those for a namespace), or choose another context"
}

// rules are the permissions that the API server lists for the user. The list may be incomplete.
func rules(ctx context.Context, cl *cluster.Client) ([]rbacv1.PolicyRule, error) {
	var status struct {
		ResourceRules []rbacv1.PolicyRule `json:"resourceRules"` // they have the fields of RBAC rules
	}
	err := review(ctx, cl, "SelfSubjectRulesReview", "selfsubjectrulesreviews",
		map[string]any{"namespace": cl.Namespace}, &status)
	return status.ResourceRules, err
}

// isDenied reports whether the API server denies the user a permission.
func isDenied(ctx context.Context, cl *cluster.Client, p permission) (bool, error) {
	var status struct {
		Allowed bool `json:"allowed"`
	}
	err := review(ctx, cl, "SelfSubjectAccessReview", "selfsubjectaccessreviews",
		map[string]any{"resourceAttributes": map[string]any{
			"verb": p.verb, "group": p.group, "version": "*", "resource": p.resource, "subresource": p.subresource,
			"namespace": p.namespace, "name": p.name,
		}}, &status)
	return !status.Allowed, err
}

// review sends a review and decodes the status of the answer into status. The types of k8s.io/api/authorization would
// make kcpctl larger.
func review(ctx context.Context, cl *cluster.Client, name, resource string, spec map[string]any, status any) error {
	gv := schema.GroupVersion{Group: "authorization.k8s.io", Version: "v1"}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetGroupVersionKind(gv.WithKind(name))
	u, err := cl.Dynamic.Resource(gv.WithResource(resource)).Create(ctx, u, metav1.CreateOptions{})
	if err != nil {
		return cl.Explain(err, "ask for permissions")
	}
	answer, _, err := unstructured.NestedMap(u.Object, "status")
	if err != nil {
		return fmt.Errorf("read %s (%s): %w", name, cl.Where(), err)
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(answer, status)
}

// grantedBy reports whether one of some rules grants a permission.
func (p permission) grantedBy(rules []rbacv1.PolicyRule) bool {
	if p.namespace == "" {
		return false // the rules are for a namespace
	}
	resource := p.resource
	if p.subresource != "" {
		resource += "/" + p.subresource
	}
	has := func(all []string, one string) bool { return slices.Contains(all, one) || slices.Contains(all, "*") }
	return slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool {
		return len(r.ResourceNames) == 0 && has(r.Verbs, p.verb) && has(r.APIGroups, p.group) &&
			has(r.Resources, resource)
	})
}
