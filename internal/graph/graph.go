// Package graph draws the topology of a setup: its components, the connections between them, their placement and their
// state.
package graph

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kcpctl/kcpctl/internal/topology"
)

// Graph is a setup as boxes and arrows.
type Graph struct {
	// Title is the name and the release of the setup.
	Title string
	// Clusters contain the boxes, in the order of the setup file.
	Clusters []Cluster
	Arrows   []Arrow
}

// Cluster is a cluster with the boxes of the components on it. Its title is empty on this machine.
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
		c := Cluster{}
		if !cl.Local {
			c.Title = fmt.Sprintf("cluster %s, namespace %s", cl.Name, cl.Namespace)
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
	for _, c := range t.Components {
		for _, e := range t.EdgesFrom(c) {
			for i := 0; e.Label != "" && i < len(e.Servers); i++ {
				g.Arrows = append(g.Arrows, Arrow{c.ID(), e.Servers[i].Component, e.Label})
			}
		}
	}
	return g
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
	b.Lines = append(b.Lines, strings.TrimPrefix(url, "https://"))
	if c.Replicas > 1 {
		b.Lines = append(b.Lines, fmt.Sprintf("%d replicas", c.Replicas))
	}
	if c.Storage != nil && c.Storage.Embedded {
		b.Lines = append(b.Lines, "etcd inside")
	}
	if c.Storage != nil && !c.Storage.Embedded && c.Storage.Etcd == "" && c.Kind != topology.Etcd {
		b.Lines = append(b.Lines, "etcd "+strings.Join(c.Storage.Servers, " "))
	}
	return b
}
