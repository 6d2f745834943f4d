package ui

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/kcpctl/kcpctl/internal/plan"
)

// PrintPlan prints what an apply would change, grouped by component, and a summary line.
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
		if several && it.Workspace == "" {
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

// severalClusters reports whether a plan has objects on more than one cluster.
func severalClusters(p *plan.Plan) bool {
	first := -1
	for i := range p.Items {
		switch {
		case p.Items[i].Workspace != "":
		case first < 0:
			first = i
		case p.Items[i].Cluster != p.Items[first].Cluster:
			return true
		}
	}
	return false
}

// PrintConflicts prints fields that other managers own, and how to resolve the conflicts.
func PrintConflicts(s *Stream, conflicts []plan.Conflict) {
	rows := make([][]string, 0, len(conflicts))
	for _, c := range conflicts {
		rows = append(rows, []string{s.Text(cmp.Or(c.Object, c.Ref.String())), s.Text(c.Field), s.Text(c.Manager)})
	}
	Table(s, []string{"OBJECT", "FIELD", "MANAGER"}, rows...)
	fmt.Fprint(s, `
Other field managers own these fields, and the setup has different values. Nothing was written. To resolve a conflict, either
  - remove the field from the setup, so that kcpctl does not manage it; or
  - stop the other manager from setting the field; or
  - rerun the command with --force-conflicts to take over the field.
`)
}
