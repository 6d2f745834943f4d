package ui

import (
	"strings"
	"unicode"
)

// Style is the style of a stream. The zero value is ASCII without colours.
type Style struct{ colour, utf8 bool }

// Bold and the methods below format text if the stream has colours.
func (s Style) Bold(text string) string   { return s.sgr("1", text) }
func (s Style) Dim(text string) string    { return s.sgr("2", text) }
func (s Style) Red(text string) string    { return s.sgr("31", text) }
func (s Style) Green(text string) string  { return s.sgr("32", text) }
func (s Style) Yellow(text string) string { return s.sgr("33", text) }
func (s Style) Cyan(text string) string   { return s.sgr("36", text) }

// Check and the methods below are glyphs in their colours.
func (s Style) Check() string { return s.Green(s.pick("✓", "+")) }
func (s Style) Cross() string { return s.Red(s.pick("✗", "x")) }
func (s Style) Warn() string  { return s.Yellow("!") }
func (s Style) Dot() string   { return s.Dim(s.pick("·", ".")) }

// Spinner is the n-th frame of the spinner.
func (s Style) Spinner(n int) string {
	pictures := []rune(s.pick("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", `-\|/`))
	return s.Cyan(string(pictures[n%len(pictures)]))
}

// Text makes untrusted text printable: one line without control characters, in ASCII if the stream requires it.
func (s Style) Text(text string) string {
	if !s.utf8 {
		text = strings.NewReplacer("→", "->", "…", "...", "·", "-", "–", "-", "—", "-", "✓", "+", "✗", "x",
			"“", `"`, "”", `"`, "‘", "'", "’", "'").Replace(text)
	}
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return -1
		case !s.utf8 && r > unicode.MaxASCII:
			return '?'
		}
		return r
	}, strings.TrimSpace(text))
}

func (s Style) ellipsis() string { return s.pick("…", "...") }

func (s Style) pick(utf8, ascii string) string {
	if s.utf8 {
		return utf8
	}
	return ascii
}

func (s Style) sgr(code, text string) string {
	if !s.colour || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}
