package kcp

import (
	"context"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// Annotations of the copies in the cache (kcp: pkg/reconciler/cache/replication/replication_reconcile.go).
const (
	originalVersionAnnotation = "cache.kcp.io/original-resource-version"
	originalUIDAnnotation     = "cache.kcp.io/original-resource-UID"
)

// ReplicateShard copies the Shard object of a shard to the cache, unless the copy there has the same spec. The
// client's server is the root shard, and cache is a client of the cache server.
//
// The scheduler of workspaces knows the shards from the cache. The root shard replicates them too, but a shard sends at
// most five requests per second to a separate cache server (client-go: rest.DefaultQPS), and a new root shard has more
// than a hundred objects to replicate before. The copy is the one that kcp makes, so kcp finds nothing left to do, or
// updates it.
func (c *Client) ReplicateShard(ctx context.Context, cache *Client, shard string) error {
	original, err := c.workspace(RootWorkspace).Resource(shardResource).Get(ctx, shard, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read shard %s: %w", shard, err)
	}
	cluster, next := original.GetAnnotations()[kcpapi.AnnotationCluster], cachedCopy(original, topology.RootShardName)
	copies := cache.cacheAt(topology.RootShardName, cluster).Resource(shardResource)
	_, err = copies.Create(ctx, next, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		err = correct(ctx, copies, next)
	}
	if err != nil {
		return fmt.Errorf("replicate shard %s to the cache: %w", shard, err)
	}
	return nil
}

// correct updates a copy whose spec differs, such as one with the URL that the shard had where a backup is from. A
// shard keeps the first URL that it uses for another one until it restarts (kcp: pkg/reconciler/tenancy/workspace,
// clientPool).
func correct(ctx context.Context, copies dynamic.ResourceInterface, next *unstructured.Unstructured) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error { // the root shard may update it, too
		live, err := copies.Get(ctx, next.GetName(), metav1.GetOptions{})
		if err != nil || reflect.DeepEqual(live.Object["spec"], next.Object["spec"]) {
			return err
		}
		next.SetUID(live.GetUID())
		next.SetResourceVersion(live.GetResourceVersion())
		_, err = copies.Update(ctx, next, metav1.UpdateOptions{})
		return err
	})
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
