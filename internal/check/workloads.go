package check

import (
	"context"

	"github.com/kcpctl/kcpctl/internal/topology"
)

// clustersReady asks for the state of every cluster of spec.workloads.
func clustersReady(ctx context.Context, s *Subject) (o outcome) {
	clusters := s.Topology.OfKind(topology.Physical)
	if len(clusters) == 0 {
		return skipped("the setup has no physical clusters")
	}
	return every(clusters, func(c *topology.Component) (o outcome) {
		state, err := s.Runtime.State(ctx, c)
		switch {
		case err != nil:
			o.fail("%s: %s", c.ID(), reason(ctx, err))
		case !state.Ready:
			o.fail("%s: %s", c.ID(), state.Reason)
		}
		return o
	})
}
