package ui

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"sync"
)

// Prefixes returns the beginnings of the lines of several writers: aligned, and each in one of a few colours.
func (s Style) Prefixes(names []string) []string {
	colours := []string{"36", "32", "33", "35", "34"} // none that means a failure
	longest := 0
	for _, name := range names {
		longest = max(longest, width(name))
	}
	var out []string
	for i, name := range names {
		out = append(out, s.sgr(colours[i%len(colours)], "["+name+"]")+strings.Repeat(" ", longest-width(name)+1))
	}
	return out
}

// Lines is an output that several writers share line by line.
type Lines struct {
	mu  sync.Mutex
	out io.Writer
}

// NewLines returns an output that several writers can share.
func NewLines(out io.Writer) *Lines { return &Lines{out: out} }

// From returns a writer whose lines begin with a prefix. It may be used by one goroutine at a time, and others of the
// same output at the same time.
func (l *Lines) From(prefix string) *LinesOf { return &LinesOf{to: l, prefix: []byte(prefix)} }

// LinesOf is one of the writers of Lines.
type LinesOf struct {
	to     *Lines
	prefix []byte
	// rest is the begin of a line whose end was not written yet.
	rest []byte
}

// Write writes the lines that are complete.
func (l *LinesOf) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	end := bytes.LastIndexByte(l.rest, '\n') + 1
	whole := l.rest[:end]
	l.rest = slices.Clone(l.rest[end:])
	return len(p), l.print(whole)
}

// Close writes the last line, if its end is missing.
func (l *LinesOf) Close() error {
	if len(l.rest) == 0 {
		return nil
	}
	whole := append(l.rest, '\n')
	l.rest = nil
	return l.print(whole)
}

func (l *LinesOf) print(whole []byte) error {
	var text []byte
	for line := range bytes.Lines(whole) {
		text = append(append(text, l.prefix...), line...)
	}
	if len(text) == 0 {
		return nil
	}
	l.to.mu.Lock()
	defer l.to.mu.Unlock()
	_, err := l.to.out.Write(text)
	return err
}
