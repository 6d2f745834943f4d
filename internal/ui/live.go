package ui

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kcpctl/kcpctl/internal/run"
)

// What terminals understand since the VT100 (ECMA-48).
const (
	hideCursor = "\x1b[?25l"
	showCursor = "\x1b[?25h"
	eraseRight = "\x1b[K" // to the end of the line
	eraseBelow = "\x1b[J" // to the end of the screen
)

// redraw is how often a live region is drawn.
const redraw = 100 * time.Millisecond

// live shows a run in lines that are redrawn in place. The cursor stays at the start of the line below them.
type live struct {
	out *Stream
	now func() time.Time

	mu    sync.Mutex
	board *board
	notes []string

	// Of the drawing goroutine alone, until it has ended: the lines on the screen, how wide it was, and the longest line.
	drawn    []string
	drawnFor int
	widest   int

	stop, stopped chan struct{}
}

// startLive prints the header and starts to draw.
func startLive(ctx context.Context, out *Stream, o ProgressOptions) *live {
	l := newLive(out, o)
	ticker := time.NewTicker(redraw)
	go func() {
		defer close(l.stopped)
		defer ticker.Stop()
		l.loop(ctx, ticker.C)
	}()
	return l
}

func newLive(out *Stream, o ProgressOptions) *live {
	l := &live{out: out, now: o.Now, board: newBoard(), stop: make(chan struct{}), stopped: make(chan struct{})}
	fmt.Fprint(out, hideCursor)
	if o.Header != "" {
		w, _ := out.Size()
		for _, line := range wrap(out.Text(o.Header), w-1) {
			fmt.Fprintln(out, out.Bold(line))
		}
		fmt.Fprintln(out)
	}
	return l
}

func (l *live) loop(ctx context.Context, tick <-chan time.Time) {
	done := ctx.Done()
	for {
		select {
		case <-tick:
			l.draw(false)
		case <-done:
			fmt.Fprint(l.out, showCursor)
			done = nil
		case <-l.stop:
			return
		}
	}
}

// Observe takes an event in; the next frame shows it.
func (l *live) Observe(e run.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.Scope != run.Note {
		l.board.update(e)
		return
	}
	for text := range strings.Lines(e.Message) {
		l.notes = append(l.notes, l.out.Text(text))
	}
}

// Close draws everything once more, this time to stay.
func (l *live) Close() {
	close(l.stop)
	<-l.stopped
	l.draw(true)
	fmt.Fprint(l.out, showCursor)
}

// draw puts the current state over the one that was drawn before, in one write.
func (l *live) draw(final bool) {
	w, h := l.out.Size()
	lines, notes := l.frame(w, h, final)
	resized := w != l.drawnFor
	if len(notes) == 0 && !final && !resized && slices.Equal(lines, l.drawn) {
		return
	}
	var b strings.Builder
	if up := min(height(l.drawn, w), h-1); up > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", up)
	}
	b.WriteString("\r")
	for _, line := range slices.Concat(notes, lines) {
		b.WriteString(eraseRight + line + "\n") // erased as a whole, terminals forget that they had broken the line
	}
	b.WriteString(eraseBelow)
	if final && len(lines) > 0 {
		b.WriteString("\n")
	}
	fmt.Fprint(l.out, b.String())
	l.drawn, l.drawnFor = lines, w
}

// frame returns the lines to draw, and the notes since the last frame. Before the end they are no more than fit on the
// screen.
func (l *live) frame(w, h int, final bool) (lines, notes []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	rows := l.board.rows
	if !final {
		rows = fit(rows, max(1, h-1-gaps(rows)))
	}
	lines = l.lines(rows, w, final)
	for _, note := range l.notes {
		notes = append(notes, wrap(note, w-1)...)
	}
	l.notes = nil
	return lines, notes
}

// height is how many lines of the screen are taken by lines that were drawn before it became w columns wide: terminals
// break lines that have become too long for them.
func height(lines []string, w int) int {
	n := 0
	for _, line := range lines {
		n += max(1, (width(line)+w-1)/w)
	}
	return n
}

// Screen shows one text after the other in the same place. Where nothing can be redrawn it prints those that differ.
type Screen struct {
	*Stream
	last string
}

// Show replaces what is shown.
func (s *Screen) Show(text string) error {
	if text == s.last {
		return nil
	}
	out := text
	switch {
	case s.Live:
		out = "\x1b[H\x1b[2J" + text
	case s.last != "":
		out = "\n" + text
	}
	s.last = text
	_, err := io.WriteString(s, out)
	return err
}
