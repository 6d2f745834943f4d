// Package status collects the state of a running setup into one versioned result.
package status

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/client/ready"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/agentstate"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/engine/run/deploy"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
)

// Status is the state of a setup.
type Status struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Name is the setup's name.
	Name string `json:"name"`
	// Version is the desired release.
	Version string `json:"version"`
	// Where is the place where it runs.
	Where string `json:"where"`
	// URL is the address for clients.
	URL string `json:"url"`
	// Ready is true if every component is ready, every shard is registered, every front-proxy answers, every agent
	// publishes, and no interrupted run has left workspaces that are being moved.
	Ready bool `json:"ready"`
	// State is one word for the whole setup.
	State State `json:"state"`
	// Run is the run that changes the setup now. LastRun is the last run, if it has begun to change the setup and has
	// not finished.
	Run     *record.Run `json:"run,omitempty"`
	LastRun *record.Run `json:"lastRun,omitempty"`
	// Restoring is the backup that a restore has begun to bring back, and has not finished.
	Restoring string `json:"restoring,omitempty"`
	// PKIProblem is why the PKI store does not belong to the installation, and PKINext what to do.
	PKIProblem string `json:"pkiProblem,omitempty"`
	PKINext    string `json:"pkiNext,omitempty"`
	// LostKeys says which authorities have lost their private keys, and LostKeysNext what to do.
	LostKeys     string `json:"lostKeys,omitempty"`
	LostKeysNext string `json:"lostKeysNext,omitempty"`
	// Clusters are the places of the components, if there are several.
	Clusters []Cluster `json:"clusters,omitempty"`
	// Components are all components that are processes.
	Components []Component `json:"components"`
	// Shards are the registered shards. Problem is why they are unknown, or which workspaces an interrupted run was
	// moving.
	Shards  []Shard `json:"shards,omitempty"`
	Problem string  `json:"problem,omitempty"`
	// Moves are the moves of these workspaces.
	Moves []kcp.Unfinished `json:"-"`
	// NextExpiry is when the first certificate expires, NextExpiryName which one it is.
	NextExpiry     time.Time `json:"nextExpiry,omitzero"`
	NextExpiryName string    `json:"nextExpiryName,omitempty"`
	// Rotations are the rotations in progress.
	Rotations []Rotation `json:"rotations,omitempty"`
	// Drift is how many objects differ from the setup. DriftProblem is why that is unknown, and DriftUnknown is how
	// many objects are on clusters that cannot be reached.
	Drift        *int   `json:"drift,omitempty"`
	DriftProblem string `json:"driftProblem,omitempty"`
	DriftUnknown int    `json:"driftUnknown,omitempty"`
	// Next is the command that repairs a setup that is not ready, or explains what is wrong.
	Next string `json:"next,omitempty"`
}

// State is the state of a whole setup.
type State string

// The states. NotReady is every state in which something runs, or should.
const (
	Ready        State = "Ready"
	NotReady     State = "NotReady"
	Stopped      State = "Stopped" // kcpctl down was run; the data is kept
	NotInstalled State = "NotInstalled"
)

// Off reports whether the setup is not meant to run.
func (s State) Off() bool { return s == Stopped || s == NotInstalled }

// Cluster is a place of components.
type Cluster struct {
	Name      string `json:"name"`
	Context   string `json:"context,omitempty"`
	Namespace string `json:"namespace"`
	Region    string `json:"region,omitempty"`
	// Unreachable is why the cluster cannot be reached, and Next the next step.
	Unreachable string `json:"unreachable,omitempty"`
	Next        string `json:"next,omitempty"`
}

// Component is the state of a component.
type Component struct {
	ID      topology.ID `json:"id"`
	Cluster string      `json:"cluster,omitempty"`
	URL     string      `json:"url,omitempty"`
	ready.State
	// Unknown is true if its cluster cannot be reached, or its state could not be read.
	Unknown bool `json:"unknown,omitempty"`
	// Registered is whether a shard is registered. It is nil for other components, and if the root shard could not be
	// asked.
	Registered *bool `json:"registered,omitempty"`
	// Unreachable is why a front-proxy that is ready does not answer.
	Unreachable string `json:"unreachable,omitempty"`
	// Agent is the state of an agent with ready pods. It is nil for other components.
	Agent *Agent `json:"agent,omitempty"`
	// NextExpiry is when the first of its certificates expires.
	NextExpiry time.Time `json:"nextExpiry,omitzero"`
}

