package status

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/agentstate"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
	"github.com/kcpctl/kcpctl/internal/kit/poll"
)

// secondTry is when a shard that refuses an agent is queried again.
const secondTry = 2 * time.Second

// Agent is the state of an agent.
type Agent struct {
	// Leader is the replica that holds its Lease.
	Leader string `json:"leader,omitempty"`
	// Published are the PublishedResources that are in the APIExport, of all. It is nil if that is not known.
	Published *Share `json:"published,omitempty"`
	// Answering are the shards that answer the agent, of all that serve its APIExport. It is nil if that is not known.
	Answering *Share `json:"answering,omitempty"`
	// Problem is why the agent does not work although its pods are ready.
	Problem string `json:"problem,omitempty"`
	// Unknown is why kcp could not be asked. Other components have the reason.
	Unknown string `json:"unknown,omitempty"`
}

// Share is a number of some things, of which there are Of.
type Share struct {
	Count int `json:"count"`
	Of    int `json:"of"`
}

func (s Share) String() string { return fmt.Sprintf("%d/%d", s.Count, s.Of) }

// askedAgent is an agent with the answers about it.
type askedAgent struct {
	*agentstate.Agent
	shown     *Agent
	endpoints []agentstate.Endpoint
	// why it does not lead, does not publish, and is not reached.
	lease, export, slice error
	unanswered           []string
	// answered are the endpoints that answer, and unwatched is why the agent does not watch all of them.
	answered  []agentstate.Endpoint
	unwatched string
}

// dialled is an endpoint of an agent that is queried.
type dialled struct {
	agent    *askedAgent
	endpoint agentstate.Endpoint
	err      error
}

// agents reads the states of the agents that have ready pods: the cluster of each for its Lease and its
// PublishedResources, kcp for its APIExport, and the shards whether they answer it.
func (c *collector) agents(ctx context.Context) {
	var all []*askedAgent
	for _, comp := range c.topology.OfKind(topology.Agent) {
		if c.component(comp.ID()).ReadyReplicas > 0 {
			read := &agentstate.Agent{Component: comp, Runtime: c.runtime, Now: func() time.Time { return c.now }}
			all = append(all, &askedAgent{Agent: read, shown: &Agent{}})
		}
	}
	if len(all) == 0 {
		return
	}
	proxy, unknown := c.frontProxy()
	if proxy != nil {
		defer proxy.Close()
	}
	parallel.Map(atOnce, all, func(a *askedAgent) error {
		a.Proxy = proxy
		a.shown.Unknown = unknown
		a.read(ctx, c.topology)
		return nil
	})
	if proxy != nil {
		c.endpoints(ctx, all)
		parallel.Map(atOnce, all, func(a *askedAgent) error {
			c.watched(ctx, a)
			return nil
		})
	}
	for _, a := range all {
		for _, err := range []error{a.lease, a.export, a.slice} {
			if err != nil && a.shown.Problem == "" {
				a.shown.Problem = err.Error()
			}
		}
		if a.shown.Problem == "" {
			a.shown.Problem = cmp.Or(gather.Few(a.unanswered, 1, "; "), a.unwatched)
		}
		c.component(a.ID()).Agent = a.shown
	}
}

// frontProxy returns a client of a front-proxy that is ready, or the reason why there is none.
func (c *collector) frontProxy() (client *kcp.Client, unknown string) {
	if len(c.state.CAs) == 0 {
		return nil, "the PKI store is empty, so kcp cannot be asked"
	}
	for _, p := range c.topology.FrontProxies() {
		if c.component(p.ID()).ReadyReplicas == 0 || !p.AcceptsClientCertificates() {
			continue
		}
		client, err := kcp.Connect(c.runtime, p, c.state, c.now)
		if err != nil {
			return nil, err.Error()
		}
		return client, ""
	}
	return nil, "no front-proxy is ready that accepts client certificates"
}

