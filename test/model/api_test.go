package model_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/kcpctl/kcpctl/internal/desired/plan"
)

// key identifies an object in a cluster.
type key struct{ resource, namespace, name string }

func (k key) String() string { return k.resource + " " + k.namespace + "/" + k.name }

// cluster is an API server with its objects.
type cluster struct {
	name    string
	uid     types.UID
	objects map[key]*unstructured.Unstructured
	// gone has the times at which volumes in deletion disappear, by their UIDs.
	gone map[types.UID]time.Time
}

// The resources with their own rules in the model.
const (
	namespaces   = "namespaces"
	secrets      = "secrets"
	configMaps   = "configmaps"
	claims       = "persistentvolumeclaims"
	statefulSets = "statefulsets"
	deployments  = "deployments"
	leases       = "leases"
)

// api is the dynamic client of a command for a cluster.
type api struct {
	dynamic.Interface
	s *command
	c *cluster
}

func (a api) Resource(r schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return resourceAPI{s: a.s, c: a.c, gvr: r}
}

// resourceAPI is the client for a kind of object. Methods that kcpctl does not call panic.
type resourceAPI struct {
	dynamic.NamespaceableResourceInterface
	s         *command
	c         *cluster
	gvr       schema.GroupVersionResource
	namespace string
}

func (r resourceAPI) Namespace(n string) dynamic.ResourceInterface {
	r.namespace = n
	return r
}

func (r resourceAPI) key(name string) key { return key{r.gvr.Resource, r.namespace, name} }

func (r resourceAPI) notFound(name string) error {
	return apierrors.NewNotFound(r.gvr.GroupResource(), name)
}

func (r resourceAPI) conflict(name, why string) error {
	return apierrors.NewConflict(r.gvr.GroupResource(), name, fmt.Errorf("%s", why))
}

func (r resourceAPI) Get(ctx context.Context, name string, _ metav1.GetOptions, _ ...string) (*unstructured.Unstructured, error) {
	if err := r.s.read(ctx, r.c); err != nil {
		return nil, err
	}
	w := r.s.world
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pass(r.c)
	o := r.c.objects[r.key(name)]
	if o == nil {
		return nil, r.notFound(name)
	}
	return o.DeepCopy(), nil
}

func (r resourceAPI) List(ctx context.Context, opts metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	if err := r.s.read(ctx, r.c); err != nil {
		return nil, err
	}
	selector, err := labels.Parse(opts.LabelSelector)
	if err != nil {
		return nil, err
	}
	kind := strings.TrimPrefix(opts.FieldSelector, "type=")
	w := r.s.world
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pass(r.c)
	out := &unstructured.UnstructuredList{}
	for _, k := range r.c.sorted(r.gvr.Resource, r.namespace) {
		o := r.c.objects[k]
		if have, _, _ := unstructured.NestedString(o.Object, "type"); kind != "" && have != kind {
			continue
		}
		if selector.Matches(labels.Set(o.GetLabels())) {
			out.Items = append(out.Items, *o.DeepCopy())
		}
	}
	return out, nil
}

// sorted returns the keys of the objects of a kind, in one namespace or in all.
func (c *cluster) sorted(resource, namespace string) []key {
	var out []key
	for k := range c.objects {
		if k.resource == resource && (namespace == "" || k.namespace == namespace) {
			out = append(out, k)
		}
	}
	slices.SortFunc(out, func(a, b key) int { return strings.Compare(a.String(), b.String()) })
	return out
}

func (r resourceAPI) Create(ctx context.Context, o *unstructured.Unstructured, opts metav1.CreateOptions, _ ...string) (*unstructured.Unstructured, error) {
	return r.write(ctx, "create", o.GetName(), len(opts.DryRun) > 0, func(live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		if live != nil {
			return nil, apierrors.NewAlreadyExists(r.gvr.GroupResource(), o.GetName())
		}
		return o.DeepCopy(), nil
	})
}

