package run

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/agent"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
)

// FlagOrphan is the flag with the agents that are removed although workspaces have objects of their APIs. As with
// kubectl delete --cascade=orphan, the copies of the objects are kept.
const FlagOrphan = "orphan"

// stateSelector selects the Secrets in which an agent keeps the last known state of the objects (api-syncagent:
// internal/sync/types.go).
const stateSelector = agent.Group + "/object-state"

// unbindTime is how long the agent and kcp may take to delete the objects of an APIBinding.
const unbindTime = 15 * time.Minute

// withdrawer removes agents in the order in which nothing is left of them: while it runs, an agent deletes the copies
// of objects that users delete; then it is stopped, so that it does not write its state again; and what identifies it
// goes last, so that after an interruption at any time the same command continues.
type withdrawer struct {
	Runtime interface {
		Finder
		Deleter
		kcp.Dialer
	}
	topology *topology.Topology
	known    *record.Record
	state    *pki.State
	left     []plan.Unreachable
	now      func() time.Time
	// unreleased are agents whose finalizer could not be removed from all objects.
	unreleased []topology.ID
	*reporter
}

// withdrawer returns what removes agents in a run.
func (u *Up) withdrawer(known *record.Record, state *pki.State) *withdrawer {
	return &withdrawer{Runtime: u.Runtime, topology: u.Topology, known: known, state: state, left: u.left, now: u.Now,
		reporter: u.reporter}
}

// mayWithdraw refuses a plan that takes something away of agents while workspaces use it. A dry run shows the plan
// first.
func (p *preparation) mayWithdraw(ctx context.Context, res *Result) error {
	all := p.withdrawn(res.Plan, p.known)
	for _, id := range p.Options.Orphan {
		if !p.again && !slices.ContainsFunc(all, func(w *withdrawal) bool { return w.agent == id }) {
			return p.notOrphaned(id)
		}
	}
	if len(all) == 0 || p.quiet {
		return nil
	}
	if err := p.sameAgents(all); err != nil {
		return err
	}
	err := p.withdrawer(p.known, p.desired.Loaded).allowed(ctx, all)
	if p.Options.DryRun && res.Refused == nil {
		res.Refused, err = err, nil
	}
	return err
}

// notOrphaned is the error about an agent of --orphan of which the run removes nothing.
func (p *preparation) notOrphaned(id topology.ID) error {
	was := p.known.Agents[id]
	if p.Topology.Component(id) == nil && p.isLeft(was) {
		return clierr.New(clierr.Failed,
			fmt.Sprintf("make the cluster reachable; or, if it is lost for good, also remove it from spec.clusters, "+
				"and pass --%s %s too", FlagForgetCluster, was.Cluster),
			"--%s %s: cluster %s cannot be reached, so nothing of it is removed; nothing was changed", FlagOrphan, id,
			was.Cluster)
	}
	return clierr.New(clierr.BadInput, "remove it from the setup file first",
		"--%s %s: nothing of it is removed; nothing was changed", FlagOrphan, id)
}

// withdraw takes away what a plan removes of agents, before the rest of it is deleted. The record keeps an agent whose
// finalizer is still on objects, so that the next run tries again.
func (u *Up) withdraw(ctx context.Context, res *Result) error {
	x := u.withdrawer(res.known, res.PKI.State)
	all := u.withdrawn(res.Plan, res.known)
	if err := x.carryOut(ctx, all, true); err != nil {
		return err
	}
	var deleted []plan.Item
	for _, w := range all {
		deleted = append(deleted, w.bindings...)
	}
	if err := u.unbind(ctx, res, x, deleted); err != nil {
		return err
	}
	for _, id := range x.unreleased {
		was := res.known.Agents[id]
		if u.Topology.Component(id) == nil {
			was.Orphaned = true
			res.record.Agents[id] = was
		}
	}
	return nil
}

