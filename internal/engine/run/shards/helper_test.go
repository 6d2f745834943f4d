package shards_test

import (
	"testing"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeruntime"
	"github.com/kcpctl/kcpctl/internal/testutil/runtest"
)

// world is a setup, what it runs on and a run of it.
type world struct{ *runtest.World }

// inWorld runs a test in a bubble, see runtest.In.
func inWorld(t *testing.T, text string, test func(t *testing.T, w *world)) {
	t.Helper()
	runtest.In(t, text, func(t *testing.T, w *runtest.World) { test(t, &world{w}) })
}

func newWorld(t *testing.T, top *topology.Topology, rt *fakeruntime.Runtime) *world {
	return &world{runtest.New(t, top, rt)}
}
