package syncer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"reflect"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/kit/poll"
	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

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
