package ui

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/kcpctl/kcpctl/internal/diff"
	"github.com/kcpctl/kcpctl/internal/plan"
)

// PrintDiff prints what an apply would change, by path, with the value before and after.
//
//	~ Deployment/kcp/demo-shard-alpha                          shard/alpha
//	    spec.replicas
//	      - 1
//	      + 2
func PrintDiff(s *Stream, entries []diff.Entry) {
	glyphs := map[plan.Action]string{plan.Create: s.Green("+"), plan.Change: s.Yellow("~"), plan.Delete: s.Red("-")}
	for _, e := range entries {
		line := []string{glyphs[e.Action] + " " + s.Text(e.Object)}
		for _, extra := range []string{e.Cluster, e.Component} {
			if extra != "" {
				line = append(line, s.Dim(s.Text(extra)))
			}
		}
		switch {
		case e.Adopted:
			line = append(line, s.Yellow("(exists, would be adopted)"))
		case e.Action == plan.Delete:
			line = append(line, s.Dim("(not in the setup)"))
		}
		fmt.Fprintln(s, strings.Join(line, "  "))
		for _, c := range e.Changes {
			s.change(c)
		}
		for _, d := range e.Drift {
			fmt.Fprintf(s, "    %s %s is set by %s\n", s.Yellow("drift:"), s.Text(d.Field), s.Text(d.Manager))
		}
	}
}

func (s *Stream) change(c diff.Change) {
	fmt.Fprintf(s, "    %s\n", s.Text(c.Path))
	for _, v := range []struct {
		sign  string
		value any
	}{{s.Red("-"), c.Before}, {s.Green("+"), c.After}} {
		if v.value != nil {
			fmt.Fprintf(s, "      %s %s\n", v.sign, s.Text(plain(v.value)))
		}
	}
}

// plain formats a value on one line.
func plain(v any) string {
	if text, ok := v.(string); ok && !strings.ContainsAny(text, "\n\t") {
		return text
	}
	out, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(out)
}