func (r resourceAPI) Update(ctx context.Context, o *unstructured.Unstructured, _ metav1.UpdateOptions, _ ...string) (*unstructured.Unstructured, error) {
	return r.write(ctx, "update", o.GetName(), false, func(live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		switch {
		case live == nil:
			return nil, r.notFound(o.GetName())
		case live.GetResourceVersion() != o.GetResourceVersion() || live.GetUID() != o.GetUID():
			return nil, r.conflict(o.GetName(), "the object has been modified")
		}
		return o.DeepCopy(), nil
	})
}

// Apply is server-side apply with one field manager: fields that are no longer sent are removed. Only annotations of a
// namespace have another manager.
func (r resourceAPI) Apply(ctx context.Context, name string, o *unstructured.Unstructured, opts metav1.ApplyOptions, _ ...string) (*unstructured.Unstructured, error) {
	return r.write(ctx, "apply", name, len(opts.DryRun) > 0, func(live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		out := o.DeepCopy()
		if live != nil && r.gvr.Resource == namespaces {
			all := map[string]string{}
			maps.Copy(all, live.GetAnnotations())
			maps.Copy(all, o.GetAnnotations())
			if len(all) > 0 {
				out.SetAnnotations(all)
			}
		}
		return out, nil
	})
}

// write changes an object, unless it is a dry run.
func (r resourceAPI) write(ctx context.Context, verb, name string, dry bool, change func(live *unstructured.Unstructured) (*unstructured.Unstructured, error),
) (*unstructured.Unstructured, error) {
	do := func() (*unstructured.Unstructured, error) {
		w := r.s.world
		w.mu.Lock()
		defer w.mu.Unlock()
		w.pass(r.c)
		if r.namespace != "" && r.c.objects[key{namespaces, "", r.namespace}] == nil {
			return nil, apierrors.NewNotFound(schema.GroupResource{Resource: namespaces}, r.namespace)
		}
		k := r.key(name)
		live := r.c.objects[k]
		out, err := change(live)
		if err != nil {
			return nil, err
		}
		w.stamp(k, out, live)
		if dry {
			return out, nil
		}
		if live != nil && plan.Same(live, out) {
			return live.DeepCopy(), nil
		}
		out.SetResourceVersion(w.next())
		w.written(r.s, r.c, k, verb, live, out)
		r.c.objects[k] = out
		w.moved(k)
		return out.DeepCopy(), nil
	}
	if dry {
		if err := r.s.read(ctx, r.c); err != nil {
			return nil, err
		}
		return do()
	}
	var out *unstructured.Unstructured
	err := r.s.write(ctx, r.c, op{verb, r.key(name)}, func() (err error) {
		out, err = do()
		return err
	})
	return out, err
}

// stamp sets the metadata that the API server manages.
func (w *world) stamp(k key, o, live *unstructured.Unstructured) {
	if k.namespace != "" {
		o.SetNamespace(k.namespace)
	}
	if live == nil {
		o.SetUID(types.UID("uid-" + w.next()))
		o.SetCreationTimestamp(metav1.NewTime(time.Now()))
		o.SetResourceVersion("0")
		o.SetGeneration(1)
		return
	}
	o.SetUID(live.GetUID())
	o.SetCreationTimestamp(live.GetCreationTimestamp())
	o.SetDeletionTimestamp(live.GetDeletionTimestamp())
	o.SetFinalizers(live.GetFinalizers())
	o.SetResourceVersion(live.GetResourceVersion())
	o.SetGeneration(live.GetGeneration() + 1)
}

func (w *world) next() string {
	w.version++
	return strconv.FormatInt(w.version, 10)
}

