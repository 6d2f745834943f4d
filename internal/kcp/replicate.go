package kcp

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/kcpapi"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// Annotations of the copies in the cache (kcp: pkg/reconciler/cache/replication/replication_reconcile.go).
const (
	originalVersionAnnotation = "cache.kcp.io/original-resource-version"
	originalUIDAnnotation     = "cache.kcp.io/original-resource-UID"
)

// ReplicateShard copies the Shard object of a shard to the cache, if it is not there yet. The client's server is the root
// shard, and cache is a client of the cache server.
//
// The scheduler of workspaces knows the shards from the cache. The root shard replicates them too, but a shard sends at most
// five requests per second to a separate cache server (client-go: rest.DefaultQPS), and a new root shard has more than a
// hundred objects to replicate before. The copy is the one that kcp makes, so kcp finds nothing left to do, or updates it.
func (c *Client) ReplicateShard(ctx context.Context, cache *Client, shard string) error {
	root, err := c.workspace(RootWorkspace)
	if err != nil {
		return err
	}
	original, err := root.Resource(shardResource).Get(ctx, shard, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read shard %s: %w", shard, err)
	}
	at, err := cache.cacheAt(topology.RootShardName, original.GetAnnotations()[kcpapi.AnnotationCluster])
	if err != nil {
		return err
	}
	_, err = at.Resource(shardResource).Create(ctx, cachedCopy(original, topology.RootShardName), metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("replicate shard %s to the cache: %w", shard, err)
	}
	return nil
}

// cachedCopy returns the copy in the cache of an object of a shard.
func cachedCopy(original *unstructured.Unstructured, shard string) *unstructured.Unstructured {
	out := original.DeepCopy()
	annotations := out.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[shardAnnotation] = shard
	annotations[originalVersionAnnotation] = original.GetResourceVersion()
	annotations[originalUIDAnnotation] = string(original.GetUID())
	out.SetAnnotations(annotations)
	out.SetResourceVersion("")
	return out
}
