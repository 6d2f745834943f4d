package syncer

import (
	"cmp"
	"slices"
)

// State is the state that a syncer reports.
type State struct {
	// Orphans is the number of objects in the cluster without an object in kcp, and OrphanMessage how a user removes
	// them. Empty: there are none.
	Orphans       int    `json:"orphans,omitempty"`
	OrphanMessage string `json:"orphanMessage,omitempty"`
	// OtherSetup is why nothing is written to the cluster: it runs the objects of these workspaces for another setup.
	// Empty: it does not.
	OtherSetup string `json:"otherSetup,omitempty"`
	// Failures are the endpoints and resources that cannot be read now, with the errors.
	Failures []string `json:"failures,omitempty"`
	// Objects is the number of leaves, and Waiting the number of objects in the queue.
	Objects int `json:"objects"`
	Waiting int `json:"waiting"`
}

// report tells the state of the syncer.
func (s *syncer) report() {
	if s.Report == nil || s.up == nil || s.bound == nil || s.down == nil {
		return
	}
	state := State{OtherSetup: s.member.twice(), Waiting: s.queue.Len()}
	state.Orphans, state.OrphanMessage = s.orphans.found()
	if err := s.member.blocked(); err != nil && state.OtherSetup == "" {
		state.Failures = append(state.Failures, err.Error())
	}
	for _, f := range slices.Concat(s.up.Failures(), s.bound.Failures(), s.down.Failures()) {
		state.Failures = append(state.Failures, f.Error())
	}
	slices.SortFunc(state.Failures, cmp.Compare[string])
	for _, r := range s.synced() {
		state.Objects += s.up.Count(r, nil)
	}
	s.Report(state)
}