// Well reports whether nothing is wrong with a component.
func (c Component) Well() bool {
	return c.Ready && (c.Registered == nil || *c.Registered) && c.Unreachable == "" &&
		(c.Agent == nil || c.Agent.Problem == "")
}

// Shard is a registered shard and how many logical clusters it has.
type Shard struct {
	kcp.Shard
	// LogicalClusters counts workspaces and other logical clusters, without the shard's own. It is nil if the shard
	// could not be asked.
	LogicalClusters *int `json:"logicalClusters,omitempty"`
}

// Rotation is the phase of a rotation of some authorities, or of a key.
type Rotation struct {
	pki.Rotations `json:"-"`
	// Of names what is rotated: server-ca, client-ca, service-account-key, encryption-key.
	Of    []string  `json:"of"`
	Phase pki.Phase `json:"phase"`
	// Incomplete is set while not every component has what the phase brings. Done is how many of the components that
	// the rotation changes have it; nil if that is not known.
	Incomplete bool   `json:"incomplete,omitempty"`
	Done       *Share `json:"done,omitempty"`
	// Next is the command that continues it. The caller fills it in.
	Next string `json:"next,omitempty"`
}

// Kind is the kind of Status, as programs see it.
const Kind = "Status"

const (
	// patience limits how long a server may take to answer.
	patience = 5 * time.Second
	// perComponent is how long the comparison of a component's objects with the setup may take. It limits large setups,
	// which may take longer than one answer.
	perComponent = 100 * time.Millisecond
	// statePatience limits how long the state of a component may take: the first one connects to its cluster.
	statePatience = 15 * time.Second
	// atOnce is how many servers are asked concurrently.
	atOnce = 16
)

// Options select what to collect.
type Options struct {
	// Drift compares all objects with the setup, which takes longest.
	Drift bool
}

// Runtime has the methods of a runtime that a status needs.
type Runtime interface {
	deploy.CompareRuntime
	run.RunReader
	run.Reacher
	run.Prober
	agentstate.Reader
	// Objects returns everything that was applied.
	Objects(ctx context.Context) ([]plan.Item, error)
	// Logs writes the logs of a component.
	Logs(ctx context.Context, c *topology.Component, o run.LogOptions, w io.Writer) error
	// Where describes the place in a few words.
	Where() string
}

// collector collects a status.
type collector struct {
	*Status
	topology *topology.Topology
	runtime  Runtime
	state    *pki.State
	now      time.Time
	// known is the record of the installation; nil if it cannot be read.
	known *record.Record
	// applying means that a run has begun to write and not finished. It may be in progress.
	applying bool
	// pending are the components that differ from the setup; nil if that is not known.
	pending map[topology.ID]bool
	// lost are the clusters that cannot be reached.
	lost []plan.Unreachable
}

// Collect reads every component from the runtime and the shards from kcp, concurrently. It excludes clusters that
// cannot be reached, unless that is all of them.
func Collect(ctx context.Context, t *topology.Topology, rt Runtime, now time.Time, o Options) (*Status, error) {
	lost := rt.Unreachable(ctx)
	rt.LeaveOut(lost)
	state, err := rt.Store().Load(ctx)
	if err != nil && (len(lost) == 0 || len(lost) == len(t.Clusters)) {
		return nil, err
	}
	problem := ""
	if err != nil {
		state, problem = &pki.State{}, "the certificates are unknown: "+err.Error()
	}
	c := collector{Status: &Status{
		APIVersion: v1alpha1.APIVersion, Kind: Kind, Name: t.Name, Version: t.Setup.Spec.Version, Where: rt.Where(),
		URL: t.FrontProxies()[0].ExternalURL, Clusters: places(t, lost),
	}, topology: t, runtime: rt, state: state, now: now, lost: lost}
	c.installation(ctx, problem == "")
	var g errgroup.Group
	if o.Drift && c.PKIProblem == "" {
		g.Go(func() error { c.drift(ctx); return nil })
	}
	g.Go(func() error {
		if err := c.components(ctx); err != nil {
			return err
		}
		c.expiry()
		c.rotations()
		if c.off(ctx) {
			return nil
		}
		var asked errgroup.Group
		asked.Go(func() error { c.shards(ctx); return nil })
		asked.Go(func() error { c.proxies(ctx); return nil })
		asked.Go(func() error { c.agents(ctx); return nil })
		return asked.Wait()
	})
	if err := g.Wait(); err != nil {
		return nil, err
	}
	c.Problem = cmp.Or(problem, c.Problem)
	c.countRotated()
	c.Ready = c.ready()
	switch {
	case c.State != "":
	case c.Ready:
		c.State = Ready
	default:
		c.State = NotReady
	}
	return c.Status, nil
}

