package kcp

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

const (
	// cacheDefinitionShard is where the cache server keeps the definitions of the resources that shards can replicate
	// to it (kcp: pkg/cache/server/bootstrap). It has no discovery of its groups.
	cacheDefinitionShard = "system:cache:server"
	// shardAnnotation is the shard of an object of the cache. The server derives it from where it stores the object.
	shardAnnotation = "kcp.io/shard"

	// cachePage is how many objects are read at a time: an APIResourceSchema may have a megabyte.
	cachePage = 100
	// cacheDeletions is how many objects are deleted at a time.
	cacheDeletions = 16
)

var (
	definitionResource = kind.CustomResourceDefinition.GVR()
	// publishedResource are the CachedResources, by which a workspace publishes one of its resources (kcp:
	// pkg/reconciler/cache/cachedresources).
	publishedResource = schema.GroupResource{Group: "cache.kcp.io", Resource: "cachedresources"}
)

// Entries is the number of objects of a resource that a shard has in the cache.
type Entries struct {
	// Resource is its name with its group, such as apiexports.apis.kcp.io.
	Resource string
	Count    int
}

// Total returns the number of objects of all entries.
func Total(all []Entries) int {
	n := 0
	for _, e := range all {
		n += e.Count
	}
	return n
}

// CountCache counts the objects of a shard in the cache. The client's server is as with Cached.
func (c *Client) CountCache(ctx context.Context, shard string) ([]Entries, error) {
	return c.eachCached(ctx, shard, func(r schema.GroupVersionResource) (int, error) {
		n := 0
		options := metav1.ListOptions{Limit: cachePage}
		for {
			list, err := c.listCache(ctx, shard, r, options)
			if err != nil {
				return n, err
			}
			n += len(list.Items)
			if options.Continue = list.GetContinue(); options.Continue == "" {
				return n, nil
			}
		}
	})
}

// ClearCache deletes the objects of a shard in the cache, in all of its logical clusters, and returns what it deleted,
// also if it fails. The shard's process must have ended, or it replicates everything again. The root shard's objects
// are never deleted: kcp's own APIs are among them. The client's server is as with Cached.
func (c *Client) ClearCache(ctx context.Context, shard string) ([]Entries, error) {
	if shard == topology.RootShardName {
		return nil, fmt.Errorf("refusing to delete the objects of shard %s from the cache: all shards need them", shard)
	}
	return c.eachCached(ctx, shard,
		func(r schema.GroupVersionResource) (int, error) { return c.clearCached(ctx, shard, r) })
}

// eachCached calls a function for every resource of the cache, and returns the numbers that it returns.
func (c *Client) eachCached(
	ctx context.Context, shard string, do func(schema.GroupVersionResource) (int, error),
) ([]Entries, error) {
	if err := checkShardName(shard); err != nil {
		return nil, err
	}
	resources, err := c.cacheResources(ctx, shard)
	if err != nil {
		return nil, err
	}
	var out []Entries
	for _, r := range resources {
		n, err := do(r)
		if n > 0 {
			out = append(out, Entries{Resource: r.GroupResource().String(), Count: n})
		}
		if err != nil {
			return out, err
		}
	}
	return out, nil
}

// checkShardName fails if a name is not valid for a shard. Names become part of URL paths, in which the wildcard and
// the cache server's own definitions are no shards.
func checkShardName(shard string) error {
	if problems := validation.IsDNS1123Label(shard); len(problems) > 0 {
		return fmt.Errorf("invalid shard name %q: %s", shard, problems[0])
	}
	return nil
}

// cacheResources returns the resources that a shard can have in the cache. Those that CachedResources publish come
// first: the cache server serves them only while it has the CachedResources, which come last.
func (c *Client) cacheResources(ctx context.Context, shard string) ([]schema.GroupVersionResource, error) {
	at := c.cacheAt(cacheDefinitionShard, systemCluster)
	definitions, err := at.Resource(definitionResource).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list the resources of the cache: %w", err)
	}
	var first, out, last []schema.GroupVersionResource
	for i := range definitions.Items {
		r := definedResource(&definitions.Items[i])
		if r.GroupResource() != publishedResource {
			out = append(out, r)
			continue
		}
		last = append(last, r)
		if first, err = c.publishedResources(ctx, shard, r); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(out, func(a, b schema.GroupVersionResource) int {
		return strings.Compare(a.GroupResource().String(), b.GroupResource().String())
	})
	return slices.Concat(first, out, last), nil
}

// definedResource returns the resource of a CustomResourceDefinition, in the version that is stored.
func definedResource(definition *unstructured.Unstructured) schema.GroupVersionResource {
	var r schema.GroupVersionResource
	r.Group, _, _ = unstructured.NestedString(definition.Object, "spec", "group")
	r.Resource, _, _ = unstructured.NestedString(definition.Object, "spec", "names", "plural")
	versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
	for _, v := range versions {
		m, ok := v.(map[string]any)
		if !ok || m["served"] != true {
			continue
		}
		if name, _ := m["name"].(string); r.Version == "" || m["storage"] == true {
			r.Version = name
		}
	}
	return r
}

