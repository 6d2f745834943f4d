package usage

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/kcpctl/kcpctl/internal/client/etcd"
	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/backup/content"
)

// Workspace has the size of a workspace on its shard.
type Workspace struct {
	// Path is where users find it, and Cluster its logical cluster.
	Path    string      `json:"path"`
	Cluster string      `json:"logicalCluster"`
	Shard   topology.ID `json:"shard"`
	Objects int         `json:"objects"`
	// Bytes is the size of the keys and values in etcd.
	Bytes int64 `json:"bytes"`
}

// Stored reads the etcd of a shard, and returns what each workspace has there, the largest first. Objects that are
// written meanwhile are counted or not.
func Stored(
	ctx context.Context, shard *topology.Component, client *kcp.Client, in *etcd.Client,
) ([]Workspace, error) {
	all, err := client.LogicalClusters(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", shard.ID(), err)
	}
	found := map[string]*Workspace{}
	for _, l := range all {
		found[l.Name] = &Workspace{Path: l.Path, Cluster: l.Name, Shard: shard.ID()}
	}
	prefix := strings.TrimSuffix(shard.Storage.KeyPrefix(), "/") + "/"
	err = in.Each(ctx, prefix, func(key string, value []byte) {
		if w := found[content.ClusterOf(key)]; w != nil {
			w.Objects++
			w.Bytes += int64(len(prefix) + len(key) + len(value))
		}
	})
	if err != nil {
		return nil, fmt.Errorf("%s: read its etcd: %w", shard.ID(), err)
	}
	var out []Workspace
	for _, w := range found {
		out = append(out, *w)
	}
	return out, nil
}

// Sort sorts workspaces, the largest first.
func Sort(all []Workspace) {
	slices.SortFunc(all, func(a, b Workspace) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Path, b.Path))
	})
}
