package long

import (
	"testing"

	"github.com/kcpctl/kcpctl/test/e2e/framework"
)

// TestClusterInterrupted interrupts up while it rolls every server of kcp on two shards.
func TestClusterInterrupted(t *testing.T) {
	s := framework.NewCluster(t, "sharded")
	s.Up(t)
	framework.CreateWorkspaces(t, s)
	framework.RollsInterrupted(t, s)
	framework.LeavesNothing(t, s)
}
