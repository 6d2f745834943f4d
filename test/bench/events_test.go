package main

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/engine/run"
)

// events are the events of a run in which alpha starts early and waits for root. front-proxy is not on the critical
// path.
func events(t *testing.T, started time.Time) *bytes.Buffer {
	t.Helper()
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	for _, e := range []struct {
		second int
		run.Event
	}{
		{0, run.Event{Scope: run.Step, Name: "plan", Status: run.Running}},
		{1, run.Event{Scope: run.Step, Name: "plan", Status: run.Done}},
		{1, run.Event{Scope: run.Component, Name: "root", Status: run.Pending}},
		{1, run.Event{Scope: run.Component, Name: "alpha", Status: run.Pending, Needs: []string{"root"}}},
		{1, run.Event{Scope: run.Component, Name: "proxy", Status: run.Pending, Needs: []string{"root"}}},
		{2, run.Event{Scope: run.Component, Name: "root", Status: run.Running, Message: "applying 7 objects"}},
		{3, run.Event{Scope: run.Component, Name: "root", Status: run.Running, Message: "started"}},
		{3, run.Event{Scope: run.Note, Message: "a note"}},
		{4, run.Event{Scope: run.Component, Name: "alpha", Status: run.Running, Message: "started"}},
		{10, run.Event{Scope: run.Component, Name: "root", Status: run.Done}},
		{11, run.Event{Scope: run.Component, Name: "proxy", Status: run.Running, Message: "started"}},
		{12, run.Event{Scope: run.Component, Name: "proxy", Status: run.Done}},
		{15, run.Event{Scope: run.Component, Name: "alpha", Status: run.Done}},
		{16, run.Event{Scope: run.Step, Name: canary, Status: run.Running}},
		{18, run.Event{Scope: run.Step, Name: canary, Status: run.Done}},
	} {
		e.Time = started.Add(time.Duration(e.second) * time.Second)
		require.NoError(t, enc.Encode(e.Event))
	}
	return &out
}

func TestTimeline(t *testing.T) {
	started := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	tl, err := newTimeline(events(t, started), usage{started: started, wall: 20 * time.Second})
	require.NoError(t, err)
	require.Equal(t, path{"up", 20, []pathStep{
		{Name: "certificates, preflight, plan", From: 0, To: 2},
		{Name: "root", From: 2, To: 10, Started: 3},
		{Name: "alpha", From: 10, To: 15, Started: 4},
		{Name: "until the canary begins", From: 15, To: 16},
		{Name: "canary", From: 16, To: 18},
		{Name: "the end, after the canary", From: 18, To: 20},
	}}, tl.path("up"))
	require.Equal(t, 6*time.Second, tl.own(), "it waited from 3 to 15 and from 16 to 18")
}
