package kcp

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The annotations of a logical cluster that say which it is (kcp: sdk/apis/core, logicalcluster.AnnotationKey).
const (
	clusterAnnotation = "kcp.io/cluster"
	pathAnnotation    = "kcp.io/path"
)

// wildcard stands for all logical clusters of a shard.
const wildcard = "*"

// LogicalCluster is a logical cluster that lives on a shard: what a workspace is made of.
type LogicalCluster struct {
	// Name is its ID, such as 2mc5xs36lrnz4t3j.
	Name string
	// Path is the path of its workspace, or its name where it has none.
	Path string
	// Deleting says that it is about to be gone.
	Deleting bool
}

func (l LogicalCluster) String() string {
	if l.Deleting {
		return l.Path + " (being deleted)"
	}
	return l.Path
}

// LogicalClusters returns what lives on the shard that the client talks to, by path, but for the shard's own, whose names
// begin with system:. It needs system:masters.
func (c *Client) LogicalClusters(ctx context.Context) ([]LogicalCluster, error) {
	all, err := c.workspace(wildcard)
	if err != nil {
		return nil, err
	}
	list, err := all.Resource(logicalClusterResource).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list logical clusters: %w", err)
	}
	var out []LogicalCluster
	for i := range list.Items {
		o := &list.Items[i]
		name := o.GetAnnotations()[clusterAnnotation]
		if strings.HasPrefix(name, "system:") {
			continue
		}
		out = append(out, LogicalCluster{
			Name: name, Path: cmp.Or(o.GetAnnotations()[pathAnnotation], name), Deleting: o.GetDeletionTimestamp() != nil,
		})
	}
	slices.SortFunc(out, func(a, b LogicalCluster) int { return strings.Compare(a.Path, b.Path) })
	return out, nil
}
