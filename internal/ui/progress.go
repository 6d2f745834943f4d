package ui

import (
	"context"
	"encoding/json"
	"time"

	"github.com/kcpctl/kcpctl/internal/run"
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
	// JSON prints one event per line on stdout, and nothing on stderr.
	JSON bool
	// Now is the clock.
	Now func() time.Time
}

// NewProgress shows a run on the streams: redrawn in place on a terminal, else one line for each change of state. Until Close, no
// one else may write to the streams. When ctx ends, the cursor becomes visible, so that a process that is killed afterwards
// leaves a usable terminal.
func NewProgress(ctx context.Context, s *Streams, o ProgressOptions) Progress {
	switch {
	case o.JSON:
		out := json.NewEncoder(s.Out)
		out.SetEscapeHTML(false)
		return &eventLines{out}
	case s.Err.Live:
		return startLive(ctx, s.Err, o)
	}
	return startPlain(s.Err, o)
}

// eventLines prints events as JSON.
type eventLines struct{ out *json.Encoder }

func (p *eventLines) Observe(e run.Event) { _ = p.out.Encode(e) } // fails only if stdout is closed
func (p *eventLines) Close()              {}
