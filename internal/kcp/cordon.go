package kcp

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Cordon keeps new workspaces off a shard; those that are there stay. With on being false they are let on again. The client's
// server is the root shard.
func (c *Client) Cordon(ctx context.Context, shard string, on bool) error {
	var value any // null removes the annotation
	if on {
		value = "true"
	}
	if err := c.patchShard(ctx, shard, "annotations", map[string]any{CordonAnnotation: value}); err != nil {
		return fmt.Errorf("cordon shard %s: %w", shard, err)
	}
	return nil
}

// LabelShard sets labels of a shard, by which workspaces can ask for it. The shard itself never touches them once it is
// registered (kcp: pkg/server/server.go). The client's server is the root shard.
func (c *Client) LabelShard(ctx context.Context, shard string, labels map[string]string) error {
	set := map[string]any{}
	for k, v := range labels {
		set[k] = v
	}
	if err := c.patchShard(ctx, shard, "labels", set); err != nil {
		return fmt.Errorf("label shard %s: %w", shard, err)
	}
	return nil
}

func (c *Client) patchShard(ctx context.Context, shard, field string, value map[string]any) error {
	root, err := c.workspace(RootWorkspace)
	if err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{field: value}})
	if err != nil {
		return err
	}
	_, err = root.Resource(shardResource).Patch(ctx, shard, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "kcpctl"})
	return err
}

// DeleteShard takes a shard out of kcp; it may be gone already. Front-proxies forget its logical clusters, so it has to be
// empty. The client's server is the root shard.
func (c *Client) DeleteShard(ctx context.Context, shard string) error {
	root, err := c.workspace(RootWorkspace)
	if err != nil {
		return err
	}
	err = root.Resource(shardResource).Delete(ctx, shard, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete shard %s: %w", shard, err)
	}
	return nil
}
