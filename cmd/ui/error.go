package ui

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
)

// PrintError prints an error: what failed, its details, and the next step. What failed in the same way is one line.
//
//	kcpctl: shard/alpha is not ready after 10m
//	  Pod kcp/demo-shard-alpha-7d9c: ImagePullBackOff: not found
//	hint: ...
//
// If several problems have different next steps, each is followed by its own.
//
//	kcpctl: 2 errors
//	  shard/alpha holds workspaces, and is no longer in the setup
//	    hint: ...
//	  cache-server holds data, and is no longer in the setup
//	    hint: ...
func PrintError(s *Streams, err error) {
	if err == nil {
		return
	}
	groups := clierr.Groups(err)
	if len(groups) == 1 && len(groups[0].Problems) == 1 {
		lines := strings.Split(strings.Join(messages(groups[0]), "\n"), "\n")
		fmt.Fprintf(s.Err, "%s %s\n", s.Err.Red("kcpctl:"), s.Err.Text(lines[0]))
		s.Err.detail("  ", lines[1:])
		s.Err.hint("", groups[0].Hint)
		return
	}
	before, parts := clierr.Split(err)
	fmt.Fprintf(s.Err, "%s %s\n", s.Err.Red("kcpctl:"),
		s.Err.Text(cmp.Or(before, fmt.Sprintf("%d errors", len(parts)))))
	common := s.Err.problems("  ", groups)
	for _, h := range append(clierr.Outer(err), common) {
		s.Err.hint("", h)
	}
}

// problems prints problems, with the next step of each group of them. If there is one next step in all, it is returned
// instead.
func (s *Stream) problems(indent string, groups []clierr.Group) (common string) {
	hints := 0
	for _, g := range groups {
		if g.Hint != "" {
			hints++
		}
	}
	for _, g := range groups {
		s.detail(indent, strings.Split(strings.Join(messages(g), "\n"), "\n"))
		switch {
		case hints > 1:
			s.hint(indent+"  ", g.Line())
		case g.Hint != "" && len(groups) == 1:
			common = g.Hint
		case g.Hint != "":
			common = g.Line()
		}
	}
	return common
}

// messages returns the problems as messages. Problems that are alike are one message.
func messages(g clierr.Group) []string {
	var all []string
	for _, p := range g.Problems {
		all = append(all, gather.In(p.Message)...)
	}
	return gather.Messages(all)
}

// detail prints lines with an indent in addition to their own.
func (s *Stream) detail(indent string, lines []string) {
	for _, line := range lines {
		if text := strings.TrimLeft(line, " \t"); text != "" {
			own := strings.Repeat(" ", min(len(line)-len(text), 8))
			fmt.Fprintf(s, "%s%s%s\n", indent, own, s.Text(text))
		}
	}
}

// hint prints a next step, if there is one.
func (s *Stream) hint(indent, text string) {
	if text != "" {
		fmt.Fprintf(s, "%s%s %s\n", indent, s.Cyan("hint:"), s.Text(text))
	}
}
