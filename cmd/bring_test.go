package cmd

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/run"
	"github.com/kcpctl/kcpctl/internal/ui"
)

// What a runtime says is a note, and within a run an event of it: nobody else may write then.
func TestVoice(t *testing.T) {
	streams, out, errs := ui.Fake("", 0, 0)
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	v := &voice{env: &Env{Streams: streams, Now: func() time.Time { return now }}}
	v.say("before")
	v.observe(run.Event{Scope: run.Note, Message: "to nobody"})
	require.Equal(t, "note: before\n", errs.String())

	end := v.begin(t.Context(), "header", outputJSON)
	v.say("within")
	v.observe(run.Event{Time: now, Scope: run.Step, Name: "plan", Status: run.Done})
	end()
	require.Equal(t, `{"time":"2026-11-20T12:00:00Z","scope":"note","message":"within"}
{"time":"2026-11-20T12:00:00Z","scope":"step","name":"plan","status":"done"}
`, out.String())

	v.say("after")
	require.Equal(t, "note: before\nnote: after\n", errs.String())
}
