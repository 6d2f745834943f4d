package cmd

import (
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/cmd/ui"
	"github.com/kcpctl/kcpctl/internal/engine/run"
)

// A note of a runtime is a line of its own, and during a run an event of it, because the progress owns the terminal
// then. With -o json all notes are events.
func TestReporter(t *testing.T) {
	streams, out, errs := ui.Fake("", 0, 0)
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	r := &reporter{env: &Env{Streams: streams, Now: func() time.Time { return now }}}
	r.note("before")
	r.observe(run.Event{Scope: run.Note, Message: "dropped"})
	require.Equal(t, "note: before\n", errs.String())

	r.env.startEvents(&cobra.Command{Use: "kcpctl"})
	r.env.events.begun = true
	end := r.begin(t.Context(), "header")
	r.note("within")
	r.observe(run.Event{Time: now, Scope: run.Step, Name: "plan", Status: run.Done})
	end()
	r.note("after")
	require.Equal(t, `{"time":"2026-11-20T12:00:00Z","scope":"note","message":"within"}
{"time":"2026-11-20T12:00:00Z","scope":"step","name":"plan","status":"done"}
{"time":"2026-11-20T12:00:00Z","scope":"note","message":"after"}
`, out.String())
	require.Equal(t, "note: before\n", errs.String())
}
