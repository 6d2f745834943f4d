package ui

import (
	"strings"
	"time"

	"github.com/kcpctl/kcpctl/internal/engine/run"
)

// minWidth is the minimum column in which elapsed times end, on terminals that are wide enough.
const minWidth = 76

// minRoom is the number of columns that a line needs before its time. Narrower lines have no time.
const minRoom = 16

// gaps returns the number of empty lines between steps and components.
func gaps(rows []*row) int {
	n := 0
	for i := range rows {
		if i > 0 && rows[i].scope != rows[i-1].scope {
			n++
		}
	}
	return n
}

// lines draws rows: glyph, name, message, and the elapsed time at the right. The last column remains empty, because
// some terminals wrap there. Lines never become narrower, so that times do not move to the left.
func (l *live) lines(rows []*row, w int, last bool) []string {
	names := l.nameWidths(rows, w-1)
	for _, r := range rows {
		l.widest = max(l.widest, width(l.left(r, names[r.scope], 1<<10, last))+2+width(l.elapsed(r)))
	}
	total := min(w-1, max(l.widest, minWidth))
	var out []string
	for i, r := range rows {
		if i > 0 && r.scope != rows[i-1].scope {
			out = append(out, "")
		}
		t := l.elapsed(r)
		room := total - 1 - width(t)
		if t == "" || room < minRoom {
			out = append(out, l.left(r, names[r.scope], total, last))
			continue
		}
		out = append(out, pad(l.left(r, names[r.scope], room, last), room)+" "+l.out.Dim(t))
	}
	return out
}

// left draws a row without its time, in at most n columns.
func (l *live) left(r *row, nameWidth, n int, last bool) string {
	indent := "  "
	if r.scope == run.Component {
		indent = "    "
	}
	n -= len(indent) + 2
	if r.sum {
		nameWidth = max(nameWidth, width(r.name)) // do not clip "12 more in progress"
	}
	name := l.out.clip(l.out.Text(r.name), min(nameWidth, n))
	message := l.board.message(r)
	if r.status == run.Skipped && !r.sum && !strings.HasPrefix(message, "skipped") {
		message = strings.TrimSuffix("skipped: "+message, ": ")
	}
	message = l.out.clip(l.out.Text(message), n-nameWidth-1)
	if message != "" {
		name = pad(name, nameWidth) + " "
	}
	switch r.status {
	case run.Failed:
		message = l.out.Red(message)
	case run.Pending, run.Skipped, run.Interrupted, run.NotStarted:
		name, message = l.out.Dim(name), l.out.Dim(message)
	}
	return indent + l.glyph(r.status, last) + " " + name + message
}

// nameWidths returns the widths of the name columns, at most two fifths of a line.
func (l *live) nameWidths(rows []*row, total int) map[run.Scope]int {
	out := map[run.Scope]int{}
	for _, r := range rows {
		if !r.sum {
			out[r.scope] = max(out[r.scope], min(width(l.out.Text(r.name)), total*2/5))
		}
	}
	return out
}

func (l *live) glyph(s run.Status, last bool) string {
	switch s {
	case run.Done:
		return l.out.Check()
	case run.Failed:
		return l.out.Cross()
	case run.Interrupted:
		return l.out.Dim("-")
	case run.Running:
		if last {
			return l.out.Warn() // it did not finish
		}
		return l.out.Spinner(int(l.now().UnixMilli() / redraw.Milliseconds()))
	}
	return l.out.Dot()
}

// elapsed is the time between the start and the end of a row, or until now. It is empty if the row has not started.
func (l *live) elapsed(r *row) string {
	if r.started.IsZero() {
		return ""
	}
	end := r.ended
	if end.IsZero() {
		end = l.now()
	}
	return elapsed(end.Sub(r.started).Truncate(time.Millisecond))
}
