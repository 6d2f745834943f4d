package kcp

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	"github.com/kcpctl/kcpctl/internal/api/release"
	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/client/object"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// The annotations of a LogicalCluster with the type of its workspace, and with the user who created it (kcp:
// pkg/reconciler/tenancy/workspace).
const (
	typeAnnotation    = "internal.tenancy.kcp.io/type"
	creatorAnnotation = "experimental.tenancy.kcp.io/owner"
)

// workspaceFinalizer keeps a Workspace until its logical cluster is deleted (kcp: sdk/apis/core/v1alpha1,
// LogicalClusterFinalizerName).
const workspaceFinalizer = "core.kcp.io/logicalcluster"

// EachConnecting calls a function for each object on the client's server, which is a shard, that connects it with
// others: LogicalClusters and Workspaces. It needs system:masters, and fails if one of the APIs is not served.
func (c *Client) EachConnecting(
	ctx context.Context, identity string, do func(kcpapi.API, *unstructured.Unstructured) error,
) error {
	workspaces := workspaceResource
	workspaces.Resource += ":" + identity
	err := c.each(ctx, logicalClusterResource, func(o *unstructured.Unstructured) error {
		return do(kcpapi.LogicalCluster, o)
	})
	if err != nil {
		return err
	}
	return c.each(ctx, workspaces, func(o *unstructured.Unstructured) error { return do(kcpapi.Workspace, o) })
}

// LogicalClusterRef refers to the LogicalCluster of a logical cluster.
func LogicalClusterRef(cluster string) plan.Ref {
	return plan.Ref{Workspace: cluster, GroupVersionKind: kcpapi.LogicalCluster.GroupVersionKind,
		Name: kcpapi.LogicalClusterName}
}

// Ref refers to the Workspace object.
func (r WorkspaceRef) Ref() plan.Ref {
	return plan.Ref{Workspace: r.Cluster, GroupVersionKind: kcpapi.Workspace.GroupVersionKind, Name: r.Name}
}

// ClusterOf returns the logical cluster of a Workspace.
func ClusterOf(workspace *unstructured.Unstructured) string {
	id, _, _ := unstructured.NestedString(workspace.Object, "spec", "cluster")
	return id
}

// CreateWorkspaceOf creates the Workspace that a LogicalCluster has lost. It is scheduled from the beginning, so that
// kcp does not choose a shard for it. The client's server is the shard of the parent; shard is the one of the logical
// cluster. It has no location selector, because only the lost Workspace had it.
func (c *Client) CreateWorkspaceOf(
	ctx context.Context, cluster *unstructured.Unstructured, shard string,
) (*unstructured.Unstructured, error) {
	w, err := workspaceOf(cluster, shard)
	if err != nil {
		return nil, err
	}
	at := c.workspace(LogicalClusterOf(cluster).Workspace.Cluster)
	return at.Resource(workspaceResource).Create(ctx, w, metav1.CreateOptions{FieldManager: object.FieldManager})
}

func workspaceOf(cluster *unstructured.Unstructured, shard string) (*unstructured.Unstructured, error) {
	notes := cluster.GetAnnotations()
	url, _, _ := unstructured.NestedString(cluster.Object, "status", "URL")
	at := strings.LastIndex(notes[typeAnnotation], ":")
	if url == "" || at < 0 {
		return nil, fmt.Errorf("the LogicalCluster has no URL or no type of workspace")
	}
	l := LogicalClusterOf(cluster)
	w := kcpapi.Workspace.New(l.Workspace.Name)
	own := map[string]string{
		onShardAnnotation: shard, onShardHashAnnotation: shardHash(shard), kcpapi.AnnotationScheduled: l.Name,
	}
	if creator, ok := notes[creatorAnnotation]; ok {
		own[creatorAnnotation] = creator
	}
	w.SetAnnotations(own)
	w.SetFinalizers([]string{workspaceFinalizer})
	w.Object["spec"] = map[string]any{
		"URL": url, "cluster": l.Name,
		"type": map[string]any{"path": notes[typeAnnotation][:at], "name": notes[typeAnnotation][at+1:]},
	}
	return w, nil
}

// SetOwner makes a Workspace the owner of a LogicalCluster that is still the one that was seen. The client's server is
// the shard of the logical cluster.
func (c *Client) SetOwner(ctx context.Context, cluster, workspace *unstructured.Unstructured) error {
	_, err := c.PatchObject(ctx, LogicalClusterRef(LogicalClusterOf(cluster).Name), map[string]any{
		"metadata": map[string]any{"resourceVersion": cluster.GetResourceVersion()},
		"spec":     map[string]any{"owner": map[string]any{"uid": string(workspace.GetUID())}},
	})
	return err
}

// selfValidity is how long the certificates are valid with which kcpctl itself calls kcp.
const selfValidity = time.Hour

// Dialer connects to the port on which a component serves.
type Dialer interface {
	Dial(ctx context.Context, c *topology.Component) (net.Conn, error)
}

// Connect returns a client of a component, as an administrator: system:masters on a shard; front-proxies strip that
// group, so there system:kcp:admin, the strongest that they let pass. It connects with the first request.
func Connect(d Dialer, c *topology.Component, s *pki.State, now time.Time) (*Client, error) {
	if c.Kind == topology.FrontProxy {
		return ConnectAs(d, c, s, now, pki.GroupAdmin)
	}
	if release.Of(c.Version).OwnShards {
		return ConnectAs(d, c, s, now, pki.GroupMasters, pki.GroupAdmin) // the Admin workspace asks for the latter
	}
	return ConnectAs(d, c, s, now, pki.GroupMasters)
}

// ConnectAs returns a client of a component, as a member of groups.
func ConnectAs(d Dialer, c *topology.Component, s *pki.State, now time.Time, groups ...string) (*Client, error) {
	pair, err := pki.Mint(s, pki.MintSpec{
		CN: pki.CNSelf, Orgs: groups, Algorithm: v1alpha1.KeyECDSAP256, Validity: selfValidity,
	}, now)
	if err != nil {
		return nil, fmt.Errorf("certificate for %s: %w", c.ID(), err)
	}
	return New(Options{
		URL: c.URLFrom(c.Cluster), CA: s.CAs[topology.ServerCA].Trusted(), Pair: pair,
		Dial:      func(ctx context.Context) (net.Conn, error) { return d.Dial(ctx, c) },
		OwnShards: release.Of(c.Version).OwnShards,
	}), nil
}
