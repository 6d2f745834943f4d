package ui

import "strings"

// Wrap breaks text without colours into lines of at most n columns, between words.
func Wrap(text string, n int) string { return strings.Join(wrap(text, n), "\n") }
