package usage

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

func shard(id topology.ID, workspaces int, memory, limit, database, quota int64) Component {
	return Component{Component: id, LogicalClusters: &workspaces, Memory: &memory, MemoryLimit: limit, Database: &database, Quota: quota}
}

func TestCapacities(t *testing.T) {
	const gib int64 = 10_000_000
	add := "kcpctl add-shard NAME, then kcpctl rebalance"
	for name, tt := range map[string]struct {
		all  []Component
		used []float64
		by   []string
		next []string
	}{
		"room": {
			[]Component{shard("root-shard", 35, gib, 4*gib, gib/2, 2*gib), {Component: "front-proxy/main"}},
			[]float64{0.25}, []string{"memory"}, []string{""},
		},
		"memory": {
			[]Component{shard("root-shard", 3500/2, 36*gib/10, 4*gib, 0, 2*gib)},
			[]float64{0.9}, []string{"memory"}, []string{add + "; or raise the memory limit in the setup file"},
		},
		"another shard has room": {
			[]Component{shard("root-shard", 35, 0, 0, 18*gib/10, 2*gib), shard("shard/alpha", 1, 0, 0, 0, 2*gib)},
			[]float64{0.9, 1. / 3500}, []string{"etcd", "workspaces"}, []string{"kcpctl rebalance, then defragment the etcd: kcpctl explain KCP103", ""},
		},
		"another shard has room, and as many workspaces": {
			[]Component{shard("root-shard", 35, 0, 0, 18*gib/10, 2*gib), shard("shard/alpha", 35, 0, 0, 0, 2*gib)},
			[]float64{0.9, 0.01}, []string{"etcd", "workspaces"}, []string{add + "; or raise the quota of the etcd in the setup file", ""},
		},
		"the other shard is half full": {
			[]Component{shard("shard/alpha", 1, 0, 0, 18*gib/10, 2*gib), shard("shard/beta", 1, 0, 0, gib, 2*gib)},
			[]float64{0.9, 0.5}, []string{"etcd", "etcd"}, []string{add + "; or raise the quota of the etcd in the setup file", ""},
		},
		"workspaces": {
			[]Component{shard("shard/alpha", 3500, 0, 0, 0, 2*gib)}, []float64{1}, []string{"workspaces"}, []string{add},
		},
		"cache server": {
			[]Component{{Component: "cache-server", Objects: map[string]int{"a": 9000, "b": 10}}},
			[]float64{0.9}, []string{"objects"},
			[]string{"replicate fewer objects: kcp copies APIExports, their schemas and CachedResources to all shards"},
		},
		"nothing is known": {[]Component{{Component: "shard/alpha", Reason: "not ready"}}, []float64{0}, []string{""}, []string{""}},
	} {
		var used []float64
		var by, next []string
		for _, c := range Capacities(tt.all) {
			used, next = append(used, c.Used()), append(next, c.Next)
			if len(c.Shares) == 0 {
				by = append(by, "")
				continue
			}
			by = append(by, c.Shares[0].Of)
		}
		require.InDeltaSlice(t, tt.used, used, 1e-9, name)
		require.Equal(t, tt.by, by, name)
		require.Equal(t, tt.next, next, name)
	}
}

// A component that could not be measured, in whole or in part, may be full.
func TestRoom(t *testing.T) {
	full, unknown, partly := shard("shard/alpha", 3500, 0, 0, 0, 0), Component{Component: "shard/beta", Reason: "not ready"}, shard("shard/gamma", 1, 0, 0, 0, 0)
	partly.Reason = "the second reading failed"
	var room []bool
	for _, c := range Capacities([]Component{shard("root-shard", 1, 0, 0, 0, 0), full, unknown, partly}) {
		room = append(room, c.Room())
	}
	require.Equal(t, []bool{true, false, false, false}, room)
}
