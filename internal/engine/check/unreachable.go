package check

import (
	"context"
	"fmt"
	"strings"

	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// allAnswer asks every cluster for its version. Checks of the clusters that answer continue without the others.
func allAnswer(ctx context.Context, s *Subject) outcome {
	o := eachCluster(answers)(ctx, s)
	o.partial = o.status != Fail
	if s.AllowUnreachable {
		return o
	}
	for _, l := range s.facts.Unreachable {
		var lost outcome
		lost.add(l.Err)
		o.absorb("cluster "+l.Cluster, lost)
	}
	return o
}

// lost reports whether the cluster with a name is left out, because it cannot be reached.
func (s *Subject) lost(cluster string) bool {
	_, is := plan.UnreachableIn(s.facts.Unreachable, cluster)
	return is
}

// unknownComponents fails for each cluster that cannot be reached, and names its components.
func (s *Subject) unknownComponents() (o outcome) {
	for _, l := range s.facts.Unreachable {
		var there []string
		for _, c := range s.Topology.Running() {
			if c.Cluster.Name == l.Cluster {
				there = append(there, string(c.ID()))
			}
		}
		var lost outcome
		lost.add(fmt.Errorf("%w; the state of %s is unknown", l.Err, list(there)))
		o.absorb("cluster "+l.Cluster, lost)
	}
	return o
}

// named is a component, with its cluster if there are several.
func (s *Subject) named(c *topology.Component) string {
	if len(s.Topology.Clusters) < 2 {
		return string(c.ID())
	}
	return string(c.ID()) + " (" + c.Cluster.Name + ")"
}

// unknownHere skips a check that would need what is on clusters that cannot be reached.
func (s *Subject) unknownHere(what string) outcome {
	return skipped("%s on %s is unknown", what, strings.Join(plan.ClustersOf(s.facts.Unreachable), ", "))
}
