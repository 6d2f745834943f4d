package framework

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Part is a part of the life cycle of a setup.
type Part struct {
	Name string
	Do   func(*testing.T, *Setup)
}

// Starts is the first part of the life cycle of examples/sharded.yaml, on any runtime.
func Starts() []Part {
	return []Part{{"up", func(t *testing.T, s *Setup) {
		printed := s.Up(t).Stderr
		require.Contains(t, printed, "canary done")
		require.Contains(t, printed, "kcpctl kubeconfig")
	}}}
}

// Serves are the parts that look at what runs.
func Serves() []Part {
	return []Part{
		{"status", IsReady},
		{"shards are registered", Shards},
		{"workspaces on every shard", CreateWorkspaces},
		{"what the servers use", measures},
		{"a second up writes nothing", ChangesNothing},
		{"render is what up applies", RendersWhatRuns},
		{"authorities' keys stay in the store", KeepsKeys},
	}
}

// Survives is the part that stops all of a setup, and then the run of up that starts it again.
func Survives() []Part {
	return []Part{{"down keeps the data, and up continues an interrupted run", keepsData}}
}

// Restarts is a part in which a shard fails.
func Restarts() []Part { return []Part{{"up restarts a failed shard", restartsAShard}} }

// Leaves is the last part.
func Leaves() []Part { return []Part{{"down --purge leaves nothing", LeavesNothing}} }

// Lives runs a setup through the parts of its life cycle.
func Lives(t *testing.T, s *Setup, all ...[]Part) {
	t.Helper()
	for _, p := range slices.Concat(all...) {
		Step(t, p.Name, func(t *testing.T) { p.Do(t, s) })
	}
}

// RollsInterrupted interrupts up while every server of kcp rolls.
func RollsInterrupted(t *testing.T, s *Setup) {
	level := 2
	roll := func() {
		level++
		s.Edit(t, "\nspec:\n", fmt.Sprintf("\nspec:\n  defaults: {logLevel: %d}\n", level))
	}
	interrupts(t, s, roll, roll)
	require.NotContains(t, s.Up(t).Stderr, " 0 changes")
}

// interrupts interrupts up in each of its phases. It calls prepare before each of them, and again before one that has ended
// too early.
func interrupts(t *testing.T, s *Setup, prepare, again func()) {
	ofStep, ofComponent := regexp.MustCompile(`"scope":"step"`), regexp.MustCompile(`"scope":"component".*"status":"running"`)
	before := s.Fingerprints(t)
	for _, phase := range []struct {
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
			prepare()
			r := interruptAt(t, s, phase.signal, phase.n, phase.event, again)
			require.Equal(t, phase.code, r.Code, r.Stderr)
			if phase.code == 130 {
				r.Refused(t, 130, "hint: ")
			}
			require.Equal(t, before, s.Fingerprints(t), "authorities")
		})
	}
}

// interruptAt sends up a signal after n events that match, or after its last one if it has fewer: how many there are
// depends on what it sees while it waits.
func interruptAt(t *testing.T, s *Setup, sig os.Signal, n int, event *regexp.Regexp, again func()) Result {
	t.Helper()
	for {
		r, seen := s.Command("up", "--output", "json").AtMost(t, n, event, func(up *exec.Cmd) {
			require.NoError(t, up.Process.Signal(sig))
		})
		if seen == n {
			return r
		}
		t.Logf("up had only %d of %d events", seen, n)
		require.NotZero(t, seen, r.Stderr)
		n = seen
		again()
	}
}

// restartsAShard kills the process or pod of a shard. Nothing else may change.
func restartsAShard(t *testing.T, s *Setup) {
	victim := s.Name + "-shard-alpha"
	before := s.Running(t)
	require.Contains(t, before, victim)
	before[victim].Kill(t)
	s.Up(t)
	Eventually(t.Context(), t, func() error {
		if now := s.IDs(t); now[victim] == "" || now[victim] == before[victim].ID {
			return fmt.Errorf("%s has not come back: %v", victim, now)
		}
		return nil
	})
	for name, id := range s.IDs(t) {
		if name != victim {
			require.Equal(t, before[name].ID, id, "%s has nothing to do with it", name)
		}
	}
	s.Up(t)
	ReadWorkspaces(t, s)
}

// keepsData stops a setup and starts it again, while up is interrupted. Should all of it run before the last interruption,
// another log level rolls a shard.
func keepsData(t *testing.T, s *Setup) {
	before := s.Fingerprints(t)
	s.Kcpctl(t, "down", "--yes").OK(t).Quiet(t)
	Eventually(t.Context(), t, func() error {
		if running := s.IDs(t); len(running) > 0 {
			return fmt.Errorf("still running: %v", running)
		}
		return nil
	})
	require.NotEmpty(t, s.Left(t.Context(), t))
	level := 2
	interrupts(t, s, func() {}, func() {
		level++
		s.Edit(t, "  - name: alpha\n", fmt.Sprintf("  - name: alpha\n    logLevel: %d\n", level))
	})
	s.Up(t)
	require.Equal(t, before, s.Fingerprints(t), "authorities")
	IsReady(t, s)
	ReadWorkspaces(t, s)
	ChangesNothing(t, s)
}
