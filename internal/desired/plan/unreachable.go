package plan

import (
	"encoding/json"
	"slices"
)

// Unreachable is a cluster of a setup that cannot be reached, or that does not accept the user's credentials.
type Unreachable struct {
	// Cluster is its name in the setup.
	Cluster string
	// Err is the reason, with the next step as its hint.
	Err error
}

// MarshalJSON writes the name of the cluster and the reason.
func (u Unreachable) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Cluster string `json:"cluster"`
		Reason  string `json:"reason"`
	}{u.Cluster, u.Err.Error()})
}

// ClustersOf returns the names of clusters.
func ClustersOf(all []Unreachable) []string {
	var out []string
	for _, u := range all {
		out = append(out, u.Cluster)
	}
	return out
}

// UnreachableIn returns the cluster with a name, if it is one of those that cannot be reached.
func UnreachableIn(all []Unreachable, cluster string) (Unreachable, bool) {
	i := slices.IndexFunc(all, func(u Unreachable) bool { return u.Cluster == cluster })
	if i < 0 {
		return Unreachable{}, false
	}
	return all[i], true
}
