package long

import (
	"testing"

	"github.com/kcpctl/kcpctl/test/e2e/framework"
)

// TestClusterInterrupted interrupts up while it rolls every server of kcp on two shards, and kills one of them.
func TestClusterInterrupted(t *testing.T) {
	s := framework.NewCluster(t, "sharded")
	rolls := []framework.Part{{Name: "up continues when every server rolls", Do: framework.RollsInterrupted}}
	framework.Lives(t, s, framework.Starts(), framework.Serves(), rolls, framework.Restarts(), framework.Leaves())
}

// TestLocalInterrupted stops kcp on this machine, and interrupts each phase of the up that starts it again.
func TestLocalInterrupted(t *testing.T) {
	s := framework.NewLocal(t, "sharded")
	writes := []framework.Part{{Name: "workspaces on every shard", Do: framework.CreateWorkspaces}}
	framework.Lives(t, s, framework.Starts(), writes, framework.Survives(), framework.Leaves())
}