// read reads everything about an agent but the answers of shards.
func (a *askedAgent) read(ctx context.Context, t *topology.Topology) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no answer within %s", patience))
	defer cancel()
	var g errgroup.Group
	if a.Proxy != nil || a.Agent.Agent.ServiceWorkspace() == "" {
		g.Go(func() (err error) {
			a.shown.Leader, err = a.Leader(ctx)
			a.lease = because(ctx, "read its Lease", err)
			return nil
		})
	}
	if a.Proxy != nil {
		g.Go(func() error {
			n, err := a.Published(ctx)
			if ctx.Err() == nil {
				a.shown.Published = &Share{Count: n, Of: len(a.Agent.Agent.PublishedResources)}
			}
			a.export = because(ctx, "read what it has published", err)
			return nil
		})
		g.Go(func() (err error) {
			a.endpoints, err = a.Endpoints(ctx, t)
			a.slice = because(ctx, "read the shards that serve its APIExport", err)
			return nil
		})
	}
	_ = g.Wait() // what failed is in the fields
}

// because returns an error with the reason for which the context has ended, if it has.
func because(ctx context.Context, what string, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	return fmt.Errorf("%s: %w", what, context.Cause(ctx))
}

// endpoints asks all endpoints of the agents. A shard that is not ready does not answer, and that is not the problem of
// the agent.
func (c *collector) endpoints(ctx context.Context, agents []*askedAgent) {
	var all []*dialled
	for _, a := range agents {
		if a.slice == nil {
			a.shown.Answering = &Share{Of: len(a.endpoints)}
		}
		for _, e := range a.endpoints {
			switch {
			case e.Shard == nil:
				a.unanswered = append(a.unanswered, fmt.Sprintf("%s belongs to no shard of the setup", e.URL))
			case c.serving(c.topology.WorkspaceServer(e.Shard)):
				all = append(all, &dialled{agent: a, endpoint: e})
			}
		}
	}
	parallel.Map(atOnce, all, func(d *dialled) error {
		ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no answer within %s", patience))
		defer cancel()
		d.err = c.answers(ctx, d)
		return nil
	})
	for _, d := range all {
		if d.err != nil {
			d.agent.unanswered = append(d.agent.unanswered, d.err.Error())
			continue
		}
		d.agent.shown.Answering.Count++
		d.agent.answered = append(d.agent.answered, d.endpoint)
	}
}

// watched reads in the log of an agent whether it watches the endpoints that answer. A log that cannot be read in time
// says nothing.
func (c *collector) watched(ctx context.Context, a *askedAgent) {
	if len(a.answered) == 0 || len(a.unanswered) > 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var log agentstate.WatchLog
	if c.runtime.Logs(ctx, a.Component, run.LogOptions{}, &log) != nil || !log.Failed() {
		return
	}
	if gone := log.Unwatched(a.answered); len(gone) > 0 {
		a.unwatched = agentstate.Unwatching(gone) + "; kcpctl up restarts it"
	}
}

// answers returns nil if an endpoint answers its agent, or the reason why not. A shard with its first consumer is
// listed a moment before it answers, so a shard that refuses is queried twice.
func (c *collector) answers(ctx context.Context, d *dialled) error {
	server := c.topology.WorkspaceServer(d.endpoint.Shard)
	ask := func() error { return d.agent.Answers(ctx, d.endpoint, server, c.state, c.runtime) }
	refused := ask()
	if refused == nil || ctx.Err() != nil {
		return because(ctx, string(d.endpoint.Shard.ID()), refused)
	}
	if poll.Pause(ctx, secondTry) == nil && ask() == nil {
		return nil
	}
	return refused
}

// serving reports whether a component has ready pods.
func (c *collector) serving(comp *topology.Component) bool {
	_, lost := plan.UnreachableIn(c.lost, comp.Cluster.Name)
	return !lost && c.component(comp.ID()).ReadyReplicas > 0
}
