package pages

import (
	"fmt"
	"regexp"
	"strings"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`^#{1,6} +(.+)$`)
	markup  = regexp.MustCompile("`|\\[([^\\]]*)\\]\\([^)]*\\)")
	// notInAnchors is what GitHub removes from a heading.
	notInAnchors = regexp.MustCompile(`[^\p{L}\p{N}\- _]`)
)

// Links returns the targets of the links and pictures in a page.
func Links(text string) []string {
	var out []string
	for _, line := range prose(text) {
		for _, m := range link.FindAllStringSubmatch(line, -1) {
			out = append(out, m[1])
		}
	}
	return out
}

// Anchors returns the anchors of the headings of a page, as GitHub makes them.
func Anchors(text string) []string {
	var out []string
	seen := map[string]int{}
	for _, line := range prose(text) {
		m := heading.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		plain := notInAnchors.ReplaceAllString(markup.ReplaceAllString(strings.TrimSpace(m[1]), "$1"), "")
		anchor := strings.ReplaceAll(strings.ToLower(plain), " ", "-")
		if n := seen[anchor]; n > 0 {
			out = append(out, fmt.Sprint(anchor, "-", n))
		} else {
			out = append(out, anchor)
		}
		seen[anchor]++
	}
	return out
}

// prose returns the lines of a page that are not in a block of code.
func prose(text string) []string {
	var out []string
	inside := false
	for _, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			inside = !inside
		} else if !inside {
			out = append(out, line)
		}
	}
	return out
}