// publishedResources returns the resources that the CachedResources of a shard publish. The cache server serves each
// under its name and the identity of its publisher.
func (c *Client) publishedResources(
	ctx context.Context, shard string, r schema.GroupVersionResource,
) ([]schema.GroupVersionResource, error) {
	list, err := c.listCache(ctx, shard, r, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var out []schema.GroupVersionResource
	for i := range list.Items {
		field := func(path ...string) string {
			s, _, _ := unstructured.NestedString(list.Items[i].Object, path...)
			return s
		}
		identity := field("status", "identityHash")
		p := schema.GroupVersionResource{
			Group: field("spec", "group"), Version: field("spec", "version"),
			Resource: field("spec", "resource") + ":" + identity,
		}
		known := slices.ContainsFunc(out,
			func(o schema.GroupVersionResource) bool { return o.GroupResource() == p.GroupResource() })
		if identity != "" && !known {
			out = append(out, p)
		}
	}
	return out, nil
}

// listCache lists the objects of a shard in the cache. A resource that the cache server does not serve has no objects.
func (c *Client) listCache(
	ctx context.Context, shard string, r schema.GroupVersionResource, o metav1.ListOptions,
) (*unstructured.UnstructuredList, error) {
	list, err := c.cacheAt(shard, wildcard).Resource(r).List(ctx, o)
	if apierrors.IsNotFound(err) {
		return &unstructured.UnstructuredList{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list %s of shard %s in the cache: %w", r.GroupResource(), shard, err)
	}
	return list, nil
}

// clearCached deletes the objects of a resource that a shard has in the cache, and returns their number. The cache
// server lists across logical clusters, but deletes in one only: deleting the collection across them succeeds and
// deletes nothing.
func (c *Client) clearCached(ctx context.Context, shard string, r schema.GroupVersionResource) (int, error) {
	deleted := map[string]bool{}
	for {
		list, err := c.listCache(ctx, shard, r, metav1.ListOptions{Limit: cachePage})
		if err != nil || len(list.Items) == 0 {
			return len(deleted), err
		}
		for i := range list.Items {
			o := &list.Items[i]
			if of := o.GetAnnotations()[shardAnnotation]; of != shard {
				return len(deleted), fmt.Errorf("%s in the cache belongs to shard %q, not to %s",
					entryName(r, o), of, shard)
			}
			if cluster := o.GetAnnotations()[kcpapi.AnnotationCluster]; cluster == "" || cluster == wildcard {
				return len(deleted), fmt.Errorf("%s of shard %s in the cache has no logical cluster",
					entryName(r, o), shard)
			}
			if deleted[entryName(r, o)] {
				return len(deleted), fmt.Errorf("%s is in the cache again after it was deleted: shard %s may "+
					"still be running", entryName(r, o), shard)
			}
		}
		done, err := c.deleteCached(ctx, shard, r, list.Items)
		for _, name := range done {
			deleted[name] = true
		}
		if err != nil {
			return len(deleted), err
		}
	}
}

// entryName names an object for messages.
func entryName(r schema.GroupVersionResource, o *unstructured.Unstructured) string {
	name := o.GetName()
	if o.GetNamespace() != "" {
		name = o.GetNamespace() + "/" + name
	}
	return r.GroupResource().String() + " " + o.GetAnnotations()[kcpapi.AnnotationCluster] + ":" + name
}

// deleteCached deletes objects of the cache, and returns the names of the deleted ones.
func (c *Client) deleteCached(
	ctx context.Context, shard string, r schema.GroupVersionResource, objects []unstructured.Unstructured,
) ([]string, error) {
	errs := make([]error, len(objects))
	var g errgroup.Group
	g.SetLimit(cacheDeletions)
	for i := range objects {
		g.Go(func() error {
			errs[i] = c.deleteEntry(ctx, shard, r, &objects[i])
			return errs[i]
		})
	}
	first := g.Wait()
	var done []string
	for i := range objects {
		if errs[i] == nil {
			done = append(done, entryName(r, &objects[i]))
		}
	}
	return done, first
}

// deleteEntry deletes an object of the cache if it is still the one that was listed. The cache server ignores the
// finalizers that were replicated with it.
func (c *Client) deleteEntry(
	ctx context.Context, shard string, r schema.GroupVersionResource, o *unstructured.Unstructured,
) error {
	at, uid := c.cacheAt(shard, o.GetAnnotations()[kcpapi.AnnotationCluster]), o.GetUID()
	err := at.Resource(r).Namespace(o.GetNamespace()).Delete(ctx, o.GetName(),
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete %s of shard %s in the cache: %w", entryName(r, o), shard, err)
	}
	return nil
}
