// Package graph draws the topology of a setup: components, what they dial, where they are placed and how they are.
package graph

import (
	"fmt"
	"strings"

	"github.com/kcpctl/kcpctl/internal/topology"
)

// Graph is a setup as boxes and arrows.
type Graph struct {
	// Title is the setup's name and release.
	Title string
	// Clusters hold boxes, in the order of the setup.
	Clusters []Cluster
	Arrows   []Arrow
}

// Cluster is where boxes are placed. Its title is empty on this machine.
type Cluster struct {
	Title string
	Boxes []Box
}

// Box is a component.
type Box struct {
	ID   topology.ID
	Kind topology.Kind
	// Title is its name, Lines what else is worth knowing: its URL, its replicas.
	Title string
	Lines []string
	// State is how it is: ready, not ready, or unknown.
	State State
	// Layer is how far below the clients it is.
	Layer int
}

// State is how a component is.
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
	// Label says what for.
	Label string
}

// New draws a topology. States may lack components, or be nil: then their state is unknown.
func New(t *topology.Topology, states map[topology.ID]State) Graph {
	g := Graph{Title: fmt.Sprintf("kcp %s %s", t.Name, t.Setup.Spec.Version)}
	for _, cl := range t.Clusters {
		c := Cluster{Title: title(cl)}
		for _, comp := range t.Components {
			if layer, ok := layers()[comp.Kind]; ok && comp.Cluster.Name == cl.Name {
				c.Boxes = append(c.Boxes, box(comp, layer, states[comp.ID()]))
			}
		}
		g.Clusters = append(g.Clusters, c)
	}
	for _, c := range t.Components {
		g.Arrows = append(g.Arrows, arrows(t, c)...)
	}
	return g
}

// layers are the kinds that are drawn, clients on top.
func layers() map[topology.Kind]int {
	return map[topology.Kind]int{
		topology.FrontProxy: 0, topology.VirtualWorkspaces: 0, topology.RootShard: 1, topology.Shard: 1,
		topology.CacheServer: 2, topology.Etcd: 3,
	}
}

func title(cl topology.Cluster) string {
	if cl.Namespace == "" {
		return ""
	}
	return fmt.Sprintf("cluster %s, namespace %s", cl.Name, cl.Namespace)
}

func box(c *topology.Component, layer int, s State) Box {
	b := Box{ID: c.ID(), Kind: c.Kind, Title: string(c.ID()), State: s, Layer: layer}
	url := c.URL
	if c.Kind == topology.FrontProxy {
		url = c.ExternalURL
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

// arrows are what a component dials while it serves. All shards dial each other; that is not drawn.
func arrows(t *topology.Topology, c *topology.Component) []Arrow {
	var out []Arrow
	to := func(id topology.ID, label string) { out = append(out, Arrow{c.ID(), id, label}) }
	switch c.Kind {
	case topology.FrontProxy:
		for _, s := range t.Shards() {
			to(s.ID(), "requests")
		}
	case topology.VirtualWorkspaces:
		to(c.Serves, "serves")
	case topology.RootShard, topology.Shard:
		if c.Kind == topology.Shard {
			to(t.Root().ID(), "registers")
		}
		if cache := t.Cache(); cache != nil {
			to(cache.ID(), "replicates")
		}
	}
	if c.Storage != nil && c.Storage.Etcd != "" {
		to(c.Storage.Etcd, "stores")
	}
	return out
}
