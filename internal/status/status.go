// Package status collects the state of a running setup into one versioned result.
package status

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/kcp"
	"github.com/kcpctl/kcpctl/internal/pki"
	"github.com/kcpctl/kcpctl/internal/plan"
	"github.com/kcpctl/kcpctl/internal/ready"
	"github.com/kcpctl/kcpctl/internal/run"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// Status is the state of a setup.
type Status struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Name is the setup's name.
	Name string `json:"name"`
	// Version is the release that the setup asks for.
	Version string `json:"version"`
	// Where says where it runs.
	Where string `json:"where"`
	// URL is what clients dial.
	URL string `json:"url"`
	// Ready says that every component is ready, every shard is registered, and every front-proxy answers.
	Ready bool `json:"ready"`
	// Components are all components that run.
	Components []Component `json:"components"`
	// Shards are those that kcp has registered. Problem says why they are not known.
	Shards  []Shard `json:"shards,omitempty"`
	Problem string  `json:"problem,omitempty"`
	// NextExpiry is when the first certificate expires, NextExpiryName which it is.
	NextExpiry     time.Time `json:"nextExpiry,omitzero"`
	NextExpiryName string    `json:"nextExpiryName,omitempty"`
	// Rotations are those that are under way.
	Rotations []Rotation `json:"rotations,omitempty"`
	// Drift is how many objects differ from what the setup wants. DriftProblem says why that is not known.
	Drift        *int   `json:"drift,omitempty"`
	DriftProblem string `json:"driftProblem,omitempty"`
}

// Component is the state of a component.
type Component struct {
	ID      topology.ID `json:"id"`
	Cluster string      `json:"cluster,omitempty"`
	URL     string      `json:"url,omitempty"`
	ready.State
	// Registered says that kcp knows the shard. It is nil for other components, and where nobody could be asked.
	Registered *bool `json:"registered,omitempty"`
	// Unreachable is why a front-proxy that is ready does not answer.
	Unreachable string `json:"unreachable,omitempty"`
	// NextExpiry is when the first of its certificates expires.
	NextExpiry time.Time `json:"nextExpiry,omitzero"`
}

// Well tells whether nothing is wrong with a component.
func (c Component) Well() bool {
	return c.Ready && (c.Registered == nil || *c.Registered) && c.Unreachable == ""
}

// Shard is a registered shard and how much lives there.
type Shard struct {
	kcp.Shard
	// LogicalClusters is how many workspaces and other logical clusters live there, but for the shard's own. It is nil where
	// the shard could not be asked.
	LogicalClusters *int `json:"logicalClusters,omitempty"`
}

// Rotation is how far the rotation of some authorities, or of the service-account key, is.
type Rotation struct {
	pki.Rotations `json:"-"`
	// Of is what is rotated: server-ca, client-ca, service-account-key.
	Of    []string  `json:"of"`
	Phase pki.Phase `json:"phase"`
	// Next is the command that goes on. It is the caller's to fill in.
	Next string `json:"next,omitempty"`
}

// Kind is the kind of Status, as programs see it.
const Kind = "Status"

// patience is how long anybody may take to answer.
const patience = 5 * time.Second

// stateTime is how long the state of a component may take: the first one connects to its cluster.
const stateTime = 15 * time.Second

// parallel is how many servers are asked at once.
const parallel = 16

// Options say what to collect.
type Options struct {
	// Drift compares all objects with what the setup wants, which takes longest.
	Drift bool
}

// collector collects a status.
type collector struct {
	*Status
	topology *topology.Topology
	runtime  run.Runtime
	state    *pki.State
	now      time.Time
}

// Collect asks the runtime for every component, kcp for its shards, and everybody at once.
func Collect(ctx context.Context, t *topology.Topology, rt run.Runtime, now time.Time, o Options) (*Status, error) {
	state, err := rt.Store().Load(ctx)
	if err != nil {
		return nil, err
	}
	c := collector{&Status{
		APIVersion: v1alpha1.APIVersion, Kind: Kind, Name: t.Name, Version: t.Setup.Spec.Version, Where: rt.Where(),
		URL: t.OfKind(topology.FrontProxy)[0].ExternalURL,
	}, t, rt, state, now}
	var g errgroup.Group
	if o.Drift {
		g.Go(func() error { c.drift(ctx); return nil })
	}
	g.Go(func() error {
		if err := c.components(ctx); err != nil {
			return err
		}
		c.expiry()
		c.rotations()
		var asked errgroup.Group
		asked.Go(func() error { c.shards(ctx); return nil })
		asked.Go(func() error { c.proxies(ctx); return nil })
		return asked.Wait()
	})
	if err := g.Wait(); err != nil {
		return nil, err
	}
	c.Ready = c.ready()
	return c.Status, nil
}

// components asks for the state of every component. What cannot be asked has the error as its reason.
func (c *collector) components(ctx context.Context) error {
	running := c.topology.OfKind(topology.Etcd, topology.CacheServer, topology.RootShard, topology.Shard, topology.FrontProxy, topology.VirtualWorkspaces)
	c.Components = make([]Component, len(running))
	var g errgroup.Group
	g.SetLimit(parallel)
	for i, comp := range running {
		g.Go(func() error {
			c.Components[i] = Component{ID: comp.ID(), Cluster: comp.Cluster.Name, URL: comp.URL, State: c.stateOf(ctx, comp)}
			return nil
		})
	}
	_ = g.Wait()
	return context.Cause(ctx)
}

