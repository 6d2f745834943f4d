package kcp

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcpctl/kcpctl/internal/kcpapi"
)

// wildcard stands for all logical clusters of a shard.
const wildcard = "*"

// LogicalCluster is a logical cluster on a shard, which holds the content of a workspace.
type LogicalCluster struct {
	// Name is its ID, such as 2mc5xs36lrnz4t3j.
	Name string
	// Path is the path of its workspace, or its name if it has none.
	Path string
	// Deleting means that it is being deleted.
	Deleting bool
}

func (l LogicalCluster) String() string {
	if l.Deleting {
		return l.Path + " (being deleted)"
	}
	return l.Path
}

// LogicalClusters returns the logical clusters on the client's server, which is a shard, sorted by path. It leaves out
// the shard's own, whose names begin with system:. It needs system:masters.
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
		name := o.GetAnnotations()[kcpapi.AnnotationCluster]
		if strings.HasPrefix(name, "system:") {
			continue
		}
		out = append(out, LogicalCluster{
			Name: name, Path: cmp.Or(o.GetAnnotations()[kcpapi.AnnotationPath], name), Deleting: o.GetDeletionTimestamp() != nil,
		})
	}
	slices.SortFunc(out, func(a, b LogicalCluster) int { return strings.Compare(a.Path, b.Path) })
	return out, nil
}
