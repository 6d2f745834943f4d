package kcp

import (
	"context"
	"fmt"
	"slices"
	"strings"

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
