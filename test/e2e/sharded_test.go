//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// part is a part of the life cycle of a setup.
type part struct {
	name string
	do   func(*testing.T, *setup)
}

// begins are the parts of the life cycle of examples/sharded.yaml, on any runtime, until it serves.
func begins() []part {
	return []part{
		{"up", func(t *testing.T, s *setup) {
			printed := s.up(t).stderr
			require.Contains(t, printed, "canary done")
			require.Contains(t, printed, "kcpctl kubeconfig")
		}},
		{"status", isReady},
		{"shards are registered", shards},
		{"workspaces on every shard", createWorkspaces},
		{"a second up writes nothing", changesNothing},
		{"render is what up applies", rendersWhatRuns},
		{"authorities' keys stay in the store", keepsKeys},
	}
}

// goesOn are the parts that follow.
func goesOn() []part {
	return []part{
		{"up continues an interrupted run", survivesInterruption},
		{"up restarts a failed shard", restartsAShard},
		{"down keeps the data", keepsData},
		{"down --purge leaves nothing", leavesNothing},
	}
}

// lives runs a setup through the parts of its life cycle.
func (s *setup) lives(t *testing.T, all ...[]part) {
	t.Helper()
	for _, p := range slices.Concat(all...) {
		step(t, p.name, func(t *testing.T) { p.do(t, s) })
	}
}

// isReady waits until status reports that all components are ready. A busy server may not answer it in time.
func isReady(t *testing.T, s *setup) {
	eventually(t.Context(), t, func() error {
		st, err := s.tryStatus(t)
		switch {
		case err != nil:
			return err
		case st.Name != s.name || !st.Ready || len(st.Shards) == 0:
			return fmt.Errorf("%s is not ready: %v", s.name, st)
		}
		for _, c := range st.Components {
			if !c.Ready {
				return fmt.Errorf("%s is not ready: %v", c.ID, c)
			}
		}
		if running := s.ids(t); len(running) != len(st.Components) {
			return fmt.Errorf("status has %v, and %v run", st.Components, running)
		}
		return nil
	})
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

// survivesInterruption interrupts up in each of its phases.
func survivesInterruption(t *testing.T, s *setup) {
	ofStep, ofComponent := regexp.MustCompile(`"scope":"step"`), regexp.MustCompile(`"scope":"component".*"status":"running"`)
	before := s.fingerprints(t)
	for i, phase := range []struct {
		name   string
		signal os.Signal
		event  *regexp.Regexp
		n      int // of these events
		code   int
	}{
		{"killed while it plans", syscall.SIGKILL, ofStep, 3, -1},
		{"killed while it writes", syscall.SIGKILL, ofComponent, 1, -1},
		{"killed while it waits", syscall.SIGKILL, ofComponent, 5, -1},
		{"interrupted", os.Interrupt, ofComponent, 4, 130},
	} {
		t.Run(phase.name, func(t *testing.T) {
			r := s.interruptAt(t, phase.signal, phase.n, phase.event, 3+i%2)
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

// interruptAt sends up a signal after n events that match, or after its last one if it has fewer: how many there are
// depends on what it sees while it waits. Another log level rolls every server of kcp.
func (s *setup) interruptAt(t *testing.T, sig os.Signal, n int, event *regexp.Regexp, logLevel int) result {
	t.Helper()
	for {
		s.edit(t, "\nspec:\n", fmt.Sprintf("\nspec:\n  defaults: {logLevel: %d}\n", logLevel))
		r, seen := s.command("up", "--output", "json").atMost(t, n, event, func(up *exec.Cmd) {
			require.NoError(t, up.Process.Signal(sig))
		})
		if seen == n {
			return r
		}
		t.Logf("up had only %d of %d events", seen, n)
		require.NotZero(t, seen, r.stderr)
		n, logLevel = seen, logLevel+2
	}
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
