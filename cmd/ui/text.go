package ui

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/clipperhouse/displaywidth"
	"k8s.io/apimachinery/pkg/util/duration"
)

// Age formats a duration as kubectl does: 12s, 3m4s, 4d. A time that is not reached yet has the age 0s.
func Age(d time.Duration) string { return duration.HumanDuration(max(d, 0)) }

// Expiry formats the time that is left until something expires: expires in 3d, or expired 11s ago.
func Expiry(left time.Duration) string {
	if left < 0 {
		return "expired " + Age(-left) + " ago"
	}
	return "expires in " + Age(left)
}

// elapsed formats a duration with a resolution that fits its length: 0.4s, 41s, 1m12s, 2h3m.
func elapsed(d time.Duration) string {
	switch d = max(d, 0); {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Truncate(100*time.Millisecond).Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm%ds", d/time.Minute, d/time.Second%60)
	}
	return fmt.Sprintf("%dh%dm", d/time.Hour, d/time.Minute%60)
}

// width returns how many columns text takes on a terminal. Colours take none, and wide characters take two.
func width(text string) int { return displaywidth.Options{ControlSequences: true}.String(text) }

// pad fills text with spaces up to n columns.
func pad(text string, n int) string { return text + strings.Repeat(" ", max(0, n-width(text))) }

// clip shortens text without colours to n columns, with an ellipsis.
func (s Style) clip(text string, n int) string {
	if width(text) <= n {
		return text
	}
	dots := s.ellipsis()
	keep := n - width(dots)
	if keep <= 0 {
		return strings.Repeat(".", max(0, n))
	}
	return strings.TrimRight(displaywidth.TruncateString(text, keep, ""), " ") + dots
}

// Wrap breaks text without colours into lines of at most n columns, between words if possible. It does not break at
// hyphens, which may be part of a flag.
func Wrap(text string, n int) string { return strings.Join(wrap(text, n), "\n") }

func wrap(text string, n int) (lines []string) {
	for n > 0 && width(text) > n {
		line := displaywidth.TruncateString(text, n, "")
		if line == "" { // the first character is wider than the line
			_, size := utf8.DecodeRuneInString(text)
			line = text[:size]
		}
		if rest := text[len(line):]; rest != "" && rest[0] != ' ' {
			if space := strings.LastIndexByte(line, ' '); space > 0 {
				line = line[:space]
			}
		}
		text = strings.TrimLeft(text[len(line):], " ")
		lines = append(lines, strings.TrimRight(line, " "))
	}
	if text == "" && len(lines) > 0 {
		return lines
	}
	return append(lines, text)
}
