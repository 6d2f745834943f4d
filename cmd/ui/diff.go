package ui

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/kcpctl/kcpctl/internal/desired/diff"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
)

// PrintDiff prints what an apply would change, by path, with the value before and after. Unless all is set, many
// objects with the same changes are printed as one.
//
//	~ Deployment/kcp/demo-shard-alpha                          shard/alpha
//	    spec.replicas
//	      - 1
//	      + 2
func PrintDiff(s *Stream, entries []diff.Entry, all bool) {
	key := func(e diff.Entry) string {
		id := topology.ID(e.Component)
		return s.entry(e, string(id.Kind()), id.Name())
	}
	if all {
		for _, e := range entries {
			fmt.Fprint(s, s.entry(e, e.Component, ""))
		}
		return
	}
	for _, alike := range gather.Alike(entries, key) {
		component := alike[0].Component
		name := ""
		if len(alike) > 1 {
			var ids []topology.ID
			for _, e := range alike {
				ids = append(ids, topology.ID(e.Component))
			}
			component, name = several(ids), ids[0].Name()
		}
		fmt.Fprint(s, s.entry(alike[0], component, name))
	}
}

// entry is what an apply would change in an object of a component. The name of the component is left out of the names
// of objects and of values.
func (s *Stream) entry(e diff.Entry, component, name string) string {
	line := []string{s.action(e.Action) + " " + s.Text(gather.Without(e.Object, name))}
	for _, extra := range []string{e.Cluster, component} {
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
	var b strings.Builder
	fmt.Fprintln(&b, strings.Join(line, "  "))
	for _, c := range e.Changes {
		fmt.Fprintf(&b, "    %s\n", s.Text(gather.Without(c.Path, name)))
		for _, v := range []struct {
			sign  string
			value any
		}{{s.Red("-"), c.Before}, {s.Green("+"), c.After}} {
			if v.value != nil {
				fmt.Fprintf(&b, "      %s %s\n", v.sign, s.Text(gather.Without(plain(v.value), name)))
			}
		}
	}
	for _, d := range e.Drift {
		fmt.Fprintf(&b, "    %s %s is set by %s\n", s.Yellow("drift:"), s.Text(d.Field), s.Text(d.Manager))
	}
	return b.String()
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
