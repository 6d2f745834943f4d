package kcp

import (
	"context"
	"crypto/sha256"
	"errors"
	"math/big"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// The annotations of a Workspace that say which shard has its logical cluster: by name since kcp v0.32, and by a hash of the
// name, which a move to another shard leaves as it is.
const (
	onShardAnnotation     = "core.kcp.io/shard"
	onShardHashAnnotation = "internal.tenancy.kcp.io/shard"
)

// tenancyExport is the APIExport of Workspaces.
const tenancyExport = "tenancy.kcp.io"

// WorkspaceIdentity returns the identity of the API of Workspaces, by which they are listed across logical clusters. The client's
// server is the root shard.
func (c *Client) WorkspaceIdentity(ctx context.Context) (string, error) {
	root, err := c.workspace(RootWorkspace)
	if err != nil {
		return "", err
	}
	o, err := root.Resource(exportResource).Get(ctx, tenancyExport, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	hash, _, _ := unstructured.NestedString(o.Object, "status", "identityHash")
	if hash == "" {
		return "", errors.New("APIExport " + tenancyExport + " has no identity yet")
	}
	return hash, nil
}

// DeletedWorkspaces returns the workspaces that are being deleted and live on a shard, as far as the shard that the client talks
// to has their Workspace objects, such as "root:team". kcp looks at that shard before it lets go of the Workspace: without it the
// Workspace stays (kcp: pkg/reconciler/tenancy/workspace/workspace_reconcile_deletion.go). It needs system:masters.
func (c *Client) DeletedWorkspaces(ctx context.Context, identity, shard string) ([]string, error) {
	r := workspaceResource
	r.Resource += ":" + identity
	var out []string
	err := c.eachOf(ctx, r, func(o *unstructured.Unstructured) error {
		if o.GetDeletionTimestamp() != nil && livesOn(o, shard) {
			out = append(out, o.GetAnnotations()[clusterAnnotation]+":"+o.GetName())
		}
		return nil
	})
	slices.Sort(out)
	return out, err
}

// livesOn reports whether the logical cluster of a Workspace is on a shard.
func livesOn(workspace *unstructured.Unstructured, shard string) bool {
	if name, ok := workspace.GetAnnotations()[onShardAnnotation]; ok {
		return name == shard
	}
	return workspace.GetAnnotations()[onShardHashAnnotation] == shardHash(shard)
}

// shardHash is the beginning of the hash of a shard's name in base 36, with a zero for each leading byte that is zero.
func shardHash(shard string) string {
	sum := sha256.Sum224([]byte(shard))
	zeros := 0
	for zeros < len(sum) && sum[zeros] == 0 {
		zeros++
	}
	return (strings.Repeat("0", zeros) + new(big.Int).SetBytes(sum[:]).Text(36))[:8]
}
