package local

import (
	"encoding/json"
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/runtime/local/process"
)

// The lock names its run, and the mark of a run that has not finished has the reason.
func TestRunsOnThisMachine(t *testing.T) {
	m := newMachine(t)
	s := m.open(file())
	runs := func() (current, unfinished *record.Run) {
		t.Helper()
		current, unfinished, err := s.rt.Runs(t.Context())
		require.NoError(t, err)
		return current, unfinished
	}
	current, unfinished := runs()
	require.Nil(t, current)
	require.Nil(t, unfinished)

	_, unlock, err := s.rt.Lock(t.Context())
	require.NoError(t, err)
	current, unfinished = runs()
	require.Equal(t, os.Getpid(), current.PID)
	require.False(t, current.Since.IsZero())
	require.Nil(t, unfinished)
	s.rt.Ended(t.Context(), errors.New("refused"))
	_, unfinished = runs()
	require.Nil(t, unfinished, "it has not begun to write")

	require.NoError(t, s.rt.Begin(t.Context(), &plan.Plan{}, &record.Record{}))
	_, unfinished = runs()
	require.Equal(t, record.RunInterrupted, unfinished.Result, "as if it were killed now")
	s.rt.Ended(t.Context(), errors.New("boom"))
	unlock()
	current, unfinished = runs()
	require.Nil(t, current)
	require.Equal(t, record.RunFailed, unfinished.Result)
	require.Equal(t, "boom", unfinished.Error)

	// Another run is refused, and does not replace the reason.
	other := m.open(file())
	other.rt.Ended(t.Context(), clierr.New(clierr.Failed, "", "refused"))
	_, unfinished = runs()
	require.Equal(t, "boom", unfinished.Error)

	require.NoError(t, s.rt.Finish(t.Context(), &plan.Plan{}, &record.Record{}, plan.Applied{}))
	_, unfinished = runs()
	require.Nil(t, unfinished)
}

// The lock file of a process that was killed is not a run, even if another process has its PID.
func TestDeadHolder(t *testing.T) {
	m := newMachine(t)
	s := m.open(file())
	self, err := process.Identify(os.Getpid())
	require.NoError(t, err)
	for name, tc := range map[string]struct {
		holder holder
		want   bool
	}{
		"this process":             {holder{record.Run{PID: self.PID}, self.Start}, true},
		"of an earlier release":    {holder{record.Run{PID: self.PID}, ""}, true},
		"another one with its PID": {holder{record.Run{PID: self.PID}, "before"}, false},
		"killed":                   {holder{record.Run{PID: 1<<22 + 1}, ""}, false},
	} {
		raw, err := json.Marshal(tc.holder)
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(m.layout().Dir, 0o700))
		require.NoError(t, os.WriteFile(m.layout().path(fileLock), raw, 0o600))
		current, _, err := s.rt.Runs(t.Context())
		require.NoError(t, err)
		require.Equal(t, tc.want, current != nil, name)
	}
}

// A mark of an earlier release is empty.
func TestMarkOfAnEarlierRelease(t *testing.T) {
	m := newMachine(t)
	require.NoError(t, os.MkdirAll(m.layout().Dir, 0o700))
	require.NoError(t, os.WriteFile(m.layout().path(fileApplying), nil, 0o600))
	_, unfinished, err := m.open(file()).rt.Runs(t.Context())
	require.NoError(t, err)
	require.Equal(t, &record.Run{Result: record.RunInterrupted}, unfinished)
}

// While a process is being stopped, it still has its ports: they are not taken by another one.
func TestNoPortComplaintWhileStopping(t *testing.T) {
	m := newMachine(t)
	m.up(file())
	l := m.layout()
	rec, err := l.record(alpha)
	require.NoError(t, err)
	rec.Stopping = true
	require.NoError(t, l.writeRecord(alpha, rec))
	s := m.open(file())
	l2 := s.rt.layout
	l2.ports.Listening = func(int32) bool { return true }
	l2.ports.Free = func(int32) bool { return false }
	state, err := s.rt.State(t.Context(), s.rt.topology.Component("shard/alpha"))
	require.NoError(t, err)
	require.Equal(t, "stopping", state.Reason)
}
