package kcp

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

const (
	// systemCluster is the logical cluster with the definitions of kcp's own APIs on every shard (kcp:
	// config/system-crds), and with the definitions of the resources of the cache on the cache server.
	systemCluster = "system:system-crds"
	// endpointSlices is the suffix of the resources in which shards list their endpoints of an API:
	// apiexportendpointslices and, depending on the release, cachedresourceendpointslices or
	// clustercachedresourceendpointslices.
	endpointSlices = "endpointslices"
	// statusRemovals is the number of endpoint slices that are changed at the same time.
	statusRemovals = 16
)

// shardEndpoint is an endpoint of a shard in an endpoint slice.
type shardEndpoint struct {
	resource schema.GroupVersionResource
	slice    *unstructured.Unstructured
	url      string
}

func (e shardEndpoint) String() string { return entryName(e.resource, e.slice) + ": " + e.url }

// CountEndpoints counts the endpoints of a shard in the endpoint slices on the client's server, which is a shard, in
// all of its logical clusters. It needs system:masters.
func (c *Client) CountEndpoints(ctx context.Context, shard string) (int, error) {
	found, err := c.endpointsOf(ctx, shard)
	return len(found), err
}

// RemoveEndpoints removes the endpoints of a removed shard from the endpoint slices on the client's server, which is a
// shard, in all of its logical clusters, and returns their number. Each shard applies its own endpoint with its name as
// the field manager (kcp: pkg/reconciler/apis/apiexportendpointsliceurls), and no other shard removes it. Applying
// without the endpoint as the same field manager removes it, and keeps the endpoints of others, even if they are equal.
// It needs system:masters.
func (c *Client) RemoveEndpoints(ctx context.Context, shard string) (int, error) {
	found, err := c.endpointsOf(ctx, shard)
	if err != nil || len(found) == 0 {
		return 0, err
	}
	slices := map[string]shardEndpoint{} // one may have several
	for _, e := range found {
		slices[entryName(e.resource, e.slice)] = e
	}
	var g errgroup.Group
	g.SetLimit(statusRemovals)
	for e := range maps.Values(slices) {
		g.Go(func() error { return c.removeEndpoints(ctx, shard, e) })
	}
	if err := g.Wait(); err != nil {
		return 0, err
	}
	left, err := c.endpointsOf(ctx, shard)
	if err != nil {
		return 0, err
	}
	if len(left) > 0 {
		return 0, fmt.Errorf("%s was added again after it was removed: shard %s may still be running", left[0], shard)
	}
	return len(found), nil
}

// removeEndpoints applies a status without endpoints to a slice as the shard, as the shard itself does when it has
// nothing to serve.
func (c *Client) removeEndpoints(ctx context.Context, shard string, e shardEndpoint) error {
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": e.slice.GetAPIVersion(), "kind": e.slice.GetKind(),
		"metadata": map[string]any{"name": e.slice.GetName()},
		"status":   map[string]any{},
	}}
	at := c.workspace(e.slice.GetAnnotations()[kcpapi.AnnotationCluster])
	_, err := at.Resource(e.resource).ApplyStatus(ctx, e.slice.GetName(), o, metav1.ApplyOptions{FieldManager: shard})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("remove the endpoint of shard %s from %s: %w", shard, entryName(e.resource, e.slice), err)
	}
	return nil
}

// endpointsOf returns the endpoints of a shard in all slices.
func (c *Client) endpointsOf(ctx context.Context, shard string) ([]shardEndpoint, error) {
	if err := checkShardName(shard); err != nil {
		return nil, err
	}
	if shard == topology.RootShardName {
		return nil, fmt.Errorf("refusing to remove the endpoints of shard %s", shard)
	}
	resources, err := c.sliceResources(ctx)
	if err != nil {
		return nil, err
	}
	var out []shardEndpoint
	for _, r := range resources {
		err := c.eachOf(ctx, r, func(o *unstructured.Unstructured) error {
			urls := appliedEndpoints(o, shard)
			if cluster := o.GetAnnotations()[kcpapi.AnnotationCluster]; len(urls) > 0 &&
				(cluster == "" || cluster == wildcard) {
				return fmt.Errorf("%s has no logical cluster", entryName(r, o))
			}
			for _, url := range urls {
				out = append(out, shardEndpoint{r, o, url})
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// sliceResources returns the kinds of endpoint slices that the client's server serves.
func (c *Client) sliceResources(ctx context.Context) ([]schema.GroupVersionResource, error) {
	list, err := c.list(ctx, systemCluster, definitionResource, "the definitions of kcp's APIs")
	if err != nil {
		return nil, err
	}
	var out []schema.GroupVersionResource
	for i := range list {
		if r := definedResource(&list[i]); strings.HasSuffix(r.Resource, endpointSlices) {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b schema.GroupVersionResource) int { return strings.Compare(a.String(), b.String()) })
	return out, nil
}

// eachOf calls a function for every object of a resource in all logical clusters of the client's server. A resource
// that it does not serve has no objects.
func (c *Client) eachOf(
	ctx context.Context, r schema.GroupVersionResource, do func(*unstructured.Unstructured) error,
) error {
	err := c.each(ctx, r, do)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// each is eachOf, and fails if the server does not serve the resource.
func (c *Client) each(
	ctx context.Context, r schema.GroupVersionResource, do func(*unstructured.Unstructured) error,
) error {
	all, options := c.workspace(wildcard).Resource(r), metav1.ListOptions{Limit: cachePage}
	for {
		list, err := all.List(ctx, options)
		if err != nil {
			r.Resource, _, _ = strings.Cut(r.Resource, ":") // without its identity
			return fmt.Errorf("list %s: %w", r.GroupResource(), err)
		}
		for i := range list.Items {
			if err := do(&list.Items[i]); err != nil {
				return err
			}
		}
		if options.Continue = list.GetContinue(); options.Continue == "" {
			return nil
		}
	}
}

// appliedEndpoints returns the URLs of the endpoints that a shard has applied to a slice. It reads them from
// managedFields, so that an endpoint of another shard with the same URL does not count.
func appliedEndpoints(o *unstructured.Unstructured, shard string) []string {
	var out []string
	for _, m := range o.GetManagedFields() {
		if m.Manager != shard || m.Operation != metav1.ManagedFieldsOperationApply || m.Subresource != "status" ||
			m.FieldsV1 == nil {
			continue
		}
		var fields struct {
			Status struct {
				Endpoints map[string]any `json:"f:endpoints"`
			} `json:"f:status"`
		}
		if json.Unmarshal(m.FieldsV1.Raw, &fields) != nil {
			continue
		}
		for key := range fields.Status.Endpoints {
			var element struct{ URL string }
			if k, ok := strings.CutPrefix(key, "k:"); ok && json.Unmarshal([]byte(k), &element) == nil {
				out = append(out, element.URL)
			}
		}
	}
	slices.Sort(out)
	return out
}
