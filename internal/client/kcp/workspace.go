package kcp

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math/big"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	"github.com/kcpctl/kcpctl/internal/client/object"
)

// The annotations of a Workspace with the shard of its logical cluster: the name since kcp v0.32, and a hash of the
// name, which does not change when the logical cluster moves to another shard.
const (
	onShardAnnotation     = "core.kcp.io/shard"
	onShardHashAnnotation = "internal.tenancy.kcp.io/shard"
)

// tenancyExport is the APIExport of Workspaces.
const tenancyExport = "tenancy.kcp.io"

// WorkspaceIdentity returns the identity of the Workspaces' API, which is needed to list them across logical clusters.
// The client's server is the root shard.
func (c *Client) WorkspaceIdentity(ctx context.Context) (string, error) {
	return exportIdentity(ctx, c.workspace(RootWorkspace), tenancyExport)
}

// Workspace is a Workspace object, which can be on another shard than its logical cluster.
type Workspace struct {
	// Path is the logical cluster of the object and its name, such as "root:team".
	Path string
	// Deleting means that it is being deleted.
	Deleting bool
}

func (w Workspace) String() string { return w.Path }

// Workspaces returns the workspaces whose logical clusters are on a shard, from the Workspace objects on the client's
// server, sorted by path. It needs system:masters.
func (c *Client) Workspaces(ctx context.Context, identity, shard string) ([]Workspace, error) {
	r := workspaceResource
	r.Resource += ":" + identity
	var out []Workspace
	err := c.eachOf(ctx, r, func(o *unstructured.Unstructured) error {
		if isOnShard(o, shard) {
			out = append(out, Workspace{o.GetAnnotations()[kcpapi.AnnotationCluster] + ":" + o.GetName(),
				o.GetDeletionTimestamp() != nil})
		}
		return nil
	})
	slices.SortFunc(out, func(a, b Workspace) int { return strings.Compare(a.Path, b.Path) })
	return out, err
}

// Selectors returns the location selectors of the Workspace objects on the client's server: the shards that the
// workspaces may be on. It needs system:masters.
func (c *Client) Selectors(ctx context.Context, identity string) (map[WorkspaceRef]labels.Selector, error) {
	r := workspaceResource
	r.Resource += ":" + identity
	out := map[WorkspaceRef]labels.Selector{}
	err := c.eachOf(ctx, r, func(o *unstructured.Unstructured) error {
		ref := WorkspaceRef{o.GetAnnotations()[kcpapi.AnnotationCluster], o.GetName()}
		spec, found, err := unstructured.NestedMap(o.Object, "spec", "location", "selector")
		if err != nil || !found {
			out[ref] = labels.Everything()
			return err
		}
		var selector metav1.LabelSelector
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(spec, &selector); err != nil {
			return fmt.Errorf("location selector of workspace %s:%s: %w", ref.Cluster, ref.Name, err)
		}
		out[ref], err = metav1.LabelSelectorAsSelector(&selector)
		return err
	})
	return out, err
}

// DeletedWorkspaces returns the paths of those Workspaces that are being deleted. kcp reads the shard before it removes
// the Workspace's finalizer: without the shard the Workspace is not deleted (kcp:
// pkg/reconciler/tenancy/workspace/workspace_reconcile_deletion.go).
func (c *Client) DeletedWorkspaces(ctx context.Context, identity, shard string) ([]string, error) {
	all, err := c.Workspaces(ctx, identity, shard)
	var out []string
	for _, w := range all {
		if w.Deleting {
			out = append(out, w.Path)
		}
	}
	return out, err
}

// isOnShard reports whether the logical cluster of a Workspace is on a shard.
func isOnShard(workspace *unstructured.Unstructured, shard string) bool {
	if name, ok := workspace.GetAnnotations()[onShardAnnotation]; ok {
		return name == shard
	}
	return workspace.GetAnnotations()[onShardHashAnnotation] == shardHash(shard)
}

// shardHash returns the beginning of the hash of a shard's name in base 36, with a zero for each leading zero byte.
func shardHash(shard string) string {
	sum := sha256.Sum224([]byte(shard))
	zeros := 0
	for zeros < len(sum) && sum[zeros] == 0 {
		zeros++
	}
	return (strings.Repeat("0", zeros) + new(big.Int).SetBytes(sum[:]).Text(36))[:8]
}

// BindRoles binds cluster roles to a group in a workspace, with one ClusterRoleBinding <name>-<role> for each.
func (c *Client) BindRoles(ctx context.Context, path, name, group string, roles []string) error {
	bindings := c.workspace(path).Resource(bindingResource)
	for _, role := range roles {
		b := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "rbac.authorization.k8s.io/v1",
			"kind":       "ClusterRoleBinding",
			"metadata":   map[string]any{"name": name + "-" + role},
			"roleRef":    map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
			"subjects": []any{
				map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group},
			},
		}}
		_, err := bindings.Apply(ctx, b.GetName(), b,
			metav1.ApplyOptions{FieldManager: object.FieldManager, Force: true})
		if err != nil {
			return fmt.Errorf("bind cluster role %s in workspace %s: %w", role, path, err)
		}
	}
	return nil
}
