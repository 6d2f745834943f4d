package ui

import (
	"context"
	"encoding/json"
	"time"

	"github.com/kcpctl/kcpctl/internal/engine/run"
)

// Progress shows the progress of a run. Observe is a run.Observer.
type Progress interface {
	Observe(run.Event)
	// Close prints the last state and restores the terminal. Observe must not be called afterwards.
	Close()
}

// ProgressOptions configure how a run is shown.
type ProgressOptions struct {
	// Header is the first line: what the run does, and where.
	Header string
	// Now is the clock.
	Now func() time.Time
}

// NewProgress shows a run on the streams: redrawn in place on a terminal, else one line for each change of state. Until
// Close, no one else may write to the streams. When ctx ends, the cursor becomes visible, so that a process that is
// killed afterwards leaves a usable terminal.
func NewProgress(ctx context.Context, s *Streams, o ProgressOptions) Progress {
	if s.Err.Live {
		return startLive(ctx, s.Err, o)
	}
	return startPlain(s.Err, o)
}

// EventLines prints events as JSON on stdout, one per line.
type EventLines struct{ out *json.Encoder }

// NewEventLines returns the writer of a command's events.
func NewEventLines(s *Streams) *EventLines {
	out := json.NewEncoder(s.Out.Writer) // a run goes on without a reader
	out.SetEscapeHTML(false)
	return &EventLines{out}
}

// Observe implements Progress.
func (p *EventLines) Observe(e run.Event) { _ = p.out.Encode(e) } // fails only without a reader

// Close implements Progress.
func (p *EventLines) Close() {}
