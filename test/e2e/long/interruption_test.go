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