// places returns the clusters of a setup, if there are several.
func places(t *topology.Topology, lost []plan.Unreachable) []Cluster {
	var out []Cluster
	for _, cl := range t.Clusters {
		c := Cluster{Name: cl.Name, Context: cl.Context, Namespace: cl.Namespace, Region: cl.Region}
		if l, is := plan.UnreachableIn(lost, cl.Name); is {
			c.Unreachable, c.Next = l.Err.Error(), clierr.Hint(l.Err)
		}
		out = append(out, c)
	}
	if len(out) < 2 {
		return nil
	}
	return out
}

// components reads the state of every component. If that fails, the error is the reason why the component is not ready.
func (c *collector) components(ctx context.Context) error {
	c.Components = parallel.Map(atOnce, Shown(c.topology), func(comp *topology.Component) Component {
		out := Component{ID: comp.ID(), Cluster: comp.Cluster.Name, URL: comp.URL}
		if _, out.Unknown = plan.UnreachableIn(c.lost, comp.Cluster.Name); out.Unknown {
			out.State = ready.State{Replicas: comp.Replicas,
				Reason: "cluster " + comp.Cluster.Name + " cannot be reached"}
		} else {
			out.State = c.stateOf(ctx, comp)
			out.Unknown = out.Unexamined
		}
		return out
	})
	return context.Cause(ctx)
}

// Shown returns the components that a status has.
func Shown(t *topology.Topology) []*topology.Component {
	shown := append(t.Running(), t.OfKind(topology.Workspace)...)
	return append(shown, t.Idle(topology.Physical)...)
}

func (c *collector) stateOf(ctx context.Context, comp *topology.Component) ready.State {
	ctx, cancel := context.WithTimeoutCause(ctx, statePatience, fmt.Errorf("no answer within %s", statePatience))
	defer cancel()
	st, err := c.runtime.State(ctx, comp)
	if err != nil {
		return ready.State{Replicas: comp.Replicas, Reason: "unknown: " + err.Error(), Unexamined: true}
	}
	return st
}

// proxies asks every front-proxy that is ready whether it serves.
func (c *collector) proxies(ctx context.Context) {
	if len(c.state.CAs) == 0 {
		return
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no answer within %s", patience))
	defer cancel()
	proxies := slices.DeleteFunc(c.topology.FrontProxies(), func(p *topology.Component) bool {
		return c.component(p.ID()).ReadyReplicas == 0
	})
	errs := parallel.Map(atOnce, proxies, func(p *topology.Component) error {
		client, err := kcp.Connect(c.runtime, p, c.state, c.now)
		if err != nil {
			return err
		}
		defer client.Close()
		return client.Ready(ctx)
	})
	for i, p := range proxies {
		if errs[i] != nil {
			c.component(p.ID()).Unreachable = errs[i].Error()
		}
	}
}

// drift compares all objects with the setup.
func (c *collector) drift(ctx context.Context) {
	limit := max(patience, time.Duration(len(c.topology.Components))*perComponent)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer within %s", limit))
	defer cancel()
	p, _, err := deploy.Compare(ctx, c.topology, c.runtime, c.now)
	if err != nil {
		c.DriftProblem = err.Error()
		return
	}
	n := 0
	pending := map[topology.ID]bool{}
	for _, it := range p.Items {
		if it.Action != plan.Unchanged && it.Action != plan.Unknown && it.Action != plan.Keep {
			n++
			pending[it.Component] = true
		}
	}
	c.pending = pending
	c.Drift, c.DriftUnknown = &n, p.Count(plan.Unknown)
}

func (s *Status) component(id topology.ID) *Component {
	for i := range s.Components {
		if s.Components[i].ID == id {
			return &s.Components[i]
		}
	}
	return nil
}

// expiry finds the certificate that expires first, of all components and of each.
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
	return s.Problem == "" && s.PKIProblem == "" && s.Restoring == "" && !s.State.Off()
}
