package kcp

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// CordonAnnotation keeps new workspaces off a shard. Its value does not matter
// (kcp: pkg/reconciler/tenancy/workspace/workspace_reconcile_scheduling.go).
const CordonAnnotation = "experimental.core.kcp.io/unschedulable"

// Shard is a registered shard.
type Shard struct {
	Name                string `json:"name"`
	BaseURL             string `json:"baseURL"`
	ExternalURL         string `json:"externalURL"`
	VirtualWorkspaceURL string `json:"virtualWorkspaceURL"`
	// Cordoned means that no new workspaces are scheduled there.
	Cordoned bool `json:"cordoned,omitempty"`
}

// Shards returns the registered shards, sorted by name. The client's server is the root shard or a front-proxy.
func (c *Client) Shards(ctx context.Context) ([]Shard, error) {
	ws, err := c.workspace(RootWorkspace)
	if err != nil {
		return nil, err
	}
	list, err := ws.Resource(shardResource).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list shards: %w", err)
	}
	var out []Shard
	for i := range list.Items {
		out = append(out, shardOf(&list.Items[i]))
	}
	slices.SortFunc(out, func(a, b Shard) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// identifiedExports are the APIExports whose identities other servers request while they start.
var identifiedExports = []string{"shards.core.kcp.io", tenancyExport, "topology.kcp.io"}

// exportIdentity returns the identity of an APIExport. It fails if the APIExport has none yet.
func exportIdentity(ctx context.Context, workspace dynamic.Interface, export string) (string, error) {
	o, err := workspace.Resource(exportResource).Get(ctx, export, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	hash, _, _ := unstructured.NestedString(o.Object, "status", "identityHash")
	if hash == "" {
		return "", fmt.Errorf("APIExport %s has no identity yet", export)
	}
	return hash, nil
}

// Identified returns nil if the root shard serves what other shards and front-proxies request while they start: the
// identities of kcp's own APIs (kcp: pkg/server/bootstrap/identity.go). It does so well before it is ready.
func (c *Client) Identified(ctx context.Context) error {
	root, err := c.workspace(RootWorkspace)
	if err != nil {
		return err
	}
	for _, export := range identifiedExports {
		if _, err := exportIdentity(ctx, root, export); err != nil {
			return err
		}
	}
	return nil
}

// RegisterShard creates the Shard object of a shard that was deleted, if it does not exist. The client's server is the
// root shard.
func (c *Client) RegisterShard(ctx context.Context, s Shard) error {
	root, err := c.workspace(RootWorkspace)
	if err != nil {
		return err
	}
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": shardResource.GroupVersion().String(), "kind": "Shard",
		"metadata": map[string]any{"name": s.Name, "labels": map[string]any{"name": s.Name}},
		"spec":     map[string]any{"baseURL": s.BaseURL, "externalURL": s.ExternalURL, "virtualWorkspaceURL": s.VirtualWorkspaceURL},
	}}
	if _, err := root.Resource(shardResource).Create(ctx, o,
		metav1.CreateOptions{FieldManager: "kcpctl"}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("register shard %s: %w", s.Name, err)
	}
	return nil
}

func shardOf(o *unstructured.Unstructured) Shard {
	field := func(name string) string {
		s, _, _ := unstructured.NestedString(o.Object, "spec", name)
		return s
	}
	_, cordoned := o.GetAnnotations()[CordonAnnotation]
	return Shard{
		Name: o.GetName(), BaseURL: field("baseURL"), ExternalURL: field("externalURL"),
		VirtualWorkspaceURL: field("virtualWorkspaceURL"), Cordoned: cordoned,
	}
}

// Cordon keeps new workspaces off a shard, or allows them again if on is false. Existing workspaces stay. The client's
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

// LabelShard sets labels of a shard, by which workspaces can select it. The shard itself does not change them after its
// registration (kcp: pkg/server/server.go). The client's server is the root shard.
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
	_, err = root.Resource(shardResource).Patch(ctx, shard, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: "kcpctl"})
	return err
}

// DeleteShard deletes the Shard object, if it exists. Front-proxies then forget the logical clusters of the shard, so
// it must be empty. The client's server is the root shard.
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
