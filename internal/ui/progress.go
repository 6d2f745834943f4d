package ui

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/kcpctl/kcpctl/internal/gather"
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
	p := &plainLines{out: s.Err, now: o.Now, board: newBoard(), last: map[string]string{}}
	if o.Header != "" {
		p.line(o.Now(), o.Header)
	}
	return p
}

// eventLines prints events as JSON.
type eventLines struct{ out *json.Encoder }

func (p *eventLines) Observe(e run.Event) { _ = p.out.Encode(e) } // fails only if stdout is closed
func (p *eventLines) Close()              {}

// plainLines prints a line for each change of state. Components that wait for their turn, and those that need no change, have no
// line of their own: a setup can have hundreds of them.
type plainLines struct {
	out   *Stream
	now   func() time.Time
	board *board
	last  map[string]string
	// untouched is the number of ready components since the last step for which the run had nothing to do, and skipped are the
	// lines of those that it skipped.
	untouched int
	skipped   []string
}

func (p *plainLines) Observe(e run.Event) {
	if e.Scope == run.Note {
		p.print(e.Time, gather.In(e.Message))
		for _, text := range tableLines(e.Table) {
			p.line(e.Time, text)
		}
		return
	}
	r := p.board.update(e)
	switch {
	case r.scope == run.Step:
		p.sumUp(e.Time)
	case r.status == run.Pending:
		return
	case r.status == run.Done && r.started.IsZero():
		p.untouched++
		return
	}
	text := p.board.message(r)
	if first, _, _ := strings.Cut(text, " "); first != word(r) { // "ready 2/2" has it already
		text = word(r) + " " + text
	}
	text = r.name + " " + text
	if p.last[r.key()] == text {
		return
	}
	p.last[r.key()] = text
	if r.scope == run.Component && r.status == run.Skipped {
		p.skipped = append(p.skipped, text)
		return
	}
	p.line(e.Time, text)
}

// tableLines returns the lines of the table of a note.
func tableLines(rows [][]string) []string {
	var b strings.Builder
	if len(rows) > 0 {
		Table(&b, nil, rows...)
	}
	return strings.FieldsFunc(b.String(), func(r rune) bool { return r == '\n' })
}

func (p *plainLines) Close() { p.sumUp(p.now()) }

// sumUp prints how many components were untouched, and which were skipped.
func (p *plainLines) sumUp(t time.Time) {
	if p.untouched > 0 {
		p.line(t, fmt.Sprintf("components: %d ready, unchanged", p.untouched))
	}
	p.print(t, p.skipped)
	p.untouched, p.skipped = 0, nil
}

// print prints messages, those that are alike in one line.
func (p *plainLines) print(t time.Time, messages []string) {
	for _, m := range gather.Messages(messages) {
		for text := range strings.Lines(m) {
			p.line(t, text)
		}
	}
}

func (p *plainLines) line(t time.Time, text string) {
	fmt.Fprintln(p.out, t.UTC().Format(time.RFC3339), p.out.Text(text))
}

// word is the status of a row in plain lines, which have no glyphs.
func word(r *row) string {
	if r.scope == run.Component {
		switch r.status {
		case run.Running:
			return "waiting"
		case run.Done:
			return "ready"
		}
	}
	return string(r.status)
}
