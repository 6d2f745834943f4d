package kcp

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
)

// wildcard stands for all logical clusters of a shard.
const wildcard = "*"

// The annotations of a LogicalCluster.
const (
	// movingAnnotation marks a logical cluster that kcpctl has closed. Its value is the shard that it moves to.
	movingAnnotation = "kcpctl.dev/moving"
	// migratingAnnotation is the LogicalClusterMigration that moves it. kcp sets it (kcp:
	// pkg/reconciler/migration/logicalclustermigration/controller.go).
	migratingAnnotation = "internal.kcp.io/migrating"
	// inactiveAnnotation stops all requests to it, also from its migration (kcp:
	// pkg/server/filters/inactivelogicalcluster.go).
	inactiveAnnotation = "core.kcp.io/inactive"
)

// leftAnnotation is on a LogicalCluster, with the shards that it has left by a move, and when their processes started,
// in JSON. kcp v0.32 cancels the requests to a logical cluster in the process that it leaves, and never ends that. A
// logical cluster that moves back gets no answers from it (kcp: pkg/reconciler/migration/logicalclustermigration,
// cancelLogicalClusterConnections).
const leftAnnotation = "kcpctl.dev/left"

// LogicalCluster is a logical cluster on a shard, which holds the content of a workspace.
type LogicalCluster struct {
	// Name is its ID, such as 2mc5xs36lrnz4t3j.
	Name string
	// Path is the path of its workspace, or else its name.
	Path string
	// Deleting means that it is being deleted.
	Deleting bool
	// Workspace is the Workspace object that it belongs to. It is empty if it belongs to none.
	Workspace WorkspaceRef
	// Phase is the phase of its status.
	Phase string
	// Inactive means that a user has stopped all requests to it (kcp: core.kcp.io/inactive).
	Inactive bool
	// Moving means that kcpctl has closed it, to move it.
	Moving bool
	// Migration is the LogicalClusterMigration that moves it, such as root:kcpctl-2mc5xs36lrnz4t3j. It is empty if none
	// has begun.
	Migration string
	// left are the shards that it has left, with the times when their processes started.
	left map[string]string
}

// WorkspaceRef is the logical cluster of a Workspace object, and its name.
type WorkspaceRef struct{ Cluster, Name string }

func (l LogicalCluster) String() string {
	if l.Deleting {
		return l.Path + " (being deleted)"
	}
	return l.Path
}

// LogicalClusters returns the logical clusters on the client's server, which is a shard, sorted by path, without the
// shard's own, whose names begin with system:. It needs system:masters.
func (c *Client) LogicalClusters(ctx context.Context) ([]LogicalCluster, error) {
	list, err := c.list(ctx, wildcard, logicalClusterResource, "logical clusters")
	if err != nil {
		return nil, err
	}
	var out []LogicalCluster
	for i := range list {
		o := &list[i]
		name := o.GetAnnotations()[kcpapi.AnnotationCluster]
		if strings.HasPrefix(name, "system:") {
			continue
		}
		out = append(out, LogicalClusterOf(o))
	}
	slices.SortFunc(out, func(a, b LogicalCluster) int { return strings.Compare(a.Path, b.Path) })
	return out, nil
}

// LogicalClusterOf describes a LogicalCluster object.
func LogicalClusterOf(o *unstructured.Unstructured) LogicalCluster {
	notes := o.GetAnnotations()
	text := func(path ...string) string { s, _, _ := unstructured.NestedString(o.Object, path...); return s }
	_, moving := notes[movingAnnotation]
	l := LogicalCluster{
		Name:     notes[kcpapi.AnnotationCluster],
		Path:     cmp.Or(notes[kcpapi.AnnotationPath], notes[kcpapi.AnnotationCluster]),
		Deleting: o.GetDeletionTimestamp() != nil, Phase: text("status", "phase"),
		Inactive: notes[inactiveAnnotation] == "true", Moving: moving, Migration: notes[migratingAnnotation],
		left: leftOf(notes),
	}
	if text("spec", "owner", "resource") == kcpapi.Workspace.Resource {
		l.Workspace = WorkspaceRef{text("spec", "owner", "cluster"), text("spec", "owner", "name")}
	}
	return l
}

// leftOf decodes the annotation. A value that kcpctl has not written counts as none.
func leftOf(notes map[string]string) map[string]string {
	out := map[string]string{}
	if json.Unmarshal([]byte(notes[leftAnnotation]), &out) != nil {
		return nil
	}
	return out
}

// Cluster returns a logical cluster on the client's server.
func (c *Client) Cluster(ctx context.Context, cluster string) (LogicalCluster, error) {
	o, err := c.clusterResource(cluster).Get(ctx, kcpapi.LogicalClusterName, metav1.GetOptions{})
	if err != nil {
		return LogicalCluster{}, err
	}
	return LogicalClusterOf(o), nil
}

func (c *Client) clusterResource(cluster string) dynamic.ResourceInterface {
	return c.workspace(cluster).Resource(logicalClusterResource)
}
