package check

import (
	"context"

	"github.com/kcpctl/kcpctl/internal/desired/agent"
)

// published checks the PublishedResources of all agents as the setup file does: a setup may also come from a revision.
func published(_ context.Context, s *Subject) (o outcome) {
	agents := s.Topology.Setup.Spec.Agents
	if len(agents) == 0 {
		return skipped("the setup has no agents")
	}
	for i := range agents {
		var all []agent.Source
		for _, p := range agents[i].PublishedResources {
			all = append(all, agent.Source{PublishedResource: p})
		}
		problems, err := agent.Validate(agents[i].Version, all, agent.Reserved(s.Topology.Setup, &agents[i])...)
		o.add(err)
		for _, p := range problems {
			if !p.Warning {
				o.fail("agent/%s: PublishedResource %s: %v", agents[i].Name,
					all[p.Source].PublishedResource.Name, p.Error)
			}
		}
	}
	return o
}
