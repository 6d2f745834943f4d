package long

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/test/e2e/framework"
)

// TestClusterWorkloads runs what users create in workspaces on two physical clusters. The controller syncs one, and a
// syncer in it the other.
func TestClusterWorkloads(t *testing.T) {
	f := framework.NewFleet(t)
	for _, part := range []struct {
		name string
		do   func(t *testing.T)
	}{
		{"one up", f.Start},
		{"the syncer runs in its cluster", f.Pulls},
		{"the APIs are in a workspace on another shard", f.HasAPIs},
		{"a Deployment runs on both clusters", f.Runs},
		{"the certificate of the syncer is renewed", f.Renews},
		{"it scales", f.Scales},
		{"a new image replaces pods without a gap", f.RollsOut},
		{"a change that kcp would lose is refused", f.Guarded},
		{"another workspace has the same names", f.SameNames},
		{"other kinds", f.Kinds},
		{"annotations choose clusters", f.Chooses},
		{"pods do not get the network of a node", f.Confines},
		{"a cluster is drained", f.Drains},
		{"diff is empty", func(t *testing.T) { require.Empty(t, f.Kcpctl(t, "diff").OK(t).Stdout) }},
		{"deleted objects leave", func(t *testing.T) { f.Clears(t, framework.RootTeam, framework.RootOther) }},
		{"a cluster is removed", f.LeavesCluster},
		{"down leaves nothing", f.LeavesNothing},
	} {
		framework.Step(t, part.name, part.do)
	}
}
