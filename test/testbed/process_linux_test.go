package main

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParseStat(t *testing.T) {
	const rest = " S 1 42 42 0 -1 4194560 100 0 0 0 1 2 0 0 20 0 7 0 987654 1000 200 18446744073709551615"
	for name, tc := range map[string]struct {
		stat, state string
		start       uint64
		fails       bool
	}{
		"plain":                        {stat: "42 (etcd)" + rest, state: "S", start: 987654},
		"spaces and parentheses":       {stat: "42 (a) R 1 (b)" + rest, state: "S", start: 987654},
		"cut short":                    {stat: "42 (etcd) S 1 42", fails: true},
		"start time is not a number":   {stat: "42 (etcd) S" + " x x x x x x x x x x x x x x x x x x x", fails: true},
		"nothing that ever was a stat": {stat: "", fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			state, start, err := parseStat(tc.stat)
			if tc.fails {
				require.Error(t, err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.state, state)
			require.Equal(t, tc.start, start)
		})
	}
}

func TestEndKillsNobodyElse(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() }) //nolint:errcheck // it may have ended
	r, err := identify(cmd.Process.Pid)
	require.NoError(t, err)
	require.True(t, r.alive())

	other := record{PID: r.PID, Start: r.Start + 1} // the pid was given to another process since
	require.False(t, other.alive())
	require.NoError(t, other.end(t.Context(), time.Second))
	require.True(t, r.alive(), "a process was killed for bearing the pid of another")

	require.NoError(t, r.end(t.Context(), 5*time.Second))
	require.False(t, r.alive(), "a process that ended and is not reaped counts as alive")
}

func TestEnsureRestartsWhatChanged(t *testing.T) {
	n := node{state: t.TempDir(), run: t.TempDir()}
	require.NoError(t, os.Mkdir(n.stateFile("log"), 0o755))
	require.NoError(t, n.issueAll())
	p := process{name: "p", argv: []string{"/bin/sleep", "60"}}
	t.Cleanup(func() { n.recorded("p").end(t.Context(), 0) }) //nolint:errcheck // it is only a sleep

	did, err := n.ensure(t.Context(), p)
	require.NoError(t, err)
	require.Equal(t, "started", did)
	first := n.recorded("p")

	did, err = n.ensure(t.Context(), p)
	require.NoError(t, err)
	require.Equal(t, "runs", did)
	require.Equal(t, first, n.recorded("p"))

	p.argv = []string{"/bin/sleep", "61"}
	did, err = n.ensure(t.Context(), p)
	require.NoError(t, err)
	require.Equal(t, "started", did)
	require.False(t, first.alive())

	p.argv = []string{"/bin/sh", "-c", "echo it broke; exit 1"}
	_, err = n.ensure(t.Context(), process{name: "p", argv: p.argv, health: "unix:///nowhere"})
	require.ErrorIs(t, err, errGone)
	require.ErrorContains(t, err, "it broke")
}
