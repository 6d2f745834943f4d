package pki

import (
	"slices"
	"strings"
	"time"

	"github.com/kcpctl/kcpctl/internal/topology"
)

// Rotations are rotations that go through their phases together: either of authorities, or of the service-account key.
type Rotations []Rotation

// String is what users call them: "server CA, client CA".
func (all Rotations) String() string {
	var names []string
	for _, r := range all {
		names = append(names, r.String())
	}
	return strings.Join(names, ", ")
}

// Has reports whether an authority is one of them.
func (all Rotations) Has(ca CA) bool {
	return slices.ContainsFunc(all, func(r Rotation) bool {
		c, ok := r.(CARotation)
		return ok && c.ca == ca
	})
}

// OfServiceAccount reports whether it is the service-account key that is rotated.
func (all Rotations) OfServiceAccount() bool { return slices.Contains(all, Rotation(KeyRotation{})) }

// Phase is that of those who are furthest behind.
func (all Rotations) Phase(s *State) Phase {
	for _, p := range []Phase{PhaseNone, PhaseDistribute, PhaseSwitch} {
		if len(all.In(s, p)) > 0 {
			return p
		}
	}
	return PhaseNone
}

// In returns those that are in a phase.
func (all Rotations) In(s *State, p Phase) Rotations {
	return slices.DeleteFunc(slices.Clone(all), func(r Rotation) bool { return r.Phase(s) != p })
}

// Advance takes all of them from a phase to the next, as Rotation.Advance does with one.
func (all Rotations) Advance(t *topology.Topology, s *State, from Phase, now time.Time) (*State, error) {
	var err error
	for _, r := range all {
		if s, err = r.Advance(t, s, from, now); err != nil {
			return nil, err
		}
	}
	return s, nil
}
