package kcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	"github.com/kcpctl/kcpctl/internal/client/object"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/kit/mergepatch"
)

// Exported is an object of an API that an APIExport provides.
type Exported struct {
	schema.GroupVersionResource
	// Cluster is the name of its logical cluster.
	Cluster, Namespace, Name string
	Finalizers               []string
	Labels                   map[string]string
	// Deleted is when its deletion was requested. It is zero for other objects.
	Deleted time.Time

	version string
}

// String returns widgets.example.com team/first.
func (e Exported) String() string {
	return e.GroupResource().String() + " " + strings.TrimPrefix(e.Namespace+"/"+e.Name, "/")
}

// Exported returns the objects of an API of an APIExport in all workspaces of a shard. The client's server is the one
// that serves the shard's virtual workspaces, and path is the path of the shard's URL in the APIExportEndpointSlice. It
// fails with ErrNotServed if the API is not served there: either the APIExport does not have it, or not yet, because a
// server is ready before it knows the APIExports (kcp: pkg/virtual/apiexport/builder). It needs system:masters.
func (c *Client) Exported(ctx context.Context, path string, r schema.GroupResource) ([]Exported, error) {
	var out []Exported
	err := c.EachExported(ctx, path, r, func(resource schema.GroupVersionResource, o *unstructured.Unstructured) {
		out = append(out, exportedOf(resource, o))
	})
	return out, err
}

// EachExported is Exported for callers that need whole objects. It calls do for each, and keeps none.
func (c *Client) EachExported(
	ctx context.Context, path string, r schema.GroupResource,
	do func(schema.GroupVersionResource, *unstructured.Unstructured),
) error {
	return c.eachAt(ctx, strings.TrimSuffix(path, "/")+"/clusters/"+wildcard, r, do)
}

// eachAt calls do for each object of an API at a path. It fails with ErrNotServed if the API is not served there.
func (c *Client) eachAt(
	ctx context.Context, path string, r schema.GroupResource,
	do func(schema.GroupVersionResource, *unstructured.Unstructured),
) error {
	version, err := c.servedVersion(ctx, path, r.Group)
	if err != nil {
		return err
	}
	if version == "" {
		return fmt.Errorf("list %s: %w", r, ErrNotServed)
	}
	resource := r.WithVersion(version)
	objects := c.at(path).Resource(resource)
	for options := (metav1.ListOptions{Limit: cachePage}); ; {
		list, err := objects.List(ctx, options)
		if apierrors.IsNotFound(err) {
			err = ErrNotServed
		}
		if err != nil {
			return fmt.Errorf("list %s: %w", r, err)
		}
		for i := range list.Items {
			do(resource, &list.Items[i])
		}
		if options.Continue = list.GetContinue(); options.Continue == "" {
			return nil
		}
	}
}

// Consumers returns the logical clusters on the client's server, which is a shard, with an APIBinding of an APIExport.
// It needs system:masters.
func (c *Client) Consumers(ctx context.Context, export *unstructured.Unstructured) ([]string, error) {
	provider := export.GetAnnotations()[kcpapi.AnnotationCluster]
	if provider == "" {
		return nil, fmt.Errorf("APIExport %s has no annotation %s", export.GetName(), kcpapi.AnnotationCluster)
	}
	var out []string
	err := c.each(ctx, kcpapi.APIBinding.GVR(), func(o *unstructured.Unstructured) error {
		in, _, _ := unstructured.NestedString(o.Object, "status", "apiExportClusterName")
		name, _, _ := unstructured.NestedString(o.Object, "spec", "reference", "export", "name")
		if in == provider && name == export.GetName() {
			out = append(out, o.GetAnnotations()[kcpapi.AnnotationCluster])
		}
		return nil
	})
	return out, err
}

