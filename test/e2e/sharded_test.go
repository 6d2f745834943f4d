//go:build e2e

package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// testSharded runs examples/sharded.yaml through its life cycle, on any runtime.
func testSharded(t *testing.T, s *setup) {
	for _, part := range []struct {
		name string
		do   func(*testing.T, *setup)
	}{
		{"up", func(t *testing.T, s *setup) { require.Contains(t, s.up(t).stderr, "kcpctl kubeconfig") }},
		{"status", isReady},
		{"shards are registered", shards},
		{"workspaces on every shard", createWorkspaces},
		{"a second up writes nothing", changesNothing},
		{"render is what up applies", rendersWhatRuns},
		{"authorities' keys stay in the store", keepsKeys},
		{"up continues an interrupted run", survivesInterruption},
		{"up restarts a failed shard", restartsAShard},
		{"down keeps the data", keepsData},
		{"down --purge leaves nothing", leavesNothing},
	} {
		step(t, part.name, func(t *testing.T) { part.do(t, s) })
	}
}

func isReady(t *testing.T, s *setup) {
	st := s.status(t)
	require.Equal(t, s.name, st.Name)
	require.True(t, st.Ready, st)
	require.NotEmpty(t, st.Shards)
	require.Len(t, st.Components, len(s.running(t)))
	for _, c := range st.Components {
		require.True(t, c.Ready, c)
	}
}

// changesNothing requires that up reports no changes and makes none.
func changesNothing(t *testing.T, s *setup) {
	written, running := s.written(t), s.ids(t)
	s.up(t).changed(t, 0)
	require.Equal(t, written, s.written(t))
	require.Equal(t, running, s.ids(t))
}

func rendersWhatRuns(t *testing.T, s *setup) {
	first := s.kcpctl(t, "render").ok(t).stdout
	require.True(t, first == s.kcpctl(t, "render").ok(t).stdout, "two renderings of the same setup differ") // Equal would print keys
	s.applied(t, first)
}

// survivesInterruption interrupts up at random moments, in each of its phases.
func survivesInterruption(t *testing.T, s *setup) {
	ofStep, ofComponent := regexp.MustCompile(`"scope":"step"`), regexp.MustCompile(`"scope":"component".*"status":"running"`)
	before := s.fingerprints(t)
	for i, phase := range []struct {
		name     string
		signal   os.Signal
		event    *regexp.Regexp
		from, to int // of these events
		code     int
	}{
		{"killed while it plans", syscall.SIGKILL, ofStep, 1, 6, -1},
		{"killed while it writes", syscall.SIGKILL, ofComponent, 1, 2, -1},
		{"killed while it waits", syscall.SIGKILL, ofComponent, 3, 8, -1},
		{"interrupted", os.Interrupt, ofComponent, 1, 8, 130},
	} {
		t.Run(phase.name, func(t *testing.T) {
			// Another log level rolls every server of kcp.
			s.edit(t, "\nspec:\n", fmt.Sprintf("\nspec:\n  defaults: {logLevel: %d}\n", 3+i%2))
			r := s.interrupt(t, phase.signal, phase.from+rand.IntN(phase.to-phase.from+1), phase.event)
			require.Equal(t, phase.code, r.code, r.stderr)
			if phase.code == 130 {
				r.refused(t, 130, "hint: ")
			}
			require.Equal(t, before, s.fingerprints(t), "authorities")
		})
	}
	require.NotContains(t, s.up(t).stderr, " 0 changes")
	require.Equal(t, before, s.fingerprints(t), "authorities")
	isReady(t, s)
	readWorkspaces(t, s)
	changesNothing(t, s)
}

// restartsAShard kills the process or pod of a shard. Nothing else may change.
func restartsAShard(t *testing.T, s *setup) {
	victim := s.name + "-shard-alpha"
	before := s.running(t)
	require.Contains(t, before, victim)
	before[victim].kill(t)
	s.up(t)
	eventually(t.Context(), t, func() error {
		if now := s.ids(t); now[victim] == "" || now[victim] == before[victim].id {
			return fmt.Errorf("%s has not come back: %v", victim, now)
		}
		return nil
	})
	for name, id := range s.ids(t) {
		if name != victim {
			require.Equal(t, before[name].id, id, "%s has nothing to do with it", name)
		}
	}
	s.up(t)
	readWorkspaces(t, s)
}

func keepsData(t *testing.T, s *setup) {
	before := s.fingerprints(t)
	s.kcpctl(t, "down", "--yes").ok(t).quiet(t)
	eventually(t.Context(), t, func() error {
		if running := s.ids(t); len(running) > 0 {
			return fmt.Errorf("still running: %v", running)
		}
		return nil
	})
	require.NotEmpty(t, s.left(t.Context(), t))
	s.up(t)
	require.Equal(t, before, s.fingerprints(t), "authorities")
	readWorkspaces(t, s)
}

func leavesNothing(t *testing.T, s *setup) {
	s.kcpctl(t, "down", "--yes", "--purge").ok(t).quiet(t)
	eventually(t.Context(), t, func() error {
		if left := s.left(t.Context(), t); len(left) > 0 {
			return fmt.Errorf("still there:\n  %s", strings.Join(left, "\n  "))
		}
		return nil
	})
}
