package kcp

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// Resources whose objects shards replicate to the cache, for all other shards, and that every shard serves across its
// workspaces (kcp: pkg/reconciler/cache/replication).
var (
	schemaResource = kcpapi.APIResourceSchema.GVR()
	sliceResource  = kcpapi.APIExportEndpointSlice.GVR()
)

// Replicated returns the names of the objects that the client's server, which is a shard, must replicate to the cache,
// such as "apiexports root:tenancy.kcp.io".
func (c *Client) Replicated(ctx context.Context) ([]string, error) {
	return replicatedNames(ctx, c.workspace(wildcard), exportResource, schemaResource)
}

// Cached returns the names of those objects of a shard that are in the cache. The client's server is the cache server,
// or the root shard if that serves the cache.
func (c *Client) Cached(ctx context.Context, shard string) ([]string, error) {
	return replicatedNames(ctx, c.cacheAt(shard, wildcard), exportResource, schemaResource)
}

// CachedShards returns the names of the shards in the cache, from which all shards know them. The client's server is as
// with Cached.
func (c *Client) CachedShards(ctx context.Context) ([]string, error) {
	list, err := c.cacheAt(topology.RootShardName, wildcard).Resource(shardResource).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list shards: %w", err)
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].GetName())
	}
	return names, nil
}

// cacheAt returns a client for the objects of a shard in the cache, from one logical cluster or from all.
func (c *Client) cacheAt(shard, cluster string) dynamic.Interface {
	return c.at("/services/cache/shards/" + shard + "/clusters/" + cluster)
}

func replicatedNames(
	ctx context.Context, from dynamic.Interface, resources ...schema.GroupVersionResource,
) ([]string, error) {
	var names []string
	for _, r := range resources {
		list, err := from.Resource(r).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", r.Resource, err)
		}
		for i := range list.Items {
			o := &list.Items[i]
			if o.GetDeletionTimestamp() == nil {
				names = append(names, r.Resource+" "+o.GetAnnotations()[kcpapi.AnnotationCluster]+":"+o.GetName())
			}
		}
	}
	slices.Sort(names)
	return names, nil
}

// EndpointSlice is the list of the URLs at which an API is served to its provider, one for each shard.
type EndpointSlice struct {
	Cluster, Name string
	URLs          []string
	// Problems are its conditions that are not true.
	Problems []string
}

// EndpointSlices returns the endpoint slices of the workspace root, which are for kcp's own APIs, and which every setup
// has. The client's server is the root shard or a front-proxy.
func (c *Client) EndpointSlices(ctx context.Context) ([]EndpointSlice, error) {
	list, err := c.list(ctx, RootWorkspace, sliceResource, "endpoint slices")
	if err != nil {
		return nil, err
	}
	var out []EndpointSlice
	for i := range list {
		o := &list[i]
		s := EndpointSlice{Cluster: RootWorkspace, Name: o.GetName()}
		for _, c := range untrue(o) {
			s.Problems = append(s.Problems, c.String())
		}
		endpoints, _, _ := unstructured.NestedSlice(o.Object, "status", "endpoints")
		for _, e := range endpoints {
			if m, ok := e.(map[string]any); ok {
				s.URLs = append(s.URLs, fmt.Sprint(m["url"]))
			}
		}
		out = append(out, s)
	}
	return out, nil
}
