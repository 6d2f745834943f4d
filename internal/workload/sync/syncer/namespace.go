package syncer

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"

	"github.com/kcpctl/kcpctl/internal/api/kinds"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/kit/mergepatch"
	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

// hasPrefix is the prefix of annotations of namespaces in a physical cluster: one for each resource of which the
// namespace has had an object. A namespace is removed only if the syncer looks at all of them: an API that is no longer
// synced does not make its objects unknown, also after a restart.
const hasPrefix = "has." + api.Group + "/"

func hasKey(gr schema.GroupResource) string {
	name := gr.String()
	if len(name) > validation.DNS1123LabelMaxLength {
		name = api.Hash(12, name)
	}
	return hasPrefix + name
}

// claims is the resource of PersistentVolumeClaims. Those that a StatefulSet has created are not deleted with it, as in
// Kubernetes, because they have its data.
var claims = corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims")

// namespacer makes and removes the namespaces of workspaces in the physical cluster, and keeps their labels.
type namespacer struct {
	*view
	member  *member
	tenancy *tenancy
}

// mostByItself is more than the number of objects of a resource that a namespace has by itself.
const mostByItself = 50

// remove deletes the namespace of a leaf whose end is certain, and whose object is gone, if that was the last one. If
// two leaves end at the same time, the later one sees that both objects are gone. A namespace with an orphan, or with
// anything of another client, is kept, and sweep counts it.
func (n *namespacer) remove(ctx context.Context, i item) error {
	name, resources := api.DownstreamNamespace(n.Setup, i.Cluster, i.Namespace), n.synced()
	ns, ok := n.down.Get(namespaces, watch.Key{Name: name})
	if !ok || ns.GetDeletionTimestamp() != nil || !removable(ns.Unstructured, resources) {
		return nil
	}
	for _, r := range n.apis() {
		for _, leaf := range n.up.In(r, i.Cluster, i.Namespace) {
			if leaf.GetDeletionTimestamp() == nil {
				return nil
			}
		}
	}
	// Most often, it has another object of the same resource.
	for _, r := range slices.Concat([]schema.GroupVersionResource{i.GroupVersionResource}, resources,
		[]schema.GroupVersionResource{claims}) {
		if empty, err := n.hasNone(ctx, r, name); err != nil || !empty {
			return err
		}
	}
	return n.delete(ctx, namespaces, ns.Unstructured)
}

// hasNone reports whether a namespace has no objects of a resource but those that it has by itself, that have a
// controller, or that the syncer has put into each namespace. If it may not list them, the namespace can have some.
func (n *namespacer) hasNone(ctx context.Context, r schema.GroupVersionResource, namespace string) (bool, error) {
	client, err := n.below(r, namespace)
	if err != nil {
		return false, err
	}
	list, err := client.List(ctx, metav1.ListOptions{Limit: mostByItself})
	switch {
	case apierrors.IsForbidden(err):
		return false, nil
	case apierrors.IsNotFound(err):
		return true, nil // the cluster does not serve it
	case err != nil:
		return false, fmt.Errorf("list the %s in namespace %s of cluster %s: %w", r.GroupResource(), namespace,
			n.Cluster, err)
	}
	return list.GetContinue() == "" && !slices.ContainsFunc(list.Items, func(o unstructured.Unstructured) bool {
		return !kinds.IsEverywhere(r.GroupResource(), o.GetName()) && metav1.GetControllerOf(&o) == nil &&
			o.GetLabels()[api.LabelManagedBy] != api.ManagerSyncer
	}), nil
}

// ensure creates the namespace that stands for a namespace of a logical cluster, and records that it has objects of a
// resource. It fails with a refusal if there is a namespace with the name that stands for something else: nothing is
// written to it.
func (n *namespacer) ensure(ctx context.Context, i item) error {
	want := api.DownstreamLabels(n.Setup, i.Cluster, i.Namespace)
	ns := api.DownstreamNamespace(n.Setup, i.Cluster, i.Namespace)
	if known, ok := n.down.Get(namespaces, watch.Key{Name: ns}); ok && known.GetDeletionTimestamp() == nil &&
		has(known, want) {
		if _, recorded := known.GetAnnotations()[hasKey(i.GroupResource())]; recorded {
			return nil
		}
	}
	client, err := n.below(namespaces, "")
	if err != nil {
		return err
	}
	live, err := client.Get(ctx, ns, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		err = n.create(ctx, client, ns, want, i)
	case err != nil:
	case !has(live, want):
		return &refusal{api.ReasonNamespaceCollision, fmt.Sprintf(
			"namespace %s of cluster %s does not belong to namespace %s of workspace %s: delete it, or rename the "+
				"namespace in the workspace", ns, n.Cluster, i.Namespace, i.Cluster)}
	case live.GetDeletionTimestamp() != nil:
		// changedNamespace tries again when it is gone.
		return &refusal{api.ReasonNamespaceTerminating, fmt.Sprintf(
			"namespace %s of cluster %s is being deleted: if that does not end, see the conditions of the "+
				"namespace there", ns, n.Cluster)}
	default:
		err = n.record(ctx, client, live, i)
	}
	if err != nil {
		return fmt.Errorf("namespace %s of cluster %s: %w", ns, n.Cluster, err)
	}
	return nil
}

