package ui

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
)

// Control sequences (ECMA-48). All terminals since the VT100 support them.
const (
	hideCursor = "\x1b[?25l"
	showCursor = "\x1b[?25h"
	eraseRight = "\x1b[K" // to the end of the line
	eraseBelow = "\x1b[J" // to the end of the screen
)

// redraw is the interval at which a live region is drawn.
const redraw = 100 * time.Millisecond

// live shows a run in lines that are redrawn in place. The cursor remains at the start of the line below.
type live struct {
	out *Stream
	now func() time.Time

	mu    sync.Mutex
	board *board
	notes []string

	// Used by the drawing goroutine only, until it has ended: the lines on the screen, the width that they were drawn
	// for, and the width of the longest line.
	drawn    []string
	drawnFor int
	widest   int

	stop, stopped chan struct{}
}

// startLive prints the header and starts drawing.
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

// Observe records an event for the next frame.
func (l *live) Observe(e run.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.Scope != run.Note {
		l.board.update(e)
		return
	}
	for _, text := range slices.Concat(slices.Collect(strings.Lines(e.Message)), tableLines(e.Table)) {
		l.notes = append(l.notes, l.out.Text(text))
	}
}

// Close draws the last frame.
func (l *live) Close() {
	close(l.stop)
	<-l.stopped
	l.draw(true)
	fmt.Fprint(l.out, showCursor)
}

// draw replaces the previous frame with the current state, in one write.
func (l *live) draw(last bool) {
	w, h := l.out.Size()
	lines, notes := l.frame(w, h, last)
	resized := w != l.drawnFor
	if len(notes) == 0 && !last && !resized && slices.Equal(lines, l.drawn) {
		return
	}
	var b strings.Builder
	if up := min(height(l.drawn, w), h-1); up > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", up)
	}
	b.WriteString("\r")
	for _, line := range slices.Concat(notes, lines) {
		b.WriteString(eraseRight + line + "\n") // erasing a wrapped line makes terminals forget that it was wrapped
	}
	b.WriteString(eraseBelow)
	if last && len(lines) > 0 {
		b.WriteString("\n")
	}
	fmt.Fprint(l.out, b.String())
	l.drawn = lines
	l.drawnFor = w
}

// endRows is how many rows the last frame has at least before it folds some: a small setup is listed completely,
// whatever the height of the screen, and the result of a large one does not scroll away the steps above it.
const endRows = 40

// frame returns the lines to draw, and the notes since the previous frame. All frames except the last fit on the
// screen.
func (l *live) frame(w, h int, last bool) (lines, notes []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	room := max(1, h-1-gaps(l.board.rows))
	if last {
		room = max(room, endRows)
	}
	lines = l.lines(fit(l.board.rows, room), w, last)
	for _, note := range gather.Messages(l.notes) {
		notes = append(notes, wrap(note, w-1)...)
	}
	l.notes = nil
	return lines, notes
}

// height is the number of screen lines that drawn lines take after the terminal was resized to w columns, because
// terminals wrap lines that have become too long.
func height(lines []string, w int) int {
	n := 0
	for _, line := range lines {
		n += max(1, (width(line)+w-1)/w)
	}
	return n
}

// Screen shows one text after another in the same place. On streams that are not terminals it prints each text that
// differs from the previous one.
type Screen struct {
	*Stream
	last string
}

// Show replaces the text on the screen.
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
