package kcp

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// CordonAnnotation keeps new workspaces off a shard; its presence counts, not its value
// (kcp: pkg/reconciler/tenancy/workspace/workspace_reconcile_scheduling.go).
const CordonAnnotation = "experimental.core.kcp.io/unschedulable"

// Shard is a shard as kcp has registered it.
type Shard struct {
	Name                string `json:"name"`
	BaseURL             string `json:"baseURL"`
	ExternalURL         string `json:"externalURL"`
	VirtualWorkspaceURL string `json:"virtualWorkspaceURL"`
	// Cordoned says that no new workspaces are scheduled there.
	Cordoned bool `json:"cordoned,omitempty"`
}

// Shards returns the registered shards by name. The client's server is the root shard or a front-proxy.
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

// Identified tells, by a nil error, that the root shard serves what other shards and front-proxies ask it for while they
// start: the identities of kcp's own APIs (kcp: pkg/server/bootstrap/identity.go). It does so well before it is ready.
func (c *Client) Identified(ctx context.Context) error {
	root, err := c.workspace(RootWorkspace)
	if err != nil {
		return err
	}
	for _, export := range []string{"shards.core.kcp.io", "tenancy.kcp.io", "topology.kcp.io"} {
		o, err := root.Resource(exportResource).Get(ctx, export, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if hash, _, _ := unstructured.NestedString(o.Object, "status", "identityHash"); hash == "" {
			return fmt.Errorf("APIExport %s has no identity yet", export)
		}
	}
	return nil
}

// RegisterShard puts a shard that was taken out back into kcp. The client's server is the root shard.
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
	if _, err := root.Resource(shardResource).Create(ctx, o, metav1.CreateOptions{FieldManager: "kcpctl"}); err != nil && !apierrors.IsAlreadyExists(err) {
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
