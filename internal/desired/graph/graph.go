// Package graph draws the topology of a setup: its components, the connections between them, their placement and their
// state.
package graph

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
)

// Graph is a setup as boxes and arrows.
type Graph struct {
	// Title is the name and the release of the setup.
	Title string
	// Clusters contain the boxes, in the order of the setup file.
	Clusters []Cluster
	Arrows   []Arrow
}

// Cluster is a cluster, or this machine, with the boxes of the components on it.
type Cluster struct {
	Title string
	Boxes []Box
}

// Box is a component.
type Box struct {
	ID   topology.ID
	Kind topology.Kind
	// Title is the name of the component. Lines are further facts, such as its URL and its replicas.
	Title string
	Lines []string
	State State
}

// State is the state of a component.
type State int

// The states of a component.
const (
	Unknown State = iota
	Ready
	NotReady
)

// Arrow is a component that dials another.
type Arrow struct {
	From, To topology.ID
	// Label describes the connection in one word.
	Label string
}

// New returns the graph of a topology. The state of components that are not in states is Unknown.
func New(t *topology.Topology, states map[topology.ID]State) Graph {
	g := Graph{Title: fmt.Sprintf("kcp %s %s", t.Name, t.Setup.Spec.Version)}
	for _, cl := range t.Clusters {
		c := Cluster{Title: fmt.Sprintf("cluster %s, namespace %s", cl.Name, cl.Namespace)}
		if cl.Local {
			c.Title = "this machine"
		}
		for _, comp := range t.Running() {
			if comp.Cluster.Name == cl.Name {
				c.Boxes = append(c.Boxes, box(comp, states[comp.ID()]))
			}
		}
		g.Clusters = append(g.Clusters, c)
	}
	if inside := t.OfKind(topology.Workspace); len(inside) > 0 {
		c := Cluster{Title: "workspaces"}
		for _, comp := range inside {
			c.Boxes = append(c.Boxes, workspaceBox(comp, states[comp.ID()]))
			if parent := topology.IDOf(topology.Workspace, comp.Workspace.Parent); t.Component(parent) != nil {
				g.Arrows = append(g.Arrows, Arrow{parent, comp.ID(), "contains"})
			}
		}
		g.Clusters = append(g.Clusters, c)
	}
	g.addPhysical(t, states)
	drawn := map[topology.ID]bool{}
	for _, b := range g.boxes() {
		drawn[b.ID] = true
	}
	for _, c := range t.Components {
		for _, e := range t.EdgesFrom(c) {
			for i := 0; e.Label != "" && i < len(e.Servers); i++ {
				if to := e.Servers[i].Component; drawn[c.ID()] && drawn[to] {
					g.Arrows = append(g.Arrows, Arrow{c.ID(), to, e.Label})
				}
			}
		}
	}
	return g
}

// addPhysical adds the physical clusters in which the setup runs no syncer. The controller syncs the clusters whose
// mode is push.
func (g *Graph) addPhysical(t *topology.Topology, states map[topology.ID]State) {
	c := Cluster{Title: "physical clusters"}
	for _, comp := range t.Idle(topology.Physical) {
		c.Boxes = append(c.Boxes, Box{ID: comp.ID(), Kind: comp.Kind, Title: string(comp.ID()),
			Lines: []string{"sync mode " + string(comp.Physical.SyncMode)}, State: states[comp.ID()]})
		for _, controller := range t.OfKind(topology.Workloads) {
			if comp.Physical.SyncMode == v1alpha1.SyncModePush {
				g.Arrows = append(g.Arrows, Arrow{controller.ID(), comp.ID(), "syncs"})
			}
		}
	}
	if len(c.Boxes) > 0 {
		g.Clusters = append(g.Clusters, c)
	}
}

func workspaceBox(c *topology.Component, s State) Box {
	b := Box{ID: c.ID(), Kind: c.Kind, Title: string(c.ID()), State: s}
	for _, key := range slices.Sorted(maps.Keys(c.Workspace.Selector)) {
		b.Lines = append(b.Lines, "on "+key+"="+c.Workspace.Selector[key])
	}
	return b
}

func box(c *topology.Component, s State) Box {
	b := Box{ID: c.ID(), Kind: c.Kind, Title: string(c.ID()), State: s}
	url := c.URL
	if c.Kind == topology.FrontProxy {
		url = c.ExternalURL
	}
	if c.Assignment.Pending() {
		url = "address assigned by its cluster"
	}
	if url != "" { // agents and controllers serve nothing
		b.Lines = append(b.Lines, strings.TrimPrefix(url, "https://"))
	}
	switch a := c.Autoscaling; {
	case a != nil:
		b.Lines = append(b.Lines, fmt.Sprintf("%d to %d replicas", a.MinReplicas, a.MaxReplicas))
	case c.Autoscaled:
		b.Lines = append(b.Lines, "replicas set by others")
	case c.Replicas > 1:
		b.Lines = append(b.Lines, fmt.Sprintf("%d replicas", c.Replicas))
	}
	if c.Storage != nil && c.Storage.Embedded {
		b.Lines = append(b.Lines, "embedded etcd")
	}
	if c.Storage != nil && !c.Storage.Embedded && c.Storage.Etcd == "" && c.Kind != topology.Etcd {
		b.Lines = append(b.Lines, "etcd "+strings.Join(c.Storage.Servers, " "))
	}
	return b
}

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
