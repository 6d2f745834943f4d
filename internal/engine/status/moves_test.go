package status_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/engine/run/deploy"
	"github.com/kcpctl/kcpctl/internal/engine/run/shards"
	"github.com/kcpctl/kcpctl/internal/engine/status"
	"github.com/kcpctl/kcpctl/internal/testutil/fakekcp"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeruntime"
)

const onTheMove = "1 workspace is being moved, and may refuse requests until the moves are completed: root:a"

// toRoot is a run that moves root:a to the root shard.
func toRoot(top *topology.Topology, rt *fakeruntime.Runtime) *shards.Moves {
	rt.Command = "kcpctl move root:a --to root"
	return &shards.Moves{
		Topology: top, Runtime: rt, Choice: shards.Selected{Workspaces: []string{"root:a"}, To: "root"},
		Observe: func(run.Event) {}, Now: time.Now, Timeout: time.Hour,
	}
}

// What an interrupted run has left closed is read from kcp: any later run clears the mark of the run.
func TestInterruptedMovesAreKnownAfterAnotherRun(t *testing.T) {
	for _, phase := range []string{"Preparing", "Migrating", "OriginCleanup", "DestinationFinalize"} {
		inWorld(t, true, func(t *testing.T, top *topology.Topology, rt *fakeruntime.Runtime) {
			m := rt.Kcp.ServeMoves(fakekcp.Cluster{Path: "root:a", Shard: "alpha"})
			ctx, cancel := context.WithCancel(t.Context())
			m.During = func(now, _ string) {
				if now == phase {
					m.Before = func() bool { return false }
					cancel()
				}
			}
			require.Error(t, toRoot(top, rt).Run(ctx))
			m.Resume()
			m.Do(func() { m.During = nil })
			require.NotNil(t, collect(t, top, rt).LastRun)

			u := &deploy.Up{Topology: top, Runtime: rt, Observe: func(run.Event) {}, Now: time.Now, Network: fakeruntime.Network{}}
			_, err := u.Run(t.Context())
			require.NoError(t, err)
			s := collect(t, top, rt)
			require.Nil(t, s.LastRun)
			require.Equal(t, onTheMove, s.Problem)
			require.Equal(t, status.NotReady, s.State)
			require.Equal(t, "kcpctl move a-id --to root", s.Moves[0].Command())
			require.Len(t, s.Moves, 1)
			require.Len(t, s.Shards, 2)

			require.NoError(t, toRoot(top, rt).Run(t.Context()))
			s = collect(t, top, rt)
			require.Empty(t, s.Problem)
			require.True(t, s.Ready)
		})
	}
}

// As long as a run is in progress, or may be, nothing is wrong with its moves.
func TestMovesInProgress(t *testing.T) {
	closed := fakekcp.Cluster{
		Path: "root:a", Shard: "alpha", Phase: "Unavailable", Annotations: map[string]string{"kcpctl.dev/moving": "root"},
	}
	inWorld(t, true, func(t *testing.T, top *topology.Topology, rt *fakeruntime.Runtime) {
		rt.Kcp.ServeMoves(closed)
		rt.Current = &record.Run{Command: "kcpctl move root:a --to root", PID: 17}
		require.True(t, collect(t, top, rt).Ready)
		rt.Current = nil
		looks := 0
		rt.On("Runs", func() error {
			if looks++; looks == 2 {
				rt.Current = &record.Run{Command: "kcpctl move root:a --to root", PID: 17}
			}
			return nil
		})
		require.True(t, collect(t, top, rt).Ready, "it has begun after the first look")
		rt.Current = nil
		rt.On("Runs", func() error { return errors.New("no answer") })
		require.True(t, collect(t, top, rt).Ready, "it is not known")
	})
}

// A workspace that is closed without a migration, such as after a restore, is opened by the command that status names.
func TestClosedWithoutAMigration(t *testing.T) {
	inWorld(t, true, func(t *testing.T, top *topology.Topology, rt *fakeruntime.Runtime) {
		m := rt.Kcp.ServeMoves(fakekcp.Cluster{
			Path: "root:a", Shard: "root", Phase: "Unavailable", Annotations: map[string]string{"kcpctl.dev/moving": "root"},
		})
		s := collect(t, top, rt)
		require.False(t, s.Ready)
		require.Equal(t, onTheMove, s.Problem)
		require.Equal(t, "kcpctl move a-id --to root", s.Moves[0].Command())
		require.NoError(t, toRoot(top, rt).Run(t.Context()))
		c, _ := m.On("a-id")
		require.Equal(t, "Ready", c.Phase)
		require.True(t, collect(t, top, rt).Ready)
	})
}
