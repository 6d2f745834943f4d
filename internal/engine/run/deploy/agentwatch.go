package deploy

import (
	"context"
	"errors"
	"fmt"

	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/agentstate"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// recordUnwatched lets a run without other changes restart the agents that do not watch all shards.
func (p *preparation) recordUnwatched(ctx context.Context, res *Result) {
	if p.known.Empty() || p.quiet || p.again && !res.Plan.Empty() {
		return // nothing to restart, or a run with changes, which looks at each agent when it is ready
	}
	for _, c := range p.Topology.OfKind(topology.Agent) {
		_, left := plan.UnreachableIn(p.left, c.Cluster.Name)
		if c.Replicas == 0 || left || !p.scope().Includes(c.ID()) {
			continue
		}
		gone := p.unwatched(ctx, c, p.desired.Loaded)
		if len(gone) == 0 {
			continue
		}
		res.Plan.Stale = true
		if !p.again {
			p.Note(fmt.Sprintf("%s %s; up restarts it", c.ID(), agentstate.Unwatching(gone)))
		}
	}
}

// unwatched returns the endpoints that an agent has failed to watch, and does not try again. It returns none if they
// cannot be read: only what is certain restarts an agent.
func (u *Up) unwatched(ctx context.Context, c *topology.Component, state *pki.State) []agentstate.Unwatched {
	var log agentstate.WatchLog
	if err := u.Runtime.Logs(ctx, c, run.LogOptions{}, &log); err != nil || !log.Failed() {
		return nil
	}
	proxy, err := run.ConnectFrontProxy(u.Runtime, u.Topology, u.left, state, u.Now())
	if err != nil {
		return nil
	}
	defer proxy.Close()
	all, err := (&agentstate.Agent{Component: c, Proxy: proxy}).Endpoints(ctx, u.Topology)
	if err != nil {
		return nil
	}
	return log.Unwatched(all)
}

// watches restarts, on behalf of c, an agent that does not watch all shards, now that they answer, and waits until
// another process leads. Workspaces do this one after another: the first restart is enough for all of them.
func (r *rollout) watches(ctx context.Context, c *topology.Component, a *agentstate.Agent) error {
	if err := r.restarting.Acquire(ctx, 1); err != nil {
		return context.Cause(ctx)
	}
	defer r.restarting.Release(1)
	gone := r.unwatched(ctx, a.Component, r.state)
	if len(gone) == 0 {
		return nil
	}
	message := agentstate.Unwatching(gone)
	if c != a.Component {
		message = string(a.ID()) + " " + message
	}
	r.Component(c.ID(), run.Running, message+"; it restarts")
	previous, err := a.Leads(ctx)
	if err == nil {
		err = r.Runtime.Replace(ctx, a.Component)
	}
	if err != nil {
		return clierr.New(clierr.Failed, "rerun the command: it restarts "+string(a.ID()), "%s %s: %w", a.ID(),
			agentstate.Unwatching(gone), err)
	}
	return r.until(ctx, c, func() error {
		holder, err := a.Leads(ctx)
		if err == nil && holder == previous {
			err = errors.New("the previous process still holds the Lease")
		}
		return err
	})
}
