package ui

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/gather"
)

// PrintError prints an error: what failed, its details, and the next step. What failed in the same way is one line.
//
//	kcpctl: shard/alpha is not ready after 10m
//	  Pod kcp/demo-shard-alpha-7d9c: ImagePullBackOff: not found
//	hint: ...
func PrintError(s *Streams, err error) {
	if err == nil {
		return
	}
	headline, parts := split(err)
	var details []string
	for _, part := range parts {
		details = append(details, gather.In(part.Error())...)
	}
	lines := strings.Split(strings.Join(slices.Concat(gather.Messages(gather.In(headline)), gather.Messages(details)), "\n"), "\n")
	fmt.Fprintf(s.Err, "%s %s\n", s.Err.Red("kcpctl:"), s.Err.Text(lines[0]))
	s.detail(lines[1:])
	for _, h := range hints(err, parts) {
		fmt.Fprintf(s.Err, "%s %s\n", s.Err.Cyan("hint:"), s.Err.Text(h))
	}
}

// detail prints lines with an indent of two columns in addition to their own.
func (s *Streams) detail(lines []string) {
	for _, line := range lines {
		if text := strings.TrimLeft(line, " \t"); text != "" {
			indent := strings.Repeat(" ", min(len(line)-len(text), 8))
			fmt.Fprintf(s.Err, "  %s%s\n", indent, s.Err.Text(text))
		}
	}
}

// split separates errors that were joined with errors.Join from the text before them: "apply: a\nb" becomes "apply" and a, b.
// Any other error is its own headline.
func split(err error) (string, []error) {
	for e := err; e != nil; e = errors.Unwrap(e) {
		joined, ok := e.(interface{ Unwrap() []error })
		if !ok {
			continue
		}
		parts := joined.Unwrap()
		before, found := strings.CutSuffix(err.Error(), e.Error())
		if !found || len(parts) < 2 || e.Error() != errors.Join(parts...).Error() {
			break
		}
		if before == "" {
			return fmt.Sprintf("%d errors", len(parts)), parts
		}
		return strings.TrimRight(before, ": "), parts
	}
	return err.Error(), nil
}

// hints returns the next steps of an error and of its parts, without duplicates.
func hints(err error, parts []error) []string {
	var out []string
	for _, e := range append([]error{err}, parts...) {
		if h := clierr.Hint(e); h != "" && !slices.Contains(out, h) {
			out = append(out, h)
		}
	}
	return out
}
