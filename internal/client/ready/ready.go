// Package ready decides whether a component is ready and, while it is not, why.
package ready

import (
	"fmt"
	"strings"
	"time"
)

// RolloutNotStarted is the reason of a workload whose controller has not seen the latest change.
const RolloutNotStarted = "rollout not started"

// State is the state of a component.
type State struct {
	// Ready means that every replica is up to date and passes its readiness probe.
	Ready bool `json:"ready"`
	// Replicas is the desired number, and ReadyReplicas the number of those that are up to date and ready.
	Replicas      int32 `json:"replicas"`
	ReadyReplicas int32 `json:"readyReplicas"`
	// Reason is why it is not ready, in one line: "Pod demo-root-x: ImagePullBackOff: not found".
	Reason string `json:"reason,omitempty"`
	// Stuck means that waiting does not help: a missing image, a crash loop, an unschedulable pod.
	Stuck bool `json:"stuck,omitempty"`
	// Unexamined means that it was not found out whether it is ready, for Reason.
	Unexamined bool `json:"-"`
	// Detail helps to find the cause, such as the last lines that a crashed process logged.
	Detail []string `json:"detail,omitempty"`
	// Next is the command that repairs it, if there is one.
	Next string `json:"next,omitempty"`
	// Version is the version that runs: the tag of the image, or what the binary reports.
	Version string `json:"version,omitempty"`
	// Restarts is how often containers, or the process, were restarted.
	Restarts int32 `json:"restarts,omitempty"`
	// Since is when the oldest replica started.
	Since time.Time `json:"since,omitzero"`
	// Pods are those that have not ended, by name: false for pods that are being deleted. Processes of this machine
	// have no pods.
	Pods map[string]bool `json:"-"`
}

// Crash is a container that ended, and whose last log lines help to find out why.
type Crash struct {
	Pod, Container string
	// Restarts distinguishes the crashes of a container.
	Restarts int32
	// Previous means that the container has been restarted since, so that the lines are from its previous instance.
	Previous bool
}

// remedy is a command that helps after a crash.
type remedy struct {
	// container is the one that crashes, and line is part of a line that it logs before it ends.
	container, line string
	// command has the pod as its argument.
	command string
}

const replaceMember = "kcpctl etcd replace-member %s"

// remedies are the crashes that a command of kcpctl repairs.
var remedies = []remedy{
	// etcd up to v3.6: server/etcdserver/bootstrap.go. The other members know this one, and its data is gone.
	{"etcd", "has already been bootstrapped", replaceMember},
	// etcd up to v3.6: server/etcdserver/api/rafthttp/util.go. The other members have removed this one, and it still
	// has its data.
	{"etcd", "the member has been permanently removed from the cluster", replaceMember},
}

// Next returns the command that repairs a crash, by the lines that were logged last. It is empty if there is none.
func (c Crash) Next(lines []string) string {
	for _, r := range remedies {
		if r.container != c.Container {
			continue
		}
		for _, l := range lines {
			if strings.Contains(l, r.line) {
				return fmt.Sprintf(r.command, c.Pod)
			}
		}
	}
	return ""
}
