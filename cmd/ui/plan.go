package ui

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
)

// PrintPlan prints what an apply would change, grouped by component, and a summary line. Many components of a kind with
// the same changes are printed as one.
//
//	root-shard
//	  + Deployment/kcp/demo-root
//	  ~ Service/kcp/demo-root
//
//	1 create, 1 change, 0 delete, 21 unchanged
func PrintPlan(s *Stream, p *plan.Plan) {
	parts := planParts(p)
	for _, alike := range gather.Alike(parts, func(c *planPart) string { return c.key(s) }) {
		title, name := cmp.Or(string(alike[0].component), "not in the setup"), ""
		if len(alike) > 1 {
			var ids []topology.ID
			for _, c := range alike {
				ids = append(ids, c.component)
			}
			title, name = several(ids), ids[0].Name()
		}
		fmt.Fprintf(s, "%s\n%s", s.Bold(s.Text(title)), alike[0].text(s, name))
	}
	if len(parts) > 0 {
		fmt.Fprintln(s)
	}
	fmt.Fprintln(s, p.Summary())
}

// planPart has the changes of a plan in a component.
type planPart struct {
	component topology.ID
	items     []plan.Item
	// onClusters reports that the plan has objects on several clusters.
	onClusters bool
}

// planParts returns the changes of each component, in the order of the plan.
func planParts(p *plan.Plan) []*planPart {
	onClusters, of := severalClusters(p), map[topology.ID]*planPart{}
	var parts []*planPart
	for _, it := range p.Items {
		if it.Action == plan.Unchanged || it.Action == plan.Unknown {
			continue
		}
		if of[it.Component] == nil {
			of[it.Component] = &planPart{component: it.Component, onClusters: onClusters}
			parts = append(parts, of[it.Component])
		}
		of[it.Component].items = append(of[it.Component].items, it)
	}
	return parts
}

// key is the same for components of a kind with the same changes.
func (c *planPart) key(s *Stream) string {
	return string(c.component.Kind()) + "\n" + c.text(s, c.component.Name())
}

// text has a line for each object, without a name.
func (c *planPart) text(s *Stream, name string) string {
	var b strings.Builder
	for _, it := range c.items {
		line := "  " + s.action(it.Action) + " " + s.Text(gather.Without(it.String(), name))
		if c.onClusters && it.Workspace == "" {
			line += "  " + s.Dim(s.Text(it.Cluster))
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

func (s *Stream) action(a plan.Action) string {
	switch a {
	case plan.Create:
		return s.Green("+")
	case plan.Change:
		return s.Yellow("~")
	}
	return s.Red("-")
}

// several is the title of many components of a kind: shard/{a,b,...} (99 alike).
func several(ids []topology.ID) string {
	var names []string
	for _, id := range ids {
		names = append(names, id.Name())
	}
	return fmt.Sprintf("%s (%d alike)", gather.Names(string(ids[0].Kind())+"/", names), len(ids))
}

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
	same := func(c plan.Conflict) string { return c.Kind + "\n" + c.Field + "\n" + c.Manager }
	var rows [][]string
	for _, alike := range gather.Alike(conflicts, same) {
		var objects []string
		for _, c := range alike {
			objects = append(objects, cmp.Or(c.Object, c.Ref.String()))
		}
		rows = append(rows, []string{s.Text(gather.Few(objects, gather.Listed, ", ")), s.Text(alike[0].Field),
			s.Text(alike[0].Manager)})
	}
	Table(s, []string{"OBJECT", "FIELD", "MANAGER"}, rows...)
	fmt.Fprint(s, `
Other field managers own these fields, and the setup has different values. Nothing was written. To resolve a conflict, either
  - stop the other manager from setting the field; or
`)
	var ways []string
	for _, c := range conflicts {
		if c.Leave != "" && !slices.Contains(ways, c.Leave) {
			ways = append(ways, c.Leave)
		}
	}
	if len(ways) > 0 {
		fmt.Fprintf(s, "  - leave the field to it, in the setup file: %s; or\n",
			s.Text(gather.Few(ways, gather.Listed, ", ")))
	}
	fmt.Fprintln(s, "  - rerun the command with --force-conflicts to take over the field.")
}
