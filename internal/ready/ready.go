// Package ready says whether a component is ready and, while it is not, why.
package ready

import "time"

// RolloutNotStarted is the reason of a workload whose controller has not seen the latest change.
const RolloutNotStarted = "rollout not started"

// State is how far a component is.
type State struct {
	// Ready says that every replica is up to date and answers its readiness probe.
	Ready bool `json:"ready"`
	// Replicas are the wanted ones, ReadyReplicas those that are up to date and ready.
	Replicas      int32 `json:"replicas"`
	ReadyReplicas int32 `json:"readyReplicas"`
	// Reason is why it is not ready, in one line: "Pod demo-root-x: ImagePullBackOff: not found".
	Reason string `json:"reason,omitempty"`
	// Stuck says that the reason does not go away by waiting: a missing image, a crash loop, an unschedulable pod.
	Stuck bool `json:"stuck,omitempty"`
	// Detail is what helps to find the cause, such as the last lines that a crashed process logged.
	Detail []string `json:"detail,omitempty"`
	// Next is the command that repairs it, where there is one.
	Next string `json:"next,omitempty"`
	// Version is what runs: the tag of the image, or what the binary says of itself.
	Version string `json:"version,omitempty"`
	// Restarts is how often containers, or the process, were started again.
	Restarts int32 `json:"restarts,omitempty"`
	// Since is when the oldest replica started.
	Since time.Time `json:"since,omitzero"`
	// Pods are those that have not ended, by name: false for those on their way out. Processes of this machine have none.
	Pods map[string]bool `json:"-"`
}
