package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"

	"github.com/kcpctl/kcpctl/internal/check"
	"github.com/kcpctl/kcpctl/internal/render"
)

var _ check.Clustered = (*Runtime)(nil)

// Clusters are the clusters of the setup as checks see them.
func (r *Runtime) Clusters() []check.Cluster {
	var out []check.Cluster
	for _, s := range r.sites {
		f := &facts{site: s, runtime: r}
		f.greet = sync.OnceValue(f.hello)
		out = append(out, f)
	}
	return out
}

// facts is what checks ask of a cluster.
type facts struct {
	site    *site
	runtime *Runtime
	// greet asks the API server once, however many checks want to know.
	greet func() greeting
}

// greeting is how an API server answers.
type greeting struct {
	version string
	ahead   time.Duration
	err     error
}

// Name is the cluster's name in the setup.
func (f *facts) Name() string { return f.site.Name }

// Hello says which Kubernetes it is, and how far its clock is ahead of ours.
func (f *facts) Hello(ctx context.Context) (string, time.Duration, error) {
	if err := f.site.connect(quiet(ctx)); err != nil {
		return "", 0, err
	}
	g := f.greet()
	return g.version, g.ahead, g.err
}

// hello reads /version, which every user may, and the clock from the answer's header.
func (f *facts) hello() greeting {
	ctx, cancel := context.WithTimeoutCause(f.runtime.background, connectTimeout, errTimeout)
	defer cancel()
	g, err := again(ctx, retry{persistence, isTransient, f.site.trouble}, func() (greeting, error) { return f.version(ctx) })
	g.err = f.site.explain(err, "ask for the version")
	return g
}

func (f *facts) version(ctx context.Context) (greeting, error) {
	before := f.runtime.options.Now()
	resp, err := f.site.ask(ctx, "/version", nil, nil)
	if err != nil {
		return greeting{}, err
	}
	defer resp.Body.Close()
	after := f.runtime.options.Now()
	var info version.Info
	if err := json.NewDecoder(resp.Body).Decode(&info); err != nil {
		return greeting{}, fmt.Errorf("read /version: %w", err)
	}
	g := greeting{version: info.GitVersion}
	if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		// The header has whole seconds: half a second is the error that is expected.
		g.ahead = date.Add(time.Second / 2).Sub(before.Add(after.Sub(before) / 2))
	}
	return g, nil
}

// MayApply returns an error with all permissions that the user lacks to apply objects.
func (f *facts) MayApply(ctx context.Context, objects []render.Object) error {
	return f.site.permitted(quiet(ctx), objects)
}

// References returns an error with all objects that do not exist and that others refer to.
func (f *facts) References(ctx context.Context, objects []render.Object) error {
	ctx = quiet(ctx)
	if err := f.site.connect(ctx); err != nil {
		return err
	}
	return f.site.references(ctx, objects)
}

// StorageClasses are the names of the storage classes; those that are the default come first.
func (f *facts) StorageClasses(ctx context.Context) ([]string, int, error) {
	all, err := listAs[storagev1.StorageClass](quiet(ctx), f.site, storageClasses(), "")
	if err != nil {
		return nil, 0, err
	}
	var defaults, others []string
	for _, c := range all {
		if c.Annotations["storageclass.kubernetes.io/is-default-class"] == "true" {
			defaults = append(defaults, c.Name)
			continue
		}
		others = append(others, c.Name)
	}
	slices.Sort(defaults)
	slices.Sort(others)
	return slices.Concat(defaults, others), len(defaults), nil
}

// Quotas are the quotas of the namespace.
func (f *facts) Quotas(ctx context.Context) ([]corev1.ResourceQuota, error) {
	return listAs[corev1.ResourceQuota](quiet(ctx), f.site, quotas(), f.site.Namespace)
}

// Architectures counts the nodes by architecture.
func (f *facts) Architectures(ctx context.Context) (map[string]int, error) {
	nodes, err := listAs[corev1.Node](quiet(ctx), f.site, nodes(), "")
	if err != nil {
		return nil, err
	}
	out := map[string]int{}
	for _, n := range nodes {
		out[n.Status.NodeInfo.Architecture]++
	}
	maps.DeleteFunc(out, func(arch string, _ int) bool { return arch == "" }) // not reported yet
	return out, nil
}

// listAs lists the objects of a resource in a namespace, or in all if that is empty. What the user may not list is not
// known.
func listAs[T any](ctx context.Context, s *site, r schema.GroupVersionResource, namespace string) ([]T, error) {
	if err := s.connect(ctx); err != nil {
		return nil, err
	}
	l, err := s.dynamic.Resource(r).Namespace(namespace).List(ctx, metav1.ListOptions{})
	switch {
	case apierrors.IsForbidden(err):
		return nil, fmt.Errorf("%w: the user may not list %s (%s)", check.ErrUnknown, r.Resource, s.where())
	case err != nil:
		return nil, s.explain(err, "list %s", r.Resource)
	}
	out := make([]T, len(l.Items))
	for i := range l.Items {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(l.Items[i].Object, &out[i]); err != nil {
			return nil, fmt.Errorf("read %s %s: %w", r.Resource, l.Items[i].GetName(), err)
		}
	}
	return out, nil
}

func storageClasses() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "storage.k8s.io", Version: "v1", Resource: "storageclasses"}
}

func quotas() schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: "resourcequotas"}
}

func nodes() schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
}
