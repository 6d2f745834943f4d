package e2e

import (
	"sync"
	"testing"
	"time"
)

// machine is held by the test that runs kcp on this machine. Two setups that start at once could choose the same ports:
// each has its own state directory. One here and one on a node are also what two cores bear.
var machine sync.Mutex

// onMachine runs a test that runs kcp on this machine beside those on the node.
func onMachine(t *testing.T) {
	t.Helper()
	t.Parallel()
	began := time.Now()
	machine.Lock()
	t.Cleanup(machine.Unlock)
	t.Logf("other tests on this machine took the first %.0fs", time.Since(began).Seconds())
}
