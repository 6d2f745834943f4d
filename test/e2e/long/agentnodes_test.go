package long

import (
	"testing"

	"github.com/kcpctl/kcpctl/test/e2e/framework"
)

// TestClusterAgent runs a kcp and its agent on a cluster, from one file.
func TestClusterAgent(t *testing.T) {
	a, n := framework.NewAgentsInside(t, ephemeralShards)
	for _, part := range []struct {
		name string
		do   func(t *testing.T)
	}{
		{"one up", func(t *testing.T) { a.Up(t); n.Lead(t, a.Kcp) }},
		{"a Widget of a workspace on another shard", func(t *testing.T) {
			a.IsOn(t, "team", "beta")
			a.Serves(t, framework.Consumer, "first")
		}},
		{"a second up writes nothing", a.Settled},
		{"the credential of the agent", a.Confined},
		{"an agent in use is not removed", func(t *testing.T) {
			a.Kcpctl(t, "down", "--yes", "--purge").Refused(t, 1, "agent/widgets", "1 "+a.Export()+" in "+framework.Consumer, "--orphan")
		}},
		{"deleted objects leave", func(t *testing.T) { a.Release(t, framework.Consumer, "first") }},
		{"down leaves nothing", a.LeavesNothing},
	} {
		framework.Step(t, part.name, part.do)
	}
}
