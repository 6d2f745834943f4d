package pages

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// varies are what differs from one run to the next: times, identifiers, addresses, columns.
var varies = []struct {
	pattern *regexp.Regexp
	name    string
}{
	{regexp.MustCompile(`\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z`), "<time>"},
	{regexp.MustCompile(`\d{4}-\d{2}-\d{2}`), "<date>"},
	{regexp.MustCompile(`\b(?:\d+(?:\.\d+)?(?:ms|[smhdy]))+\b`), "<duration>"},
	{regexp.MustCompile(`\bsha256:[0-9a-f]{16,64}\b`), "<fingerprint>"},
	{regexp.MustCompile(`\b[0-9a-f]{14,16}\b`), "<id>"},
	{regexp.MustCompile(`[~/][^ ,]*/kcpctl/demo\b`), "<state directory>"},
	{regexp.MustCompile(`\b[a-z]+@[\w.-]+`), "<user>"},
	{regexp.MustCompile(`\bv\d+\.\d+\.\d+-\d+-g[0-9a-f]+(?:-dirty)?\b`), "<version>"},
	{regexp.MustCompile(`\b(127\.0\.0\.1|localhost):\d+`), "$1:<port>"},
	{regexp.MustCompile(`\b(port|pid) \d+`), "$1 <number>"},
	{regexp.MustCompile(`\b\d+(?:\.\d+)?[KMG]i?B?\b`), "<size>"},
	{regexp.MustCompile(`  +`), "  "},
}

// Compare returns an error if a command did not print what a page shows. A line of the page that is … stands for any
// number of lines. Replacements, pairs of an expression and a text, are for what varies only in this page.
func Compare(page []string, printed string, replacements ...string) error {
	want, got := normal(page, replacements), normal(strings.Split(strings.TrimRight(printed, "\n"), "\n"), replacements)
	rest, anywhere := got, false
	for _, line := range want {
		if line == "…" {
			anywhere = true
			continue
		}
		i := slices.Index(rest, line)
		if i < 0 || i > 0 && !anywhere {
			return fmt.Errorf("the page has %q next\nit shows:\n%s\nprinted:\n%s", line,
				strings.Join(page, "\n"), printed)
		}
		rest, anywhere = rest[i+1:], false
	}
	if len(rest) > 0 && !anywhere {
		return fmt.Errorf("the page does not have %q\nit shows:\n%s\nprinted:\n%s", rest[0],
			strings.Join(page, "\n"), printed)
	}
	return nil
}

// normal returns lines with names for what varies.
func normal(lines, replacements []string) []string {
	var out []string
	for _, line := range lines {
		for i := 0; i+1 < len(replacements); i += 2 {
			line = regexp.MustCompile(replacements[i]).ReplaceAllString(line, replacements[i+1])
		}
		for _, v := range varies {
			line = v.pattern.ReplaceAllString(line, v.name)
		}
		out = append(out, strings.TrimRight(line, " \r"))
	}
	for len(out) > 0 && out[len(out)-1] == "" {
		out = out[:len(out)-1]
	}
	return out
}