func (c *collector) stateOf(ctx context.Context, comp *topology.Component) ready.State {
	ctx, cancel := context.WithTimeoutCause(ctx, stateTime, fmt.Errorf("no answer within %s", stateTime))
	defer cancel()
	st, err := c.runtime.State(ctx, comp)
	if err != nil {
		return ready.State{Replicas: comp.Replicas, Reason: "not known: " + err.Error()}
	}
	return st
}

// rotations finds those that are under way. Those in the same phase go on together.
func (c *collector) rotations() {
	for _, phase := range []pki.Phase{pki.PhaseDistribute, pki.PhaseSwitch} {
		var authorities, key pki.Rotations
		for _, r := range pki.AllRotations().In(c.state, phase) {
			if r.CA() == "" {
				key = append(key, r)
				continue
			}
			authorities = append(authorities, r)
		}
		for _, all := range []pki.Rotations{authorities, key} {
			if len(all) == 0 {
				continue
			}
			under := Rotation{Rotations: all, Phase: phase}
			for _, r := range all {
				under.Of = append(under.Of, r.Key())
			}
			c.Rotations = append(c.Rotations, under)
		}
	}
}

// shards asks the root shard which shards it knows, if it runs, and each of them what lives there.
func (c *collector) shards(ctx context.Context) {
	switch {
	case !c.component(c.topology.Root().ID()).Ready:
		c.Problem = "the root shard is not ready, so registered shards are not known"
		return
	case len(c.state.CAs) == 0:
		c.Problem = "there is no PKI, so kcp cannot be asked"
		return
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no answer within %s", patience))
	defer cancel()
	registered, err := c.registered(ctx)
	if err != nil {
		c.Problem = "the root shard does not answer: " + err.Error()
		return
	}
	known := map[string]*Shard{}
	for _, sh := range registered {
		c.Shards = append(c.Shards, Shard{Shard: sh})
	}
	for i := range c.Shards {
		known[c.Shards[i].Name] = &c.Shards[i]
	}
	var g errgroup.Group
	g.SetLimit(parallel)
	for _, comp := range c.topology.Shards() {
		sh, ok := known[comp.ShardName()]
		found := c.component(comp.ID())
		found.Registered = &ok
		if ok && found.ReadyReplicas > 0 {
			g.Go(func() error { sh.LogicalClusters = c.count(ctx, comp); return nil })
		}
	}
	_ = g.Wait() // what does not answer is not counted
}

func (c *collector) registered(ctx context.Context) ([]kcp.Shard, error) {
	root, err := run.Connect(c.runtime, c.topology.Root(), c.state, c.now)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return root.Shards(ctx)
}

// count is how many logical clusters live on a shard; nil if it does not tell.
func (c *collector) count(ctx context.Context, shard *topology.Component) *int {
	client, err := run.Connect(c.runtime, shard, c.state, c.now)
	if err != nil {
		return nil
	}
	defer client.Close()
	clusters, err := client.LogicalClusters(ctx)
	if err != nil {
		return nil
	}
	n := len(clusters)
	return &n
}

// proxies asks every front-proxy that is ready whether it serves.
func (c *collector) proxies(ctx context.Context) {
	if len(c.state.CAs) == 0 {
		return
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no answer within %s", patience))
	defer cancel()
	var g errgroup.Group
	g.SetLimit(parallel)
	for _, p := range c.topology.OfKind(topology.FrontProxy) {
		found := c.component(p.ID())
		if found.ReadyReplicas == 0 {
			continue
		}
		g.Go(func() error {
			client, err := run.Connect(c.runtime, p, c.state, c.now)
			if err == nil {
				defer client.Close()
				err = client.Ready(ctx)
			}
			if err != nil {
				found.Unreachable = err.Error()
			}
			return nil
		})
	}
	_ = g.Wait() // the errors are in the components
}

// drift compares all objects with what the setup wants.
func (c *collector) drift(ctx context.Context) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no answer within %s", patience))
	defer cancel()
	p, _, err := run.Compare(ctx, c.topology, c.runtime, c.now)
	if err != nil {
		c.DriftProblem = err.Error()
		return
	}
	n := 0
	for _, it := range p.Items {
		if it.Action != plan.Unchanged {
			n++
		}
	}
	c.Drift = &n
}

func (s *Status) component(id topology.ID) *Component {
	for i := range s.Components {
		if s.Components[i].ID == id {
			return &s.Components[i]
		}
	}
	return nil
}

// expiry finds the certificate that expires first, of all and of each component.
func (c *collector) expiry() {
	earlier := func(t *time.Time, other time.Time) bool {
		if !t.IsZero() && !other.Before(*t) {
			return false
		}
		*t = other
		return true
	}
	for _, cert := range pki.Table(c.topology) {
		info, err := pki.Inspect(c.state.Leaves[cert.Key()].Cert)
		if err != nil {
			continue // not issued yet: up does that
		}
		if comp := c.component(cert.Component); comp != nil {
			earlier(&comp.NextExpiry, info.NotAfter)
		}
		if earlier(&c.NextExpiry, info.NotAfter) {
			c.NextExpiryName = cert.Secret
		}
	}
}

func (s *Status) ready() bool {
	for _, c := range s.Components {
		if !c.Well() {
			return false
		}
	}
	return s.Problem == ""
}
