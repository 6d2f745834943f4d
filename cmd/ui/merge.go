package ui

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"time"
)

// Merge copies the lines of logs in the order of their times, each after the prefix of its log. Each line begins with
// its time, as in kubectl logs --timestamps, after a source in brackets if there is one. Times are printed only
// if asked for. A line without a time has the time of the line before.
func Merge(out io.Writer, prefixes []string, logs []io.Reader, times bool) error {
	var heads []*head
	for i, log := range logs {
		h := &head{prefix: prefixes[i], from: bufio.NewReader(log), times: times}
		if err := h.next(); err != nil {
			return err
		}
		heads = append(heads, h)
	}
	for {
		var first *head
		for _, h := range heads {
			if h.line != nil && (first == nil || h.at.Before(first.at)) {
				first = h
			}
		}
		if first == nil {
			return nil
		}
		if _, err := io.WriteString(out, first.prefix+string(first.line)); err != nil {
			return err
		}
		if err := first.next(); err != nil {
			return err
		}
	}
}

// head is the next line of a log that is merged with others.
type head struct {
	prefix string
	from   *bufio.Reader
	times  bool
	at     time.Time
	// line is nil at the end.
	line []byte
}

func (h *head) next() error {
	line, err := h.from.ReadBytes('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if h.line = nil; len(line) == 0 {
		return nil
	}
	line = append(bytes.TrimSuffix(line, []byte("\n")), '\n')
	var source []byte
	rest := line
	if end := bytes.Index(line, []byte("] ")); line[0] == '[' && end > 0 {
		source = line[:end+2]
		rest = line[end+2:]
	}
	word, text, _ := bytes.Cut(rest, []byte(" "))
	if at, err := time.Parse(time.RFC3339Nano, string(word)); err == nil {
		if h.at = at; !h.times {
			line = append(source[:len(source):len(source)], text...)
		}
	}
	h.line = line
	return nil
}
