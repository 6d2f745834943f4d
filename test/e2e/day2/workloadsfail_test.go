package day2

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/test/e2e/framework"
)

// TestClusterWorkloadsFail gives a physical cluster bad days: its API server is killed, its link to kcp is cut, and it
// refuses objects and pods. Its syncer runs in it.
func TestClusterWorkloadsFail(t *testing.T) {
	f := framework.NewFleet(t)
	for _, part := range []struct {
		name string
		do   func(t *testing.T)
	}{
		{"one up", f.Start},
		{"Deployments run on both clusters", f.RunsOnBoth},
		{"the API server is killed", f.LosesServer},
		{"the link is cut for ten minutes", f.LosesLink},
		{"a quota refuses pods and a Deployment", f.ExceedsQuota},
		{"an admission policy refuses a Deployment", f.IsDenied},
		{"a kind loses a field", f.LosesField},
		{"diff is empty", func(t *testing.T) { require.Empty(t, f.Kcpctl(t, "diff").OK(t).Stdout) }},
		{"deleted objects leave", func(t *testing.T) { f.Clears(t, framework.RootTeam) }},
		{"down leaves nothing", f.LeavesNothing},
	} {
		framework.Step(t, part.name, part.do)
	}
}