// allowed fails if workspaces have objects of APIs that are withdrawn, except in workspaces whose APIBinding is deleted
// too, if the agent runs: kcp deletes the objects with it, and the agent their copies.
func (x *withdrawer) allowed(ctx context.Context, all []*withdrawal) error {
	var errs []error
	for _, w := range all {
		unbound := map[string]bool{}
		for _, it := range w.bindings {
			unbound[it.Workspace] = w.runs()
		}
		if w.orphan {
			continue
		}
		if err := x.unused(ctx, w, unbound); err != nil {
			errs = append(errs, err)
		}
	}
	return parallel.Join(errs)
}

// unused fails if workspaces have objects of the APIs that are withdrawn, or if that is not known.
func (x *withdrawer) unused(ctx context.Context, w *withdrawal, unbound map[string]bool) error {
	used, err := x.objects(ctx, w)
	if err != nil {
		return clierr.New(clierr.Failed, x.hintUnknown(w),
			"%s: whether workspaces have objects of its APIs is not known: %w", w.agent, err)
	}
	used = slices.DeleteFunc(used, func(u usedObject) bool { return unbound[u.workspace] })
	if len(used) == 0 {
		return nil
	}
	return clierr.New(clierr.Failed, x.hintUsed(w),
		"%s: workspaces have %d of the objects that it synchronizes: %s; %s",
		w.agent, len(used), gather.Few(placesOf(used), gather.Listed, ", "), x.refusal(w))
}

// placesOf returns texts such as "2 widgets.example.com in root:team-a", sorted by the place.
func placesOf(objects []usedObject) []string {
	count := map[string]int{}
	for _, u := range objects {
		count[fmt.Sprintf("%s in %s", u.GroupResource(), u.workspace)]++
	}
	var out []string
	for _, place := range slices.Sorted(maps.Keys(count)) {
		out = append(out, fmt.Sprintf("%d %s", count[place], place))
	}
	return out
}

// refusal returns what a withdrawal would do to objects, unless it removes them with their API, and that the agent was
// not changed.
func (x *withdrawer) refusal(w *withdrawal) string {
	switch {
	case w.whole && !w.runs():
		return "it does not run, so they would keep its finalizer; it was not removed"
	case w.whole || len(w.published) > 0:
		return "it was not removed"
	case w.moved:
		was := x.known.Agents[w.agent]
		return fmt.Sprintf("it would leave them, because it no longer publishes through APIExport %s in %s; nothing "+
			"was changed", was.APIExport, was.Workspace)
	}
	because := "it publishes something else"
	switch {
	case len(w.changed) > 0:
		because = "PublishedResource " + w.changed[0].Name + " publishes something else"
	case len(w.dropped) > 0:
	case len(w.narrowed) > 0 && len(w.uncopied) == 0:
		because = "the filter of PublishedResource " + w.narrowed[0].name + " excludes them"
	case len(w.narrowed) == 0:
		because = "it no longer has them as related resources"
	}
	return "it would leave them, because " + because + "; nothing was changed"
}

// hintUsed returns the next steps if workspaces have objects of the withdrawn APIs.
func (x *withdrawer) hintUsed(w *withdrawal) string {
	first := "delete them in the workspaces while the agent runs: it deletes their copies"
	switch {
	case w.whole && !w.runs():
		first = "add the agent to the setup file again, without paused, and run kcpctl up, which starts it; delete " +
			"the objects in the workspaces: it deletes their copies; and remove it then"
	case !w.runs():
		first = "revert the change, remove paused of the agent from the setup file, and run kcpctl up, which starts " +
			"it; delete the objects in the workspaces: it deletes their copies; and make the change then"
	case !w.whole && len(w.published) == 0:
		first = "revert the change; or first " + first
	}
	return fmt.Sprintf("%s; or pass --%s %s: then the copies stay on its cluster, and the objects in kcp lose the "+
		"finalizer of the agent", first, FlagOrphan, w.agent)
}