// create creates a namespace. No namespace exists in a cluster that replaces another one, so the cluster is identified
// before.
func (n *namespacer) create(ctx context.Context, client dynamic.ResourceInterface, name string,
	want map[string]string, i item) error {
	cl, _ := n.seen()
	if err := n.Identity.Confirm(ctx, &cl); err != nil {
		return err
	}
	// The bindings of the workspace may not be known yet: its objects are looked for before the first one is written.
	if err := n.member.examineOthers(ctx, client, i.Cluster); err != nil {
		return err
	}
	if err := n.member.blocked(); err != nil {
		return &refusal{api.ReasonOtherSetup, err.Error()}
	}
	n.tenancy.filled.Delete(name) // a previous namespace of the name had others
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	u.SetName(name)
	want[api.LabelCluster], want[api.LabelPodSecurity] = n.Cluster, string(cl.PodSecurity())
	u.SetLabels(want)
	u.SetAnnotations(map[string]string{hasKey(i.GroupResource()): "true"})
	_, err := client.Create(ctx, u, metav1.CreateOptions{FieldManager: api.ManagerSyncer})
	if apierrors.IsAlreadyExists(err) {
		return n.ensure(ctx, i) // another worker was faster
	}
	return err
}

func (n *namespacer) record(ctx context.Context, client dynamic.ResourceInterface,
	live *unstructured.Unstructured, i item) error {
	key := hasKey(i.GroupResource())
	if _, ok := live.GetAnnotations()[key]; ok {
		return nil
	}
	return mark(ctx, client, live, "annotations", map[string]string{key: "true"})
}

// secure sets the level of the Cluster in namespaces that have another one: it has changed, or someone has changed a
// namespace. Running pods continue to run. It also sets the name of the Cluster, which can have another one since it
// was registered again.
func (n *namespacer) secure(ctx context.Context) {
	c, seen := n.seen()
	if !seen || n.member.blocked() != nil {
		return
	}
	want := map[string]string{api.LabelPodSecurity: string(c.PodSecurity()), api.LabelCluster: n.Cluster}
	for _, ns := range n.down.List(namespaces) {
		if has(ns, want) || ns.GetDeletionTimestamp() != nil {
			continue
		}
		client, err := n.below(namespaces, "")
		if err == nil {
			err = mark(ctx, client, ns.Unstructured, "labels", want)
		}
		if err != nil && !apierrors.IsNotFound(err) {
			klog.FromContext(ctx).Error(err, "Cannot label a namespace", "namespace", ns.GetName(), "labels", want)
		}
	}
}

// removable reports whether a namespace has had only objects of resources that are synced. It is not if that was never
// recorded.
func removable(ns *unstructured.Unstructured, resources []schema.GroupVersionResource) bool {
	synced := map[string]bool{}
	for _, r := range resources {
		synced[hasKey(r.GroupResource())] = true
	}
	recorded := false
	for key := range ns.GetAnnotations() {
		if !strings.HasPrefix(key, hasPrefix) {
			continue
		}
		if recorded = true; !synced[key] {
			return false
		}
	}
	return recorded
}

// mark sets labels or annotations of an object, if it still is the one that was seen.
func mark(ctx context.Context, client dynamic.ResourceInterface, live *unstructured.Unstructured, where string,
	values map[string]string) error {
	_, err := mergepatch.Send(ctx, client, api.ManagerSyncer, live.GetName(), live.GetUID(),
		map[string]any{"metadata": map[string]any{where: values}})
	return err
}

func has(o metav1.Object, want map[string]string) bool {
	return labels.SelectorFromSet(want).Matches(labels.Set(o.GetLabels()))
}
