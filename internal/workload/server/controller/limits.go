package controller

import (
	"slices"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/sync/heartbeat"
)

// maxMessage is the length of the longest message of a condition, in bytes: it can list several APIs.
// Kubernetes permits 32768.
const maxMessage = 8 << 10

// confined returns a status whose texts are not longer than a user can read. Others write them: they come from schemas,
// from the API servers of clusters, and from their syncers. The argument is not changed.
func confined(s api.ClusterStatus) api.ClusterStatus {
	s.Version = heartbeat.Cut(s.Version)
	s.Conditions = slices.Clone(s.Conditions)
	for i := range s.Conditions {
		s.Conditions[i].Message = heartbeat.CutTo(s.Conditions[i].Message, maxMessage)
	}
	s.APIs = slices.Clone(s.APIs)
	for i := range s.APIs {
		a := &s.APIs[i]
		a.Message = heartbeat.Cut(a.Message)
		if a.Accept != nil {
			lost := make([]string, 0, len(a.Accept.Lost))
			for _, text := range a.Accept.Lost {
				lost = append(lost, heartbeat.Cut(text))
			}
			a.Accept = &api.Acceptance{Value: a.Accept.Value, Lost: lost}
		}
	}
	return s
}