// hintUnknown returns the next steps if it is not known whether workspaces have objects of the withdrawn APIs.
func (x *withdrawer) hintUnknown(w *withdrawal) string {
	first := "make kcp and the cluster of the agent reachable"
	if !w.whole || len(w.workloads) == 0 { // as after kcpctl down
		first += "; if kcp does not run, revert the agent in the setup file, and run kcpctl up first"
	}
	return fmt.Sprintf("%s; or pass --%s %s to go on anyway: then the copies of objects stay on its cluster", first,
		FlagOrphan, w.agent)
}

// carryOut takes agents away, except for the objects that identify them: the caller deletes these. With lost, the
// objects in kcp have no agent from now on. Otherwise they wait for the next one.
func (x *withdrawer) carryOut(ctx context.Context, all []*withdrawal, lost bool) error {
	for _, w := range all {
		var err error
		if lost && !w.orphan { // the copies of orphans stay: the agent stops before their APIBindings are deleted
			err = x.unbind(ctx, w)
		}
		if err == nil {
			err = x.withdraw(ctx, w, lost)
		}
		if err == nil && lost && w.orphan && len(w.bindings) > 0 {
			err = x.deleteBindings(ctx, w)
		}
		if err != nil {
			return x.fail(string(w.agent), err)
		}
	}
	return nil
}

// without returns the record without the agents that are gone: a purge that is run again when kcp no longer runs must
// not ask it for their objects.
func (x *withdrawer) without(all []*withdrawal) *record.Record {
	out := x.known.WithAgents(nil)
	for _, w := range all {
		if w.whole && !slices.Contains(x.unreleased, w.agent) {
			out.SetAgents(nil, true, w.agent)
		}
	}
	return out
}

// unbind deletes the APIBindings that are to be deleted, with the objects of their APIs, while the agent still runs.
func (x *withdrawer) unbind(ctx context.Context, w *withdrawal) error {
	if n := len(w.bindings); n > 0 {
		x.step(string(w.agent), Running,
			"removing "+gather.Count(n, "APIBinding", "APIBindings")+" with the objects in their workspaces")
		if err := x.deleteBindings(ctx, w); err != nil {
			return err
		}
	}
	return x.unused(ctx, w, nil)
}

// deleteBindings waits as long as an agent may take to delete the copies.
func (x *withdrawer) deleteBindings(ctx context.Context, w *withdrawal) error {
	limited, cancel := context.WithTimeoutCause(ctx, unbindTime, fmt.Errorf("not done after %s", unbindTime))
	defer cancel()
	err := x.Runtime.Delete(limited, w.bindings)
	if err == nil || limited.Err() == nil || ctx.Err() != nil {
		return err
	}
	return clierr.New(clierr.NotReady,
		"see kcpctl check, KCP145, which names the objects that remain, and run the command again",
		"%s: the objects of its APIs are not gone: %w", w.agent, err)
}

// withdraw stops an agent, and removes what it publishes and keeps. With lost, the objects in kcp lose its finalizer.
func (x *withdrawer) withdraw(ctx context.Context, w *withdrawal, lost bool) error {
	if len(w.workloads) > 0 {
		x.step(string(w.agent), Running, "stopping the agent")
		if err := x.Runtime.Delete(ctx, w.workloads); err != nil {
			return err
		}
	}
	if lost {
		if err := x.release(ctx, w); err != nil {
			return err
		}
	}
	if !w.kinds() {
		return nil
	}
	remains, err := x.remains(ctx, w)
	if err != nil {
		return err
	}
	for _, items := range [][]plan.Item{remains, w.published} {
		if len(items) == 0 {
			continue
		}
		if err := x.Runtime.Delete(ctx, items); err != nil {
			return err
		}
	}
	what := "stopped; its "
	if !w.whole {
		what = "its "
	}
	x.step(string(w.agent), Done,
		what+gather.Count(len(w.published), "published resource", "published resources")+" and "+
			gather.Count(len(remains), "object of its state", "objects of its state")+" are removed")
	return nil
}
