package graph

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// Mermaid returns the graph as a mermaid flowchart, which GitHub renders in Markdown.
func (g Graph) Mermaid() string {
	var b strings.Builder
	b.WriteString("flowchart TB\n")
	for i, c := range g.Clusters {
		fmt.Fprintf(&b, "  subgraph c%d[%q]\n", i, c.Title)
		for _, box := range c.Boxes {
			lines := append([]string{"<b>" + box.Title + "</b>"}, box.Lines...)
			fmt.Fprintf(&b, "    %s[\"%s\"]\n", nodeName(box.ID), strings.Join(lines, "<br>"))
		}
		b.WriteString("  end\n")
	}
	for _, a := range g.Arrows {
		fmt.Fprintf(&b, "  %s -->|%s| %s\n", nodeName(a.From), a.Label, nodeName(a.To))
	}
	for _, box := range g.boxes() {
		if class := box.State.class(); class != "" {
			fmt.Fprintf(&b, "  class %s %s\n", nodeName(box.ID), class)
		}
	}
	b.WriteString("  classDef ready stroke:#1a7f37,stroke-width:2px\n  classDef notready " +
		"stroke:#cf222e,stroke-width:2px\n")
	return b.String()
}

// DOT returns the graph in the DOT language of Graphviz.
func (g Graph) DOT() string {
	var b strings.Builder
	fmt.Fprintf(&b, "digraph %q {\n  rankdir=TB; node [shape=box, style=rounded, fontname=\"sans-serif\"];\n", g.Title)
	for i, c := range g.Clusters {
		fmt.Fprintf(&b, "  subgraph cluster_%d {\n    label=%q;\n", i, c.Title)
		for _, box := range c.Boxes {
			label := strings.Join(append([]string{box.Title}, box.Lines...), "\n")
			fmt.Fprintf(&b, "    %q [label=%q, color=%q];\n", box.ID, label, box.State.colour())
		}
		b.WriteString("  }\n")
	}
	for _, a := range g.Arrows {
		fmt.Fprintf(&b, "  %q -> %q [label=%q];\n", a.From, a.To, a.Label)
	}
	b.WriteString("}\n")
	return b.String()
}

// Text returns the graph as indented lines: each component, followed by the components that it dials.
func (g Graph) Text() string {
	titles := map[topology.ID]string{}
	for _, box := range g.boxes() {
		titles[box.ID] = box.Title
	}
	var b strings.Builder
	fmt.Fprintln(&b, g.Title)
	for _, c := range g.Clusters {
		fmt.Fprintln(&b, c.Title)
		for _, box := range c.Boxes {
			fmt.Fprintf(&b, "  %s  %s\n", box.Title, strings.Join(append(box.Lines, box.State.words()...), ", "))
			for _, a := range g.Arrows {
				if a.From == box.ID {
					fmt.Fprintf(&b, "    %s %s\n", a.Label, cmp.Or(titles[a.To], string(a.To)))
				}
			}
		}
	}
	return b.String()
}

func (g Graph) boxes() []Box {
	var all []Box
	for _, c := range g.Clusters {
		all = append(all, c.Boxes...)
	}
	return all
}

func nodeName(id topology.ID) string {
	return strings.NewReplacer("/", "_", "-", "_", ".", "_", ":", "_C_").Replace(string(id))
}

func (s State) class() string { return [...]string{"", "ready", "notready"}[s] }

func (s State) colour() string { return [...]string{"#57606a", "#1a7f37", "#cf222e"}[s] }

func (s State) words() []string { return [...][]string{nil, {"ready"}, {"not ready"}}[s] }
