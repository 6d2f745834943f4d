package check

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/render"
)

// fresh returns the objects of a cluster that were not applied yet.
func (s *Subject) fresh(ctx context.Context, c Cluster) ([]render.Object, error) {
	items, err := s.Runtime.Objects(ctx)
	if err != nil {
		return nil, err
	}
	applied := map[plan.Ref]bool{}
	for _, it := range items {
		applied[it.Ref] = true
	}
	return slices.DeleteFunc(s.on(c), func(o render.Object) bool { return applied[o.Ref()] }), nil
}

// existing is what quotas count already, although the objects that it is for are new: down keeps volumes, and a
// StatefulSet that is deleted with --cascade=orphan keeps its pods.
type existing struct {
	// claims are the names of the volume claims, and pods the labels of the pods that have not ended.
	claims map[string]bool
	pods   []labels.Set
}

// existing returns the volume claims and the pods of a cluster.
func (s *Subject) existing(ctx context.Context, c Cluster) (out existing, err error) {
	claims, pods, err := c.Running(ctx)
	out.claims = map[string]bool{}
	for _, name := range claims {
		out.claims[name] = true
	}
	for _, all := range pods {
		out.pods = append(out.pods, all)
	}
	return out, err
}

// podsOf returns the number of pods that exist for a workload.
func (e existing) podsOf(o *unstructured.Unstructured) int64 {
	match, _, _ := unstructured.NestedStringMap(o.Object, "spec", "selector", "matchLabels")
	if len(match) == 0 {
		return 0
	}
	n, selector := int64(0), labels.SelectorFromSet(match)
	for _, pod := range e.pods {
		if selector.Matches(pod) {
			n++
		}
	}
	return n
}

// quota compares the needs of new objects with what every quota has left. A dry run counts each object alone, and no
// pods of a workload: users with a quota would get a part of the setup, whose other pods never start.
func quota(ctx context.Context, s *Subject, c Cluster) (o outcome) {
	quotas, err := c.Quotas(ctx)
	if err != nil {
		return fromError(err)
	}
	if len(quotas) == 0 {
		return skipped("the namespace has no quota")
	}
	fresh, err := s.fresh(ctx, c)
	if err != nil {
		return fromError(err)
	}
	there, err := s.existing(ctx, c)
	if err != nil {
		return fromError(err)
	}
	need := usage{}
	for _, obj := range fresh {
		if err := need.add(obj.Unstructured, there); err != nil {
			o.add(err)
		}
	}
	for _, q := range quotas {
		if len(q.Spec.Scopes) > 0 || q.Spec.ScopeSelector != nil {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(q.Status.Hard)) {
			want, free := need[name], q.Status.Hard[name].DeepCopy()
			free.Sub(q.Status.Used[name])
			if !want.IsZero() && want.Cmp(free) > 0 { // a quota below its use only forbids more
				hard := q.Status.Hard[name]
				o.fail("ResourceQuota/%s: the setup needs %s more of %s, but only %s of %s are left",
					q.Name, want.String(), name, free.String(), hard.String())
			}
		}
	}
	return o
}

// usage is how much of a quota objects use.
type usage corev1.ResourceList

func (u usage) use(name corev1.ResourceName, q resource.Quantity) {
	sum := u[name]
	sum.Add(q)
	u[name] = sum
}

func (u usage) count(name string, n int64) {
	u.use(corev1.ResourceName(name), *resource.NewQuantity(n, resource.DecimalSI))
}

// countedAlone are the kinds that have another name in quotas, besides count/<resource>.
var countedAlone = map[string]string{
	"ConfigMap": "configmaps", "Secret": "secrets", "Service": "services",
	"PersistentVolumeClaim": "persistentvolumeclaims",
}

// add adds the usage of an object, with the pods and volumes that are created from it and do not exist.
func (u usage) add(o *unstructured.Unstructured, there existing) error {
	gvk := o.GroupVersionKind()
	if isClaim(o) && there.claims[o.GetName()] {
		return nil
	}
	resourceName := strings.ToLower(gvk.Kind) + "s"
	if gvk.Group != "" {
		resourceName += "." + gvk.Group
	}
	u.count("count/"+resourceName, 1)
	if name := countedAlone[gvk.Kind]; name != "" {
		u.count(name, 1)
	}
	if gvk.Kind == "Service" {
		kind, _, _ := unstructured.NestedString(o.Object, "spec", "type")
		ports, _, _ := unstructured.NestedSlice(o.Object, "spec", "ports")
		if kind == string(corev1.ServiceTypeLoadBalancer) {
			u.count("services.loadbalancers", 1)
		}
		if kind == string(corev1.ServiceTypeLoadBalancer) || kind == string(corev1.ServiceTypeNodePort) {
			u.count("services.nodeports", int64(len(ports)))
		}
	}
	return u.pods(o, there)
}

// pods adds the pods and volumes of a workload.
func (u usage) pods(o *unstructured.Unstructured, there existing) error {
	replicas := int64(1)
	raw, ok, _ := unstructured.NestedMap(o.Object, "spec", "template", "spec")
	if ok {
		if n, found, _ := unstructured.NestedInt64(o.Object, "spec", "replicas"); found {
			replicas = n
		}
		var spec corev1.PodSpec
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw, &spec); err != nil {
			return err
		}
		for range replicas - there.podsOf(o) {
			u.pod(spec)
		}
	}
	for _, claim := range claimsOf(o) {
		size, _, _ := unstructured.NestedString(claim, "spec", "resources", "requests", "storage")
		q, err := resource.ParseQuantity(size)
		if err != nil {
			return err
		}
		template, _, _ := unstructured.NestedString(claim, "metadata", "name")
		for i := range replicas {
			if !isClaim(o) && there.claims[fmt.Sprintf("%s-%s-%d", template, o.GetName(), i)] {
				continue
			}
			u.use(corev1.ResourceRequestsStorage, q)
			if !isClaim(o) {
				u.count("persistentvolumeclaims", 1)
				u.count("count/persistentvolumeclaims", 1)
			}
		}
	}
	return nil
}

func (u usage) pod(spec corev1.PodSpec) {
	u.count("pods", 1)
	u.count("count/pods", 1)
	for _, c := range spec.Containers {
		for name, q := range c.Resources.Requests {
			u.use("requests."+name, q)
			u.use(name, q)
		}
		for name, q := range c.Resources.Limits {
			u.use("limits."+name, q)
		}
	}
}

func isClaim(o *unstructured.Unstructured) bool { return o.GetKind() == "PersistentVolumeClaim" }

// claimsOf returns the PersistentVolumeClaims that are created from an object, or the object itself if it is one.
func claimsOf(o *unstructured.Unstructured) []map[string]any {
	if isClaim(o) {
		return []map[string]any{o.Object}
	}
	templates, _, _ := unstructured.NestedSlice(o.Object, "spec", "volumeClaimTemplates")
	var out []map[string]any
	for _, t := range templates {
		if m, ok := t.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}
