package syncer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

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
	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/kit/mergepatch"
	"github.com/kcpctl/kcpctl/internal/kit/poll"
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

// create creates a namespace. A cluster that replaces another one does not have it, so the cluster is identified
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

// tenancy has the template of namespaces, spec.tenancy.objects of the Cluster, and its state in the namespaces. Before
// the Cluster is known there are no leaves to sync.
type tenancy struct {
	*view
	member *member
	// live has the objects in the cluster that were made of the template. They have no labels of leaves: they are no
	// orphans.
	live    *watch.Set
	changed poll.Signal
	// filled has what was written into the namespaces with all objects, by name.
	filled sync.Map
}

type filled struct {
	hash uint64
	// specs are the hashes of the specs that the cluster has returned: it can add defaults.
	specs map[part]uint64
}

type part struct {
	schema.GroupVersionResource
	name string
}

// hashOf returns a hash of a JSON value, never 0.
func hashOf(value any) uint64 {
	h := fnv.New64a()
	_ = json.NewEncoder(h).Encode(value) // in the order of the keys
	return h.Sum64() | 1
}

func (t *tenancy) watch(ctx context.Context) (err error) {
	t.live, err = watch.New(ctx, watch.Options{
		Config: t.Physical, LabelSelector: api.LabelTemplate + "=" + t.Setup, Now: t.Now,
		Keep: append(identity(), []string{"spec"}), State: watch.Logged(ctx),
	})
	return err
}

// see takes the Cluster, and reports whether its tenancy has changed.
func (t *tenancy) see(c *api.Cluster) bool {
	before, known := t.seen()
	t.cluster.Store(c)
	if known && reflect.DeepEqual(before.Spec.Tenancy, c.Spec.Tenancy) {
		return false
	}
	if err := t.live.Update([]string{t.physicalURL()}, api.TemplateResources()); err != nil {
		klog.Background().Error(err, "Cannot watch the objects of spec.tenancy", "cluster", t.Cluster)
	}
	t.changed.Send()
	return true
}

// template returns the objects of namespaces, with their hash, and the objects that a namespace has already.
func (t *tenancy) template(namespace string) (objects []v1alpha1.NamespaceObject, hash uint64, has filled) {
	c, _ := t.seen()
	objects = c.TemplateObjects()
	last, _ := t.filled.Load(namespace)
	has, _ = last.(filled)
	return objects, hashOf(objects), has
}

// prepare writes the objects of the template into the namespace of a leaf, unless it has them. Nothing is written into
// a namespace without them: what confines a workspace is there before its objects.
func (t *tenancy) prepare(ctx context.Context, i item) error {
	namespace := api.DownstreamNamespace(t.Setup, i.Cluster, i.Namespace)
	objects, hash, has := t.template(namespace)
	if len(objects) == 0 || has.hash == hash {
		return nil
	}
	_, err := t.fill(ctx, namespace, i.Cluster)
	return err
}

// fill makes the objects of the template in a namespace what they should be, and returns them with the hashes of their
// specs. It needs a request only for those that are not.
func (t *tenancy) fill(ctx context.Context, namespace, workspace string) (map[part]uint64, error) {
	objects, hash, had := t.template(namespace)
	has := filled{hash, map[part]uint64{}}
	for _, object := range objects {
		o := api.ForWorkspace(object, workspace)
		r, ok := api.TemplateResource(o.GroupVersionKind())
		if !ok {
			return nil, t.notWritten(o, errors.New("the syncer does not write objects of this kind"))
		}
		p := part{r, o.GetName()}
		if live, exists := t.live.Get(r, watch.Key{Namespace: namespace, Name: p.name}); exists {
			is := hashOf(live.Object["spec"])
			if is == hashOf(o.Object["spec"]) || had.hash == hash && is == had.specs[p] {
				has.specs[p] = is
				continue
			}
		}
		written, err := t.write(ctx, p, namespace, o)
		if err != nil {
			t.filled.Delete(namespace)
			return nil, err
		}
		has.specs[p] = hashOf(written.Object["spec"])
	}
	t.filled.Store(namespace, has)
	return has.specs, nil
}

// write applies an object of the template. It fails with a refusal if the cluster does not accept it: what the
// administrator has demanded would not hold. An object of someone else is not touched.
func (t *tenancy) write(ctx context.Context, p part, namespace string,
	o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	live, err := t.read(ctx, p.GroupVersionResource, namespace, p.name)
	switch {
	case apierrors.IsForbidden(err):
		return nil, t.notWritten(o, err)
	case err != nil:
		return nil, err
	case live != nil && live.GetLabels()[api.LabelTemplate] != t.Setup:
		return nil, &refusal{api.ReasonNameCollision, fmt.Sprintf(
			"spec.tenancy.objects of Cluster %s has %s %s for each namespace, and namespace %s has another object "+
				"with the name: delete one of them, or rename it", t.Cluster, o.GetKind(), p.name, namespace)}
	case live != nil:
		o.SetUID(live.GetUID())
	}
	o.SetNamespace(namespace)
	labels := maps.Clone(o.GetLabels())
	if labels == nil {
		labels = map[string]string{}
	}
	labels[api.LabelManagedBy], labels[api.LabelTemplate] = api.ManagerSyncer, t.Setup
	o.SetLabels(labels)
	written, err := t.view.write(ctx, p.GroupVersionResource, o)
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
		return nil, t.notWritten(o, err)
	}
	return written, err
}

// notWritten is the refusal of leaves in a namespace that does not get an object of the template.
func (t *tenancy) notWritten(o *unstructured.Unstructured, err error) error {
	return &refusal{api.ReasonDenied, fmt.Sprintf("%s %s in spec.tenancy.objects of Cluster %s cannot be written: "+
		"ask the administrator to correct it, or to grant it to the syncer with kcpctl up: %v",
		o.GetKind(), o.GetName(), t.Cluster, err)}
}

// fillAll makes the objects of the template in all namespaces what they should be, and removes those that the template
// no longer has. It does nothing before the Cluster is known, and while not all of them are listed.
func (t *tenancy) fillAll(ctx context.Context) {
	if _, known := t.seen(); !known || t.member.blocked() != nil ||
		!t.live.CompleteFor([]string{t.physicalURL()}, api.TemplateResources()) {
		return
	}
	exist := map[string]bool{}
	for _, ns := range t.down.List(namespaces) {
		name, workspace := ns.GetName(), ns.GetLabels()[api.LabelWorkspace]
		if ns.GetDeletionTimestamp() != nil || workspace == "" {
			continue
		}
		exist[name] = true
		wanted, err := t.fill(ctx, name, workspace)
		if err == nil {
			err = t.removeOthers(ctx, name, wanted)
		}
		if err != nil {
			klog.FromContext(ctx).Error(err, "Cannot write the objects of spec.tenancy", "namespace", name)
		}
	}
	t.filled.Range(func(namespace, _ any) bool {
		if name, _ := namespace.(string); !exist[name] {
			t.filled.Delete(name) // one that the watch does not show yet gets its objects once again
		}
		return true
	})
}

// removeOthers deletes the objects of a namespace that were made of a template, and that the template no longer has.
func (t *tenancy) removeOthers(ctx context.Context, namespace string, wanted map[part]uint64) error {
	for _, r := range api.TemplateResources() {
		for _, live := range t.live.In(r, "", namespace) {
			if _, ok := wanted[part{r, live.GetName()}]; ok {
				continue
			}
			if err := t.delete(ctx, r, live.Unstructured); err != nil {
				return err
			}
		}
	}
	return nil
}
