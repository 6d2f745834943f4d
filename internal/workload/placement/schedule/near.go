package schedule

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// NearClusters is the number of clusters that a workspace prefers. In a larger fleet, its workloads would be divided
// over all clusters, and the workspace would need an APIBinding for each of them.
const NearClusters = 10

// Near returns the clusters that a workspace prefers, at most NearClusters, in the order of preference. Each workspace
// has its own order, so that all clusters get about the same number of workspaces. A cluster that joins or leaves
// changes the order of no other ones.
func Near(workspace string, clusters []string) []string {
	all := slices.SortedFunc(slices.Values(clusters), func(x, y string) int { return nearer(workspace, x, y) })
	return all[:min(len(all), NearClusters)]
}

// nearer orders clusters by the preference of a workspace: by their hashes (rendezvous hashing).
func nearer(workspace, x, y string) int {
	return cmp.Or(cmp.Compare(distance(workspace, x), distance(workspace, y)), strings.Compare(x, y))
}

func distance(workspace, cluster string) uint64 {
	sum := hashOf(workspace, cluster)
	// The last bytes hardly change the high bits of the hash, and clusters often differ in these bytes only.
	sum ^= sum >> 33
	sum *= 0xff51afd7ed558ccd
	sum ^= sum >> 33
	return sum
}

// narrow keeps the candidates that the workspace prefers: candidates with a share, and as many others as it takes to
// have NearClusters, or more if the user allows more or the replicas do not fit. Users who set weights, and objects
// that go to each cluster, have chosen.
func (a *assignment) narrow() {
	all, w := a.chosen(), a.workload
	most := max(NearClusters, w.Hints.MaxClusters)
	if len(all) <= most || w.Hints.Weights != nil || w.Hints.Spread == Duplicate {
		return
	}
	slices.SortFunc(all, func(x, y *candidate) int { return cmp.Or(a.has(x, y), nearer(w.Workspace, x.Name, y.Name)) })
	missing := w.Replicas
	for _, c := range all {
		share := a.previous[c.Name]
		missing -= share.Replicas - share.Stuck
	}
	room := int64(0)
	for n, c := range all {
		_, has := a.previous[c.Name]
		if n >= most && !has && room >= missing {
			c.ok = false
			c.reason = "its workspace prefers other clusters"
			continue
		}
		if c.most == math.MaxInt64 {
			room = a.added(room, c)
		}
	}
}

// added returns the room of candidates with another one. A workload on one cluster has to fit into it.
func (a *assignment) added(room int64, c *candidate) int64 {
	own := int64(math.MaxInt32)
	if c.Free != nil {
		own = a.room(c)
	}
	if a.workload.Hints.Spread == Single {
		return max(room, own)
	}
	return room + own
}
