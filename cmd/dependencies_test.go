package cmd

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeruntime"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// A component whose dependency is not there cannot become ready. It may reach a dependency that kcpctl cannot.
func TestRequireDependencies(t *testing.T) {
	top := topologytest.Build(t, withAlpha)
	rt := fakeruntime.New(t, top)
	s := &session{topology: top, runtime: rt}
	selected := []topology.ID{"base/default", "etcd/alpha", "shard/alpha"}
	err := requireDependencies(t.Context(), s, selected, "add --only %s")
	require.ErrorContains(t, err, "shard/alpha needs root-shard, which is not ready")
	rt.Lost = []plan.Unreachable{{Cluster: "default", Err: errors.New("no answer")}}
	require.NoError(t, requireDependencies(t.Context(), s, selected, "add --only %s"))
}
