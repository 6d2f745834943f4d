package ui

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/duration"
)

// Age is a duration as kubectl prints it: 12s, 3m4s, 4d.
func Age(d time.Duration) string { return duration.HumanDuration(d) }

// elapsed is how long something takes: 0.4s, 41s, 1m12s, 2h3m.
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

// width is how many columns text takes, colours not counted.
func width(text string) int {
	n := 0
	for text != "" {
		before, after, found := strings.Cut(text, "\x1b[")
		n += utf8.RuneCountInString(before)
		if !found {
			break
		}
		_, text, _ = strings.Cut(after, "m")
	}
	return n
}

// pad fills text with spaces up to n columns.
func pad(text string, n int) string { return text + strings.Repeat(" ", max(0, n-width(text))) }

// clip cuts text without colours to n columns and shows that it did.
func (s Style) clip(text string, n int) string {
	if width(text) <= n {
		return text
	}
	dots := s.ellipsis()
	keep := n - width(dots)
	if keep <= 0 {
		return strings.Repeat(".", max(0, n))
	}
	return strings.TrimRight(string([]rune(text)[:keep]), " ") + dots
}

// wrap breaks text without colours into lines of at most n columns, between words where it can.
func wrap(text string, n int) []string {
	rest, lines := []rune(text), []string(nil)
	for n > 0 && len(rest) > n {
		end := n
		for i := n; i > 0; i-- {
			if rest[i] == ' ' {
				end = i
				break
			}
		}
		lines = append(lines, strings.TrimRight(string(rest[:end]), " "))
		rest = []rune(strings.TrimLeft(string(rest[end:]), " "))
	}
	return append(lines, string(rest))
}