// ObjectsIn returns the objects of a resource in some logical clusters of the client's server, which is a shard. It
// skips logical clusters that do not serve the resource: a shard that is ready knows its APIs. It needs
// system:masters.
func (c *Client) ObjectsIn(ctx context.Context, clusters []string, r schema.GroupResource) ([]Exported, error) {
	var out []Exported
	add := func(resource schema.GroupVersionResource, o *unstructured.Unstructured) {
		if e := exportedOf(resource, o); slices.Contains(clusters, e.Cluster) {
			out = append(out, e)
		}
	}
	if len(clusters) == 0 {
		return nil, nil
	}
	if r.Group == "" { // a shard serves the core group of all logical clusters at once
		err := c.EachExported(ctx, "", r, add)
		return out, err
	}
	for _, name := range clusters {
		if err := c.eachAt(ctx, "/clusters/"+name, r, add); err != nil && !errors.Is(err, ErrNotServed) {
			return nil, err
		}
	}
	return out, nil
}

func exportedOf(r schema.GroupVersionResource, o *unstructured.Unstructured) Exported {
	e := Exported{
		GroupVersionResource: r, Cluster: o.GetAnnotations()[kcpapi.AnnotationCluster], Namespace: o.GetNamespace(),
		Name:       o.GetName(),
		Finalizers: o.GetFinalizers(), Labels: o.GetLabels(), version: o.GetResourceVersion(),
	}
	if at := o.GetDeletionTimestamp(); at != nil {
		e.Deleted = at.Time
	}
	return e
}

// servedVersion returns the preferred version of a group at a path, or "" if it is not served there. The core group has
// one version.
func (c *Client) servedVersion(ctx context.Context, path, group string) (string, error) {
	if group == "" {
		return "v1", nil
	}
	answer, err := c.Get(ctx, path+"/apis/"+group, nil)
	switch {
	case err != nil:
		return "", fmt.Errorf("read the versions of %s: %w", group, err)
	case answer.Code == http.StatusNotFound:
		return "", nil
	case answer.Code != http.StatusOK:
		return "", fmt.Errorf("read the versions of %s: HTTP status %d", group, answer.Code)
	}
	var g metav1.APIGroup
	if err := json.Unmarshal([]byte(answer.Message), &g); err != nil {
		return "", fmt.Errorf("read the versions of %s: %w", group, err)
	}
	if g.PreferredVersion.Version == "" && len(g.Versions) > 0 {
		return g.Versions[0].Version, nil
	}
	return g.PreferredVersion.Version, nil
}

// ReleaseExported removes a finalizer from an object that Exported has returned for the same path. It does nothing if
// the object is gone, or does not have the finalizer.
func (c *Client) ReleaseExported(ctx context.Context, path string, e Exported, finalizer string) error {
	if !slices.Contains(e.Finalizers, finalizer) {
		return nil
	}
	left := slices.DeleteFunc(slices.Clone(e.Finalizers), func(f string) bool { return f == finalizer })
	at := c.at(strings.TrimSuffix(path, "/") + "/clusters/" + e.Cluster)
	objects := at.Resource(e.GroupVersionResource).Namespace(e.Namespace)
	_, err := mergepatch.Send(ctx, objects, object.FieldManager, e.Name, "",
		map[string]any{"metadata": map[string]any{"finalizers": left, "resourceVersion": e.version}})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("remove the finalizer %s from %s: %w", finalizer, e, err)
	}
	return nil
}

// Objects returns the objects at a place, which has no name, that match a label selector. A workspace that does not
// exist, or does not serve the kind, has no objects. It fails if the workspace does not serve a kind that all serve.
func (c *Client) Objects(ctx context.Context, p plan.Ref, selector string) ([]unstructured.Unstructured, error) {
	client, err := c.resource(ctx, p)
	if err == nil {
		var list *unstructured.UnstructuredList
		if list, err = client.List(ctx, metav1.ListOptions{LabelSelector: selector}); err == nil {
			return list.Items, nil
		}
	}
	if isMissing(err) || errors.Is(err, ErrNotServed) {
		return nil, nil
	}
	return nil, fmt.Errorf("list objects of kind %s in %s: %w", p.Kind, p.Workspace, err)
}
