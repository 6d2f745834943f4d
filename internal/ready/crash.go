package ready

import (
	"fmt"
	"strings"
)

// Crash is a container that ended and whose last words help to find out why.
type Crash struct {
	Pod, Container string
	// Restarts tells one crash of the container from the next.
	Restarts int32
	// Previous says that the container has been started again since, so that the words are those of its previous life.
	Previous bool
}

// remedy is a command that helps after a crash.
type remedy struct {
	// container is the one that crashes, and line a part of a line that it logs before it ends.
	container, line string
	// command has the pod as its argument.
	command string
}

// remedies are the crashes that a command of kcpctl repairs.
func remedies() []remedy {
	const replace = "kcpctl etcd replace-member %s"
	return []remedy{
		// etcd up to v3.6: server/etcdserver/bootstrap.go. The others know the member, and its data is gone.
		{"etcd", "has already been bootstrapped", replace},
		// etcd up to v3.6: server/etcdserver/api/rafthttp/util.go. The others have removed the member, and its data is still there.
		{"etcd", "the member has been permanently removed from the cluster", replace},
	}
}

// Next is the command that repairs what has crashed, by the lines that were logged last. It is empty if there is none.
func (c Crash) Next(lines []string) string {
	for _, r := range remedies() {
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
