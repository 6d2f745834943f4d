package cmd

import (
	"slices"
	"strings"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// clusterPrefix begins a name that stands for everything on a cluster.
const clusterPrefix = "cluster/"

// withClusters also completes cluster/NAME, if there are several.
func withClusters(list func(*session) []string) func(*session) []string {
	return func(s *session) []string {
		out := list(s)
		for _, cl := range s.topology.Clusters {
			if len(s.topology.Clusters) > 1 {
				out = append(out, clusterPrefix+cl.Name)
			}
		}
		return out
	}
}

// expandClusters replaces cluster/NAME by the components on that cluster.
func expandClusters(s *session, names []string) ([]string, error) {
	var out []string
	for _, name := range names {
		cluster, is := strings.CutPrefix(name, clusterPrefix)
		if !is {
			out = append(out, name)
			continue
		}
		if s.topology.Local() {
			return nil, clierr.New(clierr.BadInput, "omit it", "%s is not for --local: everything runs on this machine", name)
		}
		known := clusterNames(s)
		if !slices.Contains(known, cluster) {
			return nil, unknownName("cluster", cluster, known)
		}
		there := s.topology.On(topology.Cluster{Name: cluster})
		there = slices.DeleteFunc(there, func(c *topology.Component) bool { return c.Kind == topology.Base })
		if len(there) == 0 {
			return nil, clierr.New(clierr.BadInput, oneOf(prefixed(clusterPrefix, placesOf(s))), "no component is on cluster %q", cluster)
		}
		out = append(out, idsOf(there)...)
	}
	return out, nil
}

// placesOf are the clusters that have components.
func placesOf(s *session) []string {
	var out []string
	for _, cl := range s.topology.Clusters {
		out = append(out, cl.Name)
	}
	return out
}

func prefixed(prefix string, names []string) []string {
	var out []string
	for _, n := range names {
		out = append(out, prefix+n)
	}
	return out
}

// expandShards replaces cluster/NAME by the names of the shards on that cluster. It returns every name once.
func expandShards(s *session, names []string) ([]string, error) {
	var out []string
	for _, name := range names {
		cluster, is := strings.CutPrefix(name, clusterPrefix)
		if !is {
			out = append(out, name)
			continue
		}
		if _, err := expandClusters(s, []string{name}); err != nil {
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
