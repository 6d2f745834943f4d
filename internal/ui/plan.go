package ui

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/kcpctl/kcpctl/internal/plan"
)

// PrintPlan prints what an apply would do, grouped by component, and a line with the sums.
//
//	root-shard
//	  + Deployment/kcp/demo-root
//	  ~ Service/kcp/demo-root
//
//	1 create, 1 change, 0 delete, 21 unchanged
func PrintPlan(s *Stream, p *plan.Plan) {
	glyphs := map[plan.Action]string{
		plan.Create: s.Green("+"),
		plan.Change: s.Yellow("~"),
		plan.Delete: s.Red("-"),
	}
	several := severalClusters(p)
	lines := map[string][]string{}
	var groups []string
	for _, it := range p.Items {
		glyph, ok := glyphs[it.Action]
		if !ok {
			continue
		}
		line := "  " + glyph + " " + s.Text(it.String())
		if several {
			line += "  " + s.Dim(s.Text(it.Cluster))
		}
		group := cmp.Or(string(it.Component), "not in the setup")
		if lines[group] == nil {
			groups = append(groups, group)
		}
		lines[group] = append(lines[group], line)
	}
	for _, group := range groups {
		fmt.Fprintf(s, "%s\n%s\n", s.Bold(s.Text(group)), strings.Join(lines[group], "\n"))
	}
	if len(groups) > 0 {
		fmt.Fprintln(s)
	}
	fmt.Fprintln(s, p.Summary())
}

// severalClusters tells whether objects have to be told apart by their cluster.
func severalClusters(p *plan.Plan) bool {
	for i := range p.Items {
		if p.Items[i].Cluster != p.Items[0].Cluster {
			return true
		}
	}
	return false
}

// PrintConflicts prints fields that other managers own, and the ways out.
func PrintConflicts(s *Stream, conflicts []plan.Conflict) {
	rows := make([][]string, 0, len(conflicts))
	for _, c := range conflicts {
		rows = append(rows, []string{s.Text(cmp.Or(c.Object, c.Ref.String())), s.Text(c.Field), s.Text(c.Manager)})
	}
	Table(s, []string{"OBJECT", "FIELD", "MANAGER"}, rows...)
	fmt.Fprint(s, `
These fields have another manager, and the setup wants other values for them. Nothing was written. Either
  - give the field up: take it out of the setup, so that kcpctl leaves it alone; or
  - make the other manager give it up: stop it from setting the field; or
  - take it over: run the command again with --force-conflicts.
`)
}
