package deploy

import (
	"context"
	"fmt"
	"slices"

	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/engine/run/agents"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
)

// agentChanges are the changes of the run to agents, against a record.
func (u *Up) agentChanges(known *record.Record) agents.Changes {
	return agents.Changes{Topology: u.Topology, Known: known, Left: u.left, Only: u.scope(), Removed: u.Options.Removed,
		Orphan: u.Options.Orphan}
}

// withdrawer returns what removes agents in a run.
func (u *Up) withdrawer(known *record.Record, state *pki.State) *agents.Withdrawer {
	return &agents.Withdrawer{Changes: u.agentChanges(known), Runtime: u.Runtime, State: state, Now: u.Now,
		Reporter: u.reporter}
}

// mayWithdraw refuses a plan that takes something away of agents while workspaces use it. A dry run shows the plan
// first.
func (p *preparation) mayWithdraw(ctx context.Context, res *Result) error {
	x := p.withdrawer(p.known, p.desired.Loaded)
	all := x.Withdrawn(res.Plan)
	for _, id := range p.Options.Orphan {
		if !p.again && !slices.ContainsFunc(all, func(w *agents.Withdrawal) bool { return w.Agent == id }) {
			return p.notOrphaned(id)
		}
	}
	if len(all) == 0 || p.quiet {
		return nil
	}
	if err := x.SameAgents(all); err != nil {
		return err
	}
	err := x.Allowed(ctx, all)
	if p.Options.DryRun && res.Refused == nil {
		res.Refused, err = err, nil
	}
	return err
}

// notOrphaned is the error about an agent of --orphan of which the run removes nothing.
func (p *preparation) notOrphaned(id topology.ID) error {
	was := p.known.Agents[id]
	if _, left := plan.UnreachableIn(p.left, was.Cluster); left && p.Topology.Component(id) == nil {
		return clierr.New(clierr.Failed,
			fmt.Sprintf("make the cluster reachable; or, if it is lost for good, also remove it from spec.clusters, "+
				"and pass --%s %s too", run.FlagForgetCluster, was.Cluster),
			"--%s %s: cluster %s cannot be reached, so nothing of it is removed; nothing was changed",
			agents.FlagOrphan, id, was.Cluster)
	}
	return clierr.New(clierr.BadInput, "remove it from the setup file first",
		"--%s %s: nothing of it is removed; nothing was changed", agents.FlagOrphan, id)
}

// mayUnbind refuses to delete APIBindings while their agent is paused: kcp would delete their objects, and wait for the
// agent.
func (p *preparation) mayUnbind(ctx context.Context, res *Result) error {
	if p.quiet {
		return nil
	}
	x := p.withdrawer(p.known, p.desired.Loaded)
	err := x.MayUnbind(ctx, x.Unbindings(res.Plan))
	if p.Options.DryRun {
		res.Refused, err = parallel.Join([]error{err, res.Refused}), nil
	}
	return err
}

// withdraw takes away what a plan removes of agents, before the rest of it is deleted. The record keeps an agent whose
// finalizer is still on objects, so that the next run tries again.
func (u *Up) withdraw(ctx context.Context, res *Result) error {
	x := u.withdrawer(res.known, res.PKI.State)
	if err := x.Run(ctx, res.Plan); err != nil {
		return err
	}
	for _, id := range x.Unreleased {
		was := res.known.Agents[id]
		if u.Topology.Component(id) == nil {
			was.Orphaned = true
			res.record.Agents[id] = was
		}
	}
	return nil
}

// recordAgents records the agents of the run.
func (g *guard) recordAgents() {
	g.res.record.SetAgents(g.agentChanges(g.known).Records(), g.scope().Limited(), g.Options.Removed...)
}
