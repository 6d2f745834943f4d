package pki

import (
	"time"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// intended are the bundles that the table of connections names.
type intended struct{ *State }

func (s intended) Trusts(_ topology.ID, e topology.Edge) (Bundle, error) {
	return s.BundleOf(e.Trust), nil
}

func (s intended) Accepts(_ topology.ID, e topology.Edge) (Bundle, error) {
	return s.BundleOf(e.Accept), nil
}

func prove(t *topology.Topology, s *State, now time.Time) error { return Prove(t, s, intended{s}, now) }
