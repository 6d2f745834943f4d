// Package status collects the state of a running setup into one versioned result.
package status

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/kcp"
	"github.com/kcpctl/kcpctl/internal/pki"
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
	// Ready says that every component is ready and every shard is registered.
	Ready bool `json:"ready"`
	// Components are all components that run.
	Components []Component `json:"components"`
	// Shards are those that kcp has registered. Problem says why they are not known.
	Shards  []kcp.Shard `json:"shards,omitempty"`
	Problem string      `json:"problem,omitempty"`
	// NextExpiry is when the first certificate expires, NextExpiryName which it is.
	NextExpiry     time.Time `json:"nextExpiry,omitzero"`
	NextExpiryName string    `json:"nextExpiryName,omitempty"`
}

// Component is the state of a component.
type Component struct {
	ID      topology.ID `json:"id"`
	Cluster string      `json:"cluster,omitempty"`
	URL     string      `json:"url,omitempty"`
	ready.State
	// Registered says that kcp knows the shard. It is nil for other components, and where nobody could be asked.
	Registered *bool `json:"registered,omitempty"`
}

// Kind is the kind of Status, as programs see it.
const Kind = "Status"

// shardTimeout limits how long the root shard may take to answer.
const shardTimeout = 10 * time.Second

// Collect asks the runtime for every component, and the root shard for the shards that it knows.
func Collect(ctx context.Context, t *topology.Topology, rt run.Runtime, now time.Time) (*Status, error) {
	state, err := rt.Store().Load(ctx)
	if err != nil {
		return nil, err
	}
	s := &Status{
		APIVersion: v1alpha1.APIVersion, Kind: Kind, Name: t.Name, Version: t.Setup.Spec.Version, Where: rt.Where(),
		URL: t.OfKind(topology.FrontProxy)[0].ExternalURL,
	}
	if err := s.components(ctx, t, rt); err != nil {
		return nil, err
	}
	s.shards(ctx, t, rt, state, now)
	s.expiry(t, state)
	s.Ready = s.ready()
	return s, nil
}

func (s *Status) components(ctx context.Context, t *topology.Topology, rt run.Runtime) error {
	running := t.OfKind(topology.Etcd, topology.CacheServer, topology.RootShard, topology.Shard, topology.FrontProxy, topology.VirtualWorkspaces)
	s.Components = make([]Component, len(running))
	g, ctx := errgroup.WithContext(ctx)
	for i, c := range running {
		g.Go(func() error {
			st, err := rt.State(ctx, c)
			s.Components[i] = Component{ID: c.ID(), Cluster: c.Cluster.Name, URL: c.URL, State: st}
			return err
		})
	}
	return g.Wait()
}

// shards asks the root shard which shards it knows, if it runs.
func (s *Status) shards(ctx context.Context, t *topology.Topology, rt run.Runtime, state *pki.State, now time.Time) {
	root := s.component(t.Root().ID())
	switch {
	case !root.Ready:
		s.Problem = "the root shard is not ready, so registered shards are not known"
		return
	case len(state.CAs) == 0:
		s.Problem = "there is no PKI, so kcp cannot be asked"
		return
	}
	ctx, cancel := context.WithTimeout(ctx, shardTimeout)
	defer cancel()
	client, err := run.Connect(rt, t.Root(), state, now)
	if err == nil {
		s.Shards, err = client.Shards(ctx)
	}
	if err != nil {
		s.Problem = "the root shard does not answer: " + err.Error()
		return
	}
	known := map[string]bool{}
	for _, sh := range s.Shards {
		known[sh.Name] = true
	}
	for _, c := range t.Shards() {
		registered := known[c.ShardName()]
		s.component(c.ID()).Registered = &registered
	}
}

func (s *Status) component(id topology.ID) *Component {
	for i := range s.Components {
		if s.Components[i].ID == id {
			return &s.Components[i]
		}
	}
	return nil
}

// expiry finds the certificate that expires first.
func (s *Status) expiry(t *topology.Topology, state *pki.State) {
	for _, cert := range pki.Table(t) {
		info, err := pki.Inspect(state.Leaves[cert.Key()].Cert)
		if err != nil {
			continue // not issued yet: up does that
		}
		if s.NextExpiry.IsZero() || info.NotAfter.Before(s.NextExpiry) {
			s.NextExpiry, s.NextExpiryName = info.NotAfter, cert.Secret
		}
	}
}

func (s *Status) ready() bool {
	for _, c := range s.Components {
		if !c.Ready || (c.Registered != nil && !*c.Registered) {
			return false
		}
	}
	return s.Problem == ""
}
