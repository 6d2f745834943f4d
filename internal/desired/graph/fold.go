package graph

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
)

// Fold returns the graph with one box for many components on a cluster that differ only in their name, and in the names
// of the components that they dial, such as each in its own etcd. The title of the box has their number.
func (g Graph) Fold() Graph {
	out := Graph{Title: g.Title}
	dials := map[topology.ID][]string{}
	for _, a := range g.Arrows {
		dials[a.From] = append(dials[a.From], a.Label+" "+string(a.To))
	}
	in := map[topology.ID]topology.ID{} // the box of each component that has one
	for _, cl := range g.Clusters {
		folded := Cluster{Title: cl.Title}
		for _, alike := range gather.Alike(cl.Boxes, func(b Box) string {
			text := slices.Concat(b.Lines, dials[b.ID], b.State.words())
			return string(b.Kind) + "\n" + gather.Without(strings.Join(text, "\n"), b.ID.Name())
		}) {
			for _, b := range alike {
				in[b.ID] = alike[0].ID
			}
			folded.Boxes = append(folded.Boxes, one(alike))
		}
		out.Clusters = append(out.Clusters, folded)
	}
	seen := map[Arrow]bool{}
	for _, a := range g.Arrows {
		if a = (Arrow{cmp.Or(in[a.From], a.From), cmp.Or(in[a.To], a.To), a.Label}); !seen[a] {
			seen[a] = true
			out.Arrows = append(out.Arrows, a)
		}
	}
	return out
}

// one returns the box of components that are alike. It keeps the ID of the first.
func one(alike []Box) Box {
	b := alike[0]
	if len(alike) == 1 {
		return b
	}
	var names, lines []string
	for _, other := range alike {
		names = append(names, other.ID.Name())
	}
	for _, l := range b.Lines {
		lines = append(lines, gather.Without(l, names[0]))
	}
	b.Title, b.Lines = fmt.Sprintf("%s (%d alike)", gather.Names(string(b.Kind)+"/", names), len(alike)), lines
	return b
}