func (r resourceAPI) Delete(ctx context.Context, name string, opts metav1.DeleteOptions, _ ...string) error {
	return r.s.write(ctx, r.c, op{"delete", r.key(name)}, func() error {
		w := r.s.world
		w.mu.Lock()
		defer w.mu.Unlock()
		w.pass(r.c)
		k := r.key(name)
		live := r.c.objects[k]
		if live == nil {
			return r.notFound(name)
		}
		if p := opts.Preconditions; p != nil {
			if p.UID != nil && *p.UID != live.GetUID() {
				return r.conflict(name, "the UID in the precondition is another one")
			}
			if p.ResourceVersion != nil && *p.ResourceVersion != live.GetResourceVersion() {
				return r.conflict(name, "the resourceVersion in the precondition is another one")
			}
		}
		if live.GetDeletionTimestamp() != nil {
			return nil
		}
		w.written(r.s, r.c, k, "delete", live, nil)
		if k.resource == claims {
			w.condemn(r.c, live, time.Now().Add(w.slowVolumes))
			w.pass(r.c)
			return nil
		}
		delete(r.c.objects, k)
		if k.resource == namespaces {
			for other := range r.c.objects {
				if other.namespace == name {
					delete(r.c.objects, other)
				}
			}
		}
		w.moved(k)
		return nil
	})
}

// condemn marks a volume as being deleted, until a time and its last use.
func (w *world) condemn(c *cluster, claim *unstructured.Unstructured, until time.Time) {
	now := metav1.NewTime(time.Now())
	claim.SetDeletionTimestamp(&now)
	claim.SetFinalizers([]string{"kubernetes.io/pvc-protection"})
	claim.SetResourceVersion(w.next())
	c.gone[claim.GetUID()] = until
}

// moved lets the world react to a write. Only workloads and their pods depend on it.
func (w *world) moved(k key) {
	if slices.Contains([]string{namespaces, claims, statefulSets, deployments}, k.resource) {
		w.settle()
	}
}

// pass removes volumes whose deletion is due. Volumes in use stay.
func (w *world) pass(c *cluster) {
	for k, o := range c.objects {
		if k.resource != claims || o.GetDeletionTimestamp() == nil || time.Now().Before(c.gone[o.GetUID()]) || c.used(k) {
			continue
		}
		delete(c.objects, k)
		delete(w.volumes, o.GetUID())
	}
}

// used reports whether a workload uses a volume.
func (c *cluster) used(claim key) bool {
	for k, o := range c.objects {
		if k.namespace != claim.namespace {
			continue
		}
		switch k.resource {
		case statefulSets:
			for i := range replicasOf(o) {
				if claimOf(o, i) == claim.name {
					return true
				}
			}
		case deployments:
			if at := sourceOf(o); at.claim == claim.name && at.claim != "" {
				return true
			}
		}
	}
	return false
}

// discovery serves the namespaced kinds of objects. It is the only request besides those of the dynamic client.
type discovery struct {
	s *command
	c *cluster
}

func (d discovery) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := d.s.read(r.Context(), d.c); err != nil {
		return nil, err
	}
	list := apidiscovery.APIGroupDiscoveryList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList"}}
	for group, resources := range map[string][]string{
		"": {secrets, configMaps, "services", claims}, "apps": {statefulSets, deployments}, "coordination.k8s.io": {leases},
	} {
		if strings.HasSuffix(r.URL.Path, "/api") != (group == "") {
			continue
		}
		v := apidiscovery.APIVersionDiscovery{Version: "v1"}
		for _, name := range resources {
			v.Resources = append(v.Resources, apidiscovery.APIResourceDiscovery{
				Resource: name, Scope: apidiscovery.ScopeNamespace, Verbs: []string{"list"},
			})
		}
		list.Items = append(list.Items, apidiscovery.APIGroupDiscovery{
			ObjectMeta: metav1.ObjectMeta{Name: group}, Versions: []apidiscovery.APIVersionDiscovery{v},
		})
	}
	raw, err := json.Marshal(list)
	if err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
		Body: io.NopCloser(strings.NewReader(string(raw))),
	}, nil
}
