package ui

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
)

// plainLines prints a line for each change of state. Components that wait for their turn, and those that need no
// change, have no line: a setup can have hundreds of them. Many components of a kind that change together
// have one line. The reason for which a component or a step waits has a line if it lasts.
type plainLines struct {
	out *Stream
	now func() time.Time

	mu    sync.Mutex
	begun time.Time
	board *board
	last  map[string]string
	// printed is the last line of each row, and kept are the rows whose message has changed since then.
	printed map[string]printed
	kept    map[string]kept
	// untouched are the ready components for which the run had nothing to do, and skipped are the lines of the ones
	// that it skipped since the last step.
	untouched []string
	skipped   []string
	// crowds are the components of each kind, in the order of their first events.
	crowds []*crowd

	stop, stopped chan struct{}
}

// printed is when a row had a line, its status then, and how many lines it had with this status.
type printed struct {
	at     time.Time
	status run.Status
	lines  int
}

// kept is a row whose message has no line yet, and when it got the message.
type kept struct {
	*row
	text  string
	since time.Time
}

const (
	// lastsFor is how long the first reason for which something waits must last before it has a line.
	lastsFor = 3 * time.Second
	// quietFor is the longest time until a row has its second line, whether the reason lasts or not.
	quietFor = 30 * time.Second
	// rareFor is the time between further lines of a row whose status does not change: a component that is ready within
	// this time has three lines.
	rareFor = 5 * time.Minute
)

// startPlain prints the header, and then the lines of crowds when they are due.
func startPlain(out *Stream, o ProgressOptions) *plainLines {
	p := newPlain(out, o)
	ticker := time.NewTicker(time.Second)
	go func() {
		defer close(p.stopped)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				p.tick()
			case <-p.stop:
				return
			}
		}
	}()
	return p
}

func newPlain(out *Stream, o ProgressOptions) *plainLines {
	p := &plainLines{
		out: out, now: o.Now, begun: o.Now(), board: newBoard(), last: map[string]string{},
		printed: map[string]printed{}, kept: map[string]kept{},
		stop: make(chan struct{}), stopped: make(chan struct{}),
	}
	if o.Header != "" {
		p.line(p.begun, o.Header)
	}
	return p
}

// Observe prints the line of an event, or keeps it for the line of its crowd.
func (p *plainLines) Observe(e run.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.Scope == run.Note {
		p.print(e.Time, gather.In(e.Message))
		for _, text := range tableLines(e.Table) {
			p.line(e.Time, text)
		}
		return
	}
	known := len(p.board.rows)
	r := p.board.update(e)
	c := p.crowdOf(r)
	if c != nil && len(p.board.rows) > known {
		c.rows = append(c.rows, r)
	}
	switch {
	case r.scope == run.Step:
		p.printSkipped(e.Time)
	case r.status == run.Pending:
		return
	case r.untouched():
		if !slices.Contains(p.untouched, r.name) {
			p.untouched = append(p.untouched, r.name)
		}
		return
	}
	text := p.text(r)
	if p.last[r.key()] == text {
		return
	}
	p.last[r.key()] = text
	switch {
	case r.scope == run.Component && (r.status == run.Skipped || r.status == run.NotStarted):
		p.skipped = append(p.skipped, text)
	case c != nil && c.many():
		c.change(r, e.Time, p.begun)
		if c.ended() {
			p.flush(c, e.Time)
		}
	default:
		if c != nil {
			c.changed = slices.DeleteFunc(c.changed, func(kept *row) bool { return kept == r })
		}
		p.show(r, e.Time)
	}
}

// show prints the line of a row, or keeps it until its message has lasted.
func (p *plainLines) show(r *row, now time.Time) {
	key, text := r.key(), p.text(r)
	last, had := p.printed[key]
	if had && last.status == r.status && !final(r.status) {
		if p.kept[key].text != text {
			p.kept[key] = kept{r, text, now}
		}
		p.showKept(now)
		return
	}
	delete(p.kept, key)
	p.printed[key] = printed{now, r.status, 1}
	p.line(now, text)
}

// showKept prints the lines of rows whose messages have lasted, or that had no line for long.
func (p *plainLines) showKept(now time.Time) {
	for _, key := range slices.Sorted(maps.Keys(p.kept)) {
		k := p.kept[key]
		last := p.printed[key]
		second := last.lines == 1 && (now.Sub(k.since) >= lastsFor || now.Sub(last.at) >= quietFor)
		if !second && now.Sub(last.at) < rareFor {
			continue
		}
		delete(p.kept, key)
		if p.board.message(k.row) != "" {
			p.printed[key] = printed{now, last.status, last.lines + 1}
			p.line(now, k.text)
		}
	}
}

func (p *plainLines) text(r *row) string {
	text := p.board.message(r)
	if text != word(r) && !strings.HasPrefix(text, word(r)+" ") { // "ready 2/2" has it already
		text = word(r) + " " + text
	}
	return r.name + " " + text
}

// crowdOf returns the crowd of a row, or nil if it is the only one of its kind.
func (p *plainLines) crowdOf(r *row) *crowd {
	family, _, ok := strings.Cut(r.name, "/")
	if !ok {
		return nil
	}
	for _, c := range p.crowds {
		if c.scope == r.scope && c.family == family {
			return c
		}
	}
	c := &crowd{scope: r.scope, family: family}
	p.crowds = append(p.crowds, c)
	return c
}

// tick prints the lines of the crowds that are due.
func (p *plainLines) tick() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	p.showKept(now)
	for _, c := range p.crowds {
		if len(c.changed) > 0 && !now.Before(c.due) {
			p.flush(c, now)
		}
	}
}

// flush prints what has changed in a crowd: its failures, and a line about all of them. If the run turned out to change
// only a few, each of these has its own line.
func (p *plainLines) flush(c *crowd, now time.Time) {
	if !c.many() {
		for _, r := range c.changed {
			p.line(now, p.text(r))
		}
		c.changed = nil
		return
	}
	var failures []string
	for _, r := range c.changed {
		if r.status == run.Failed {
			failures = append(failures, p.text(r))
		}
	}
	c.changed = nil
	p.print(now, failures)
	if text := c.text(); text != c.printed {
		c.printed = text
		p.line(now, text)
	}
}

// tableLines returns the lines of the table of a note.
func tableLines(rows [][]string) []string {
	var b strings.Builder
	if len(rows) > 0 {
		Table(&b, nil, rows...)
	}
	return strings.FieldsFunc(b.String(), func(r rune) bool { return r == '\n' })
}

// Close prints what is still kept.
func (p *plainLines) Close() {
	close(p.stop)
	<-p.stopped
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	for _, c := range p.crowds {
		if len(c.changed) > 0 {
			p.flush(c, now)
		}
	}
	p.printSkipped(now)
	switch n := len(p.untouched); {
	case n > gather.Listed:
		p.line(now, fmt.Sprintf("components: %d ready, unchanged", n))
	case n > 0:
		p.line(now, strings.Join(p.untouched, ", ")+" ready, unchanged")
	}
}

// printSkipped prints which components were skipped since the last step.
func (p *plainLines) printSkipped(t time.Time) {
	p.print(t, p.skipped)
	p.skipped = nil
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
	if r.status == run.NotStarted {
		return "not started"
	}
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
