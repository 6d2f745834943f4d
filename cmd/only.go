package cmd

import (
	"context"
	"fmt"
	"slices"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/run"
	"github.com/kcpctl/kcpctl/internal/setup"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// chosen are the components that --only names, and what their objects live in. Without --only there are none.
func (s *session) chosen(only []string) ([]topology.ID, error) {
	var out []topology.ID
	add := func(id topology.ID) {
		if !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	for _, name := range only {
		c, err := s.component(name, theParts)
		if err != nil {
			return nil, err
		}
		add(c.ID())
		for _, need := range c.Needs {
			if need.Kind() == topology.Base {
				add(need)
			}
		}
	}
	return out, nil
}

// theParts are all components that a run can be limited to.
func theParts(f *setup.File, t *topology.Topology) []string {
	return append(theComponents(f, t), idsOf(t, topology.Kubeconfig)...)
}

// component finds the one that a user names.
func (s *session) component(name string, among func(*setup.File, *topology.Topology) []string) (*topology.Component, error) {
	if known := among(s.File, s.Topology); !slices.Contains(known, name) {
		return nil, unknownName("component", name, known)
	}
	return s.Topology.Component(topology.ID(name)), nil
}

// inPlace makes sure that what chosen components need is there, or is chosen too: they would wait for it in vain.
func (s *session) inPlace(ctx context.Context, rt run.Runtime, chosen []topology.ID) error {
	for _, id := range chosen {
		for _, need := range s.Topology.Component(id).Needs {
			if slices.Contains(chosen, need) {
				continue
			}
			st, err := rt.State(ctx, s.Topology.Component(need))
			if err != nil {
				return err
			}
			if !st.Ready && st.ReadyReplicas == 0 {
				return clierr.New(clierr.Failed, fmt.Sprintf("add --only %s, or leave --only out", need),
					"%s needs %s, which is not ready: %s; nothing was changed", id, need, st.Reason)
			}
		}
	}
	return nil
}
