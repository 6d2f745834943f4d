package setup

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// text is the text of a file, with lines as in YAML.
type text struct {
	data []byte
	// starts are the offsets of the lines, and the end of the text.
	starts []int
	// newline is the line break that the text uses.
	newline string
}

// splice is a replacement of a part of a text.
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

// lineBreak returns the length of the line break at the start of data, or 0. YAML has more kinds of them than Unix.
func lineBreak(data []byte) int {
	for _, b := range []string{"\r\n", "\n", "\r", "\u0085", "\u2028", "\u2029"} {
		if bytes.HasPrefix(data, []byte(b)) {
			return len(b)
		}
	}
	return 0
}

func (t *text) lines() int { return len(t.starts) - 1 }

// line returns a line, from 0, without its line break.
func (t *text) line(i int) string {
	l := string(t.data[t.starts[i]:t.starts[i+1]])
	return strings.TrimRight(l, "\r\n\u0085\u2028\u2029")
}

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

// replace returns the text with replacements, which must not overlap.
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

// insertLines inserts lines before a line. A text without a line break at its end does not get one.
func (t *text) insertLines(before int, lines []string) splice {
	at, s := t.starts[before], strings.Join(lines, t.newline)
	if before == t.lines() && !t.endsLine() {
		return splice{at, at, t.newline + s}
	}
	return splice{at, at, s + t.newline}
}

// removeLines removes lines, excluding last.
func (t *text) removeLines(first, last int) splice {
	s := splice{from: t.starts[first], to: t.starts[last]}
	if last == t.lines() && !t.endsLine() && first > 0 {
		s.from = t.starts[first-1] + len(t.line(first-1))
	}
	return s
}

// endsLine reports whether the last line has a line break.
func (t *text) endsLine() bool {
	last := t.lines() - 1
	return len(t.line(last)) < t.starts[last+1]-t.starts[last]
}

func isBlank(line string) bool { return strings.TrimSpace(line) == "" }

// comment returns the indentation and the content of a line that has only a comment.
func comment(line string) (indent int, content string, ok bool) {
	trimmed := strings.TrimLeft(line, " \t")
	content, ok = strings.CutPrefix(trimmed, "#")
	return len(line) - len(trimmed), strings.TrimSpace(content), ok
}

// span is a range of a text.
type span struct{ from, to int }

// flow returns the items of a flow collection that opens at an offset, without comments and commas, and the offset of
// its closing bracket.
func (t *text) flow(open int) (parts []span, end int, ok bool) {
	depth := 0
	plain := false
	part := span{-1, -1}
	finish := func() {
		if part.from >= 0 {
			parts = append(parts, part)
		}
		part = span{-1, -1}
		plain = false
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
			depth = depth + 1
			plain = false
		case strings.IndexByte("]}", c) >= 0:
			depth = depth - 1
			plain = false
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

// lineEnd returns the end of the line of an offset, without its line break.
func (t *text) lineEnd(at int) int {
	for at < len(t.data) && lineBreak(t.data[at:]) == 0 {
		at++
	}
	return at
}

// quoteEnd returns the offset of the quote that closes the one at an offset.
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
