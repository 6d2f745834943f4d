package cmd

import (
	"slices"
	"strings"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// placePrefix begins a name on the command line that stands for everything on a cluster of spec.clusters. The clusters
// of spec.workloads are components: their IDs begin with cluster/.
const placePrefix = "place/"

// placeNames are the names of clusters of spec.clusters, which users may type with the prefix.
func placeNames(typed []string) []string {
	return mapped(typed, placeName)
}

func placeName(typed string) string { return strings.TrimPrefix(typed, placePrefix) }

// withPlaces also completes place/NAME, if there are several clusters and the components on this one fit.
func withPlaces(list func(*session) []string, fit func([]*topology.Component) bool) func(*session) []string {
	return func(s *session) []string {
		out := list(s)
		for _, name := range placesOf(s) {
			if len(s.topology.Clusters) > 1 && fit(onPlace(s, name)) {
				out = append(out, placePrefix+name)
			}
		}
		return out
	}
}

// anyComponent, anyShard and removableOnly report whether a command can select components by their cluster: all, the
// shards, or the shards unless the root shard is one of them.
func anyComponent(there []*topology.Component) bool { return len(there) > 0 }

func anyShard(there []*topology.Component) bool {
	return slices.ContainsFunc(there, (*topology.Component).IsShard)
}

func removableOnly(there []*topology.Component) bool {
	isRoot := func(c *topology.Component) bool { return c.Kind == topology.RootShard }
	return anyShard(there) && !slices.ContainsFunc(there, isRoot)
}

// onPlace returns the components on a cluster of spec.clusters, without its base.
func onPlace(s *session, cluster string) []*topology.Component {
	return slices.DeleteFunc(s.topology.On(topology.Cluster{Name: cluster}),
		func(c *topology.Component) bool { return c.Kind == topology.Base })
}

// expandPlaces replaces place/NAME by the components on that cluster.
func expandPlaces(s *session, names []string) ([]string, error) {
	var out []string
	for _, name := range names {
		cluster, is := strings.CutPrefix(name, placePrefix)
		if !is {
			out = append(out, name)
			continue
		}
		if s.topology.Local() {
			return nil, clierr.New(clierr.BadInput, "omit it",
				"%s is not for --local: everything runs on this machine", name)
		}
		known := clusterNames(s)
		if !slices.Contains(known, cluster) {
			return nil, unknownPlace(cluster, known)
		}
		there := onPlace(s, cluster)
		if len(there) == 0 {
			return nil, clierr.New(clierr.BadInput, oneOf(prefixed(placePrefix, placesOf(s))),
				"no component is on cluster %q", cluster)
		}
		out = append(out, idsOf(there)...)
	}
	return out, nil
}

// placesOf are the clusters that have components.
func placesOf(s *session) []string {
	return mapped(s.topology.Clusters, func(cl topology.Cluster) string { return cl.Name })
}

func prefixed(prefix string, names []string) []string {
	return mapped(names, func(n string) string { return prefix + n })
}

func unknownPlace(name string, known []string) error {
	return clierr.New(clierr.BadInput, nearestOr(known, name, oneOf(known)), "%q is not in spec.clusters", name)
}

// placeHint is the hint for cluster/NAME where NAME is a cluster of spec.clusters, or empty.
func placeHint(s *session, name string) string {
	cluster, is := strings.CutPrefix(name, string(topology.Physical)+"/")
	if !is || !slices.Contains(placesOf(s), cluster) {
		return ""
	}
	return "use " + placePrefix + cluster + " for all on this cluster of spec.clusters"
}

// expandShards replaces place/NAME by the names of the shards on that cluster. It returns every name once.
func expandShards(s *session, names []string) ([]string, error) {
	var out []string
	for _, name := range names {
		if hint := placeHint(s, name); hint != "" {
			return nil, clierr.New(clierr.BadInput, hint, "%s is not a shard", name)
		}
		cluster, is := strings.CutPrefix(name, placePrefix)
		if !is {
			out = append(out, name)
			continue
		}
		if _, err := expandPlaces(s, []string{name}); err != nil {
			return nil, err
		}
		before := len(out)
		for _, c := range s.topology.Shards() {
			if c.Cluster.Name == cluster {
				out = append(out, c.ShardName())
			}
		}
		if len(out) == before {
			return nil, clierr.New(clierr.BadInput, oneOf(shardNames(s)), "no shard is on cluster %q", cluster)
		}
	}
	var once []string
	for _, name := range out {
		if !slices.Contains(once, name) {
			once = append(once, name)
		}
	}
	return once, nil
}
