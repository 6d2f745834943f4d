// Package agents takes away what agents publish: whole agents, some of their resources, or only what their filters
// select, without leaving anything that waits for them.
package agents

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
	"github.com/kcpctl/kcpctl/internal/engine/run"
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

// Withdrawer removes agents in the order in which nothing is left of them: while it runs, an agent deletes the copies
// of objects that users delete; then it is stopped, so that it does not write its state again; and what identifies it
// goes last, so that after an interruption at any time the same command continues.
type Withdrawer struct {
	Changes
	Runtime interface {
		run.Finder
		run.Deleter
		kcp.Dialer
	}
	State *pki.State
	Now   func() time.Time
	// Unreleased are agents whose finalizer could not be removed from all objects.
	Unreleased []topology.ID
	*run.Reporter
}

// Run takes away what a plan removes of agents. A later part of the run deletes the objects that identify them.
func (x *Withdrawer) Run(ctx context.Context, p *plan.Plan) error {
	all := x.Withdrawn(p)
	if err := x.CarryOut(ctx, all, true); err != nil {
		return err
	}
	var deleted []plan.Item
	for _, w := range all {
		deleted = append(deleted, w.bindings...)
	}
	return x.unbindAll(ctx, x.Unbindings(p), deleted)
}

// Allowed fails if workspaces have objects of APIs that are withdrawn, except in workspaces whose APIBinding is deleted
// too, if the agent runs: kcp deletes the objects with it, and the agent their copies.
func (x *Withdrawer) Allowed(ctx context.Context, all []*Withdrawal) error {
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
func (x *Withdrawer) unused(ctx context.Context, w *Withdrawal, unbound map[string]bool) error {
	used, err := x.objects(ctx, w)
	if err != nil {
		return clierr.New(clierr.Failed, x.hintUnknown(w),
			"%s: whether workspaces have objects of its APIs is not known: %w", w.Agent, err)
	}
	used = slices.DeleteFunc(used, func(u usedObject) bool { return unbound[u.workspace] })
	if len(used) == 0 {
		return nil
	}
	return clierr.New(clierr.Failed, x.hintUsed(w),
		"%s: workspaces have %d of the objects that it synchronizes: %s; %s",
		w.Agent, len(used), gather.Few(placesOf(used), gather.Listed, ", "), x.refusal(w))
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
func (x *Withdrawer) refusal(w *Withdrawal) string {
	switch {
	case w.whole && !w.runs():
		return "it does not run, so they would keep its finalizer; it was not removed"
	case w.whole || len(w.published) > 0:
		return "it was not removed"
	case w.moved:
		was := x.Known.Agents[w.Agent]
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
func (x *Withdrawer) hintUsed(w *Withdrawal) string {
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
		"finalizer of the agent", first, FlagOrphan, w.Agent)
}

// hintUnknown returns the next steps if it is not known whether workspaces have objects of the withdrawn APIs.
func (x *Withdrawer) hintUnknown(w *Withdrawal) string {
	first := "make kcp and the cluster of the agent reachable"
	if !w.whole || len(w.workloads) == 0 { // as after kcpctl down
		first += "; if kcp does not run, revert the agent in the setup file, and run kcpctl up first"
	}
	return fmt.Sprintf("%s; or pass --%s %s to go on anyway: then the copies of objects stay on its cluster", first,
		FlagOrphan, w.Agent)
}

// CarryOut takes agents away, except for the objects that identify them: the caller deletes these. With lost, the
// objects in kcp have no agent from now on. Otherwise they wait for the next one.
func (x *Withdrawer) CarryOut(ctx context.Context, all []*Withdrawal, lost bool) error {
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
			return x.Fail(string(w.Agent), err)
		}
	}
	return nil
}

// Without returns the record without the agents that are gone: a purge that is run again when kcp no longer runs must
// not ask it for their objects.
func (x *Withdrawer) Without(all []*Withdrawal) *record.Record {
	out := x.Known.WithAgents(nil)
	for _, w := range all {
		if w.whole && !slices.Contains(x.Unreleased, w.Agent) {
			out.SetAgents(nil, true, w.Agent)
		}
	}
	return out
}

// unbind deletes the APIBindings that are to be deleted, with the objects of their APIs, while the agent still runs.
func (x *Withdrawer) unbind(ctx context.Context, w *Withdrawal) error {
	if n := len(w.bindings); n > 0 {
		x.Step(string(w.Agent), run.Running,
			"removing "+gather.Count(n, "APIBinding", "APIBindings")+" with the objects in their workspaces")
		if err := x.deleteBindings(ctx, w); err != nil {
			return err
		}
	}
	return x.unused(ctx, w, nil)
}

// deleteBindings waits as long as an agent may take to delete the copies.
func (x *Withdrawer) deleteBindings(ctx context.Context, w *Withdrawal) error {
	limited, cancel := context.WithTimeoutCause(ctx, unbindTime, fmt.Errorf("not done after %s", unbindTime))
	defer cancel()
	err := x.Runtime.Delete(limited, w.bindings)
	if err == nil || limited.Err() == nil || ctx.Err() != nil {
		return err
	}
	return clierr.New(clierr.NotReady,
		"see kcpctl check, KCP145, which names the objects that remain, and run the command again",
		"%s: the objects of its APIs are not gone: %w", w.Agent, err)
}

// withdraw stops an agent, and removes what it publishes and keeps. With lost, the objects in kcp lose its finalizer.
func (x *Withdrawer) withdraw(ctx context.Context, w *Withdrawal, lost bool) error {
	if len(w.workloads) > 0 {
		x.Step(string(w.Agent), run.Running, "stopping the agent")
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
	x.Step(string(w.Agent), run.Done,
		what+gather.Count(len(w.published), "published resource", "published resources")+" and "+
			gather.Count(len(remains), "object of its state", "objects of its state")+" are removed")
	return nil
}
