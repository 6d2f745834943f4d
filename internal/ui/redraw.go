package ui

import "io"

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
