package setup

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// text is a file's text, by lines as YAML counts them.
type text struct {
	data []byte
	// starts are the offsets at which lines start, and the end of the text.
	starts []int
	// newline is how the text ends its lines.
	newline string
}

// splice replaces a part of a text.
type splice struct {
	from, to int
	with     string
}

const byteOrderMark = "\ufeff"

func newText(data []byte) *text {
	t := &text{data: data, starts: []int{0}, newline: "\n"}
	for i := 0; i < len(data); {
		n := lineBreak(data[i:])
		if n == 2 && data[i] == '\r' {
			t.newline = "\r\n"
		}
		i += max(n, 1)
		if n > 0 && i < len(data) {
			t.starts = append(t.starts, i)
		}
	}
	t.starts = append(t.starts, len(data))
	return t
}

// lineBreak is the length of the line break that a text begins with, or 0. YAML has more of them than Unix.
func lineBreak(data []byte) int {
	for _, b := range []string{"\r\n", "\n", "\r", "\u0085", "\u2028", "\u2029"} {
		if bytes.HasPrefix(data, []byte(b)) {
			return len(b)
		}
	}
	return 0
}

// lines is the number of lines.
func (t *text) lines() int { return len(t.starts) - 1 }

// line is a line, counted from 0, without its break.
func (t *text) line(i int) string {
	l := string(t.data[t.starts[i]:t.starts[i+1]])
	return strings.TrimRight(l, "\r\n\u0085\u2028\u2029")
}

// offset is where a node starts.
func (t *text) offset(n *yaml.Node) int {
	at := t.starts[min(n.Line, t.lines())-1]
	if n.Line == 1 && bytes.HasPrefix(t.data, []byte(byteOrderMark)) {
		at += len(byteOrderMark)
	}
	for range n.Column - 1 {
		_, size := utf8.DecodeRune(t.data[at:])
		at += size
	}
	return at
}

// replace makes a new text. Splices do not overlap.
func (t *text) replace(splices []splice) []byte {
	slices.SortStableFunc(splices, func(a, b splice) int { return cmp.Compare(a.from, b.from) })
	var out []byte
	at := 0
	for _, s := range splices {
		out = append(append(out, t.data[at:s.from]...), s.with...)
		at = s.to
	}
	return append(out, t.data[at:]...)
}

// insertLines puts lines in front of a line. A text that does not end its last line still does not.
func (t *text) insertLines(before int, lines []string) splice {
	at, s := t.starts[before], strings.Join(lines, t.newline)
	if before == t.lines() && !t.endsLine() {
		return splice{at, at, t.newline + s}
	}
	return splice{at, at, s + t.newline}
}

// removeLines takes lines out, the last one not included.
func (t *text) removeLines(first, last int) splice {
	s := splice{from: t.starts[first], to: t.starts[last]}
	if last == t.lines() && !t.endsLine() && first > 0 {
		s.from = t.starts[first-1] + len(t.line(first-1))
	}
	return s
}

// endsLine tells whether the last line has a break.
func (t *text) endsLine() bool {
	last := t.lines() - 1
	return len(t.line(last)) < t.starts[last+1]-t.starts[last]
}

func isBlank(line string) bool { return strings.TrimSpace(line) == "" }

// comment returns the indentation of a line that is nothing but a comment, and what it says.
func comment(line string) (indent int, says string, ok bool) {
	trimmed := strings.TrimLeft(line, " \t")
	says, ok = strings.CutPrefix(trimmed, "#")
	return len(line) - len(trimmed), strings.TrimSpace(says), ok
}

// span is a part of a text.
type span struct{ from, to int }

// flow finds the parts of a flow collection whose bracket opens at an offset, comments and commas left out, and its
// closing bracket.
func (t *text) flow(open int) (parts []span, end int, ok bool) {
	depth, plain, part := 0, false, span{-1, -1}
	finish := func() {
		if part.from >= 0 {
			parts = append(parts, part)
		}
		part, plain = span{-1, -1}, false
	}
	for i := open + 1; i < len(t.data); i++ {
		c := t.data[i]
		afterSpace := strings.IndexByte(" \t\r\n", t.data[i-1]) >= 0
		switch {
		case strings.IndexByte(" \t\r\n", c) >= 0:
			continue
		case c == '#' && (afterSpace || !plain):
			i, plain = t.lineEnd(i)-1, false
			continue
		case c == ',' && depth == 0:
			finish()
			continue
		case strings.IndexByte("]}", c) >= 0 && depth == 0:
			finish()
			return parts, i, true
		}
		if part.from < 0 {
			part.from = i
		}
		switch {
		case strings.IndexByte("[{", c) >= 0:
			depth, plain = depth+1, false
		case strings.IndexByte("]}", c) >= 0:
			depth, plain = depth-1, false
		case c == ',', c == ':' && (!plain || i+1 < len(t.data) && strings.IndexByte(" \t\r\n,[]{}", t.data[i+1]) >= 0):
			plain = false
		case strings.IndexByte(`'"`, c) >= 0 && !plain:
			i = t.quoteEnd(i)
		default:
			plain = true
		}
		part.to = min(i+1, len(t.data))
	}
	return nil, 0, false
}

// lineEnd is where the line ends that an offset is in, its break not included.
func (t *text) lineEnd(at int) int {
	for at < len(t.data) && lineBreak(t.data[at:]) == 0 {
		at++
	}
	return at
}

// quoteEnd is where the quotes close that open at an offset.
func (t *text) quoteEnd(at int) int {
	quote := t.data[at]
	for i := at + 1; i < len(t.data); i++ {
		switch {
		case quote == '"' && t.data[i] == '\\':
			i++
		case t.data[i] != quote:
		case quote == '\'' && i+1 < len(t.data) && t.data[i+1] == '\'':
			i++
		default:
			return i
		}
	}
	return len(t.data)
}
