package run

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
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

// Finder finds objects that components have made themselves.
type Finder interface {
	// Find returns the objects of the kind of a reference on its cluster, in its namespace: the one with its name, or
	// without a name all that match a label selector.
	Find(ctx context.Context, at plan.Ref, selector string) ([]unstructured.Unstructured, error)
}

// withdrawal is the removal of an agent, or of some of its published resources.
type withdrawal struct {
	agent topology.ID
	// items are the objects to delete. workloads are the Deployments among them, published the PublishedResources.
	items, workloads, published []plan.Item
	// whole means that the agent goes, with its identity.
	whole bool
	// orphan means that the copies of objects are kept.
	orphan bool
}

// withdrawalsOf returns what deletions take away of agents.
func withdrawalsOf(deleted []plan.Item, orphans []topology.ID) []*withdrawal {
	var out []*withdrawal
	of := map[topology.ID]*withdrawal{}
	for _, it := range deleted {
		if it.Component.Kind() != topology.Agent {
			continue
		}
		w := of[it.Component]
		if w == nil {
			w = &withdrawal{agent: it.Component, orphan: slices.Contains(orphans, it.Component)}
			of[it.Component], out = w, append(out, w)
		}
		w.items = append(w.items, it)
		switch it.Kind {
		case "Deployment":
			w.workloads, w.whole = append(w.workloads, it), true
		case "ServiceAccount":
			w.whole = true
		case agent.Kind:
			w.published = append(w.published, it)
		}
	}
	return slices.DeleteFunc(out, func(w *withdrawal) bool { return !w.whole && len(w.published) == 0 })
}

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
	*reporter
}

// withdrawer returns what removes agents in a run.
func (u *Up) withdrawer(known *record.Record, state *pki.State) *withdrawer {
	return &withdrawer{Runtime: u.Runtime, topology: u.Topology, known: known, state: state, left: u.left, now: u.Now,
		reporter: u.reporter}
}

// mayWithdraw refuses a plan that removes agents whose APIs are in use. A dry run shows the plan first.
func (p *preparation) mayWithdraw(ctx context.Context, res *Result) error {
	deleted := res.Plan.Deletions()
	all := withdrawalsOf(deleted, p.Options.Orphan)
	for _, id := range p.Options.Orphan {
		if !p.again && !slices.ContainsFunc(all, func(w *withdrawal) bool { return w.agent == id }) {
			return clierr.New(clierr.BadInput, "remove it from the setup file first",
				"--%s %s: nothing of it is removed; nothing was changed", FlagOrphan, id)
		}
	}
	if len(all) == 0 || p.quiet {
		return nil
	}
	if err := p.sameAgents(all); err != nil {
		return err
	}
	err := p.withdrawer(p.known, p.desired.Loaded).allowed(ctx, all, deleted)
	if p.Options.DryRun && res.Refused == nil {
		res.Refused, err = err, nil
	}
	return err
}

// sameAgents refuses to rename or move an agent: its name is on the copies of objects, by which it finds them
// (api-syncagent: internal/sync/types.go, agentNameLabel), and they are on its cluster.
func (p *preparation) sameAgents(all []*withdrawal) error {
	x := p.withdrawer(p.known, nil)
	for _, w := range all {
		c := p.Topology.Component(w.agent)
		if !w.whole && !leaves(w, c) {
			continue
		}
		if c != nil {
			return clierr.New(clierr.Failed,
				"revert the cluster and its namespace; or remove the agent from the file, run kcpctl up, "+
					"and add it again",
				"%s publishes from %s, and the setup file has namespace %s of cluster %s: the copies of objects "+
					"would stay behind; nothing was changed",
				w.agent, placeText(w), c.ServiceNamespace(), c.Agent.Cluster)
		}
		workspace, export := x.exportOf(w.agent)
		for _, c := range p.Topology.Components {
			if c.Kind == topology.Agent && c.Agent.Workspace == workspace && c.Agent.APIExport == export {
				return clierr.New(clierr.Failed,
					fmt.Sprintf("revert the name to %s; or remove the agent from the file, run kcpctl up, and add "+
						"it with the new name",
						w.agent.Name()),
					"%s would become %s, which publishes through the same APIExport %s in %s: an agent finds the "+
						"copies of objects by its name; nothing was changed",
					w.agent, c.ID(), export, workspace)
			}
		}
	}
	return nil
}

// leaves reports whether an agent on this machine would publish the APIs of another place.
func leaves(w *withdrawal, c *topology.Component) bool {
	return c != nil && slices.ContainsFunc(w.published,
		func(it plan.Item) bool { return it.Workspace != c.Agent.ServicePlace })
}

// placeText names the place of a withdrawal.
func placeText(w *withdrawal) string {
	for _, it := range w.items {
		cluster, _ := topology.IsServiceCluster(it.Workspace)
		switch cluster = cmp.Or(cluster, it.Cluster); {
		case cluster != "" && it.Namespace != "":
			return "namespace " + it.Namespace + " of cluster " + cluster
		case it.Kind == agent.Kind:
			return "workspace " + it.Workspace
		}
	}
	return "this machine"
}

// withdraw takes away the agents that a plan removes, before the rest of it is deleted.
func (u *Up) withdraw(ctx context.Context, res *Result) error {
	all := withdrawalsOf(res.Plan.Deletions(), u.Options.Orphan)
	return u.withdrawer(res.known, res.PKI.State).carryOut(ctx, all, true)
}

// allowed fails if workspaces have objects of APIs that are withdrawn, except in workspaces whose APIBinding is deleted
// too: kcp deletes the objects with it, and the agent their copies.
func (x *withdrawer) allowed(ctx context.Context, all []*withdrawal, deleted []plan.Item) error {
	unbound := map[string]bool{}
	for _, it := range deleted {
		if it.GroupKind() == kcpapi.APIBinding.GroupKind() {
			unbound[it.Workspace] = true
		}
	}
	var errs []error
	for _, w := range all {
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
		return clierr.New(clierr.Failed,
			fmt.Sprintf("make kcp and the cluster of the agent reachable; or pass --%s %s to remove it anyway: "+
				"then the copies of objects stay on its cluster", FlagOrphan, w.agent),
			"%s: whether workspaces have objects of its APIs is not known: %w", w.agent, err)
	}
	count := map[string]int{}
	var places []string
	total := 0
	for _, u := range used {
		if unbound[u.workspace] {
			continue
		}
		place := fmt.Sprintf("%s in %s", u.GroupResource(), u.workspace)
		if count[place] == 0 {
			places = append(places, place)
		}
		count[place]++
		total++
	}
	if total == 0 {
		return nil
	}
	slices.Sort(places)
	for i, p := range places {
		places[i] = fmt.Sprintf("%d %s", count[p], p)
	}
	return clierr.New(clierr.Failed,
		fmt.Sprintf("delete them in the workspaces while the agent runs: it deletes their copies; "+
			"or pass --%s %s: then the copies stay on its cluster, and the objects in kcp lose the "+
			"finalizer of the agent",
			FlagOrphan, w.agent),
		"%s: workspaces have %d of the objects that it synchronizes: %s; nothing of it was removed",
		w.agent, total, gather.Few(places, gather.Listed, ", "))
}

// carryOut takes agents away, except for the objects that identify them: the caller deletes these. With lost, the
// objects in kcp have no agent from now on. Otherwise they wait for the next one.
func (x *withdrawer) carryOut(ctx context.Context, all []*withdrawal, lost bool) error {
	for _, w := range all {
		var err error
		if lost {
			err = x.unbind(ctx, w)
		}
		if err == nil {
			err = x.withdraw(ctx, w, lost)
		}
		if err != nil {
			return x.fail(string(w.agent), err)
		}
	}
	return nil
}

// unbind deletes the APIBindings that are to be deleted, with the objects of their APIs, while the agent still runs.
func (x *withdrawer) unbind(ctx context.Context, w *withdrawal) error {
	bindings, _ := split(w.items, func(it plan.Item) bool { return it.GroupKind() == kcpapi.APIBinding.GroupKind() })
	if len(bindings) > 0 {
		x.step(string(w.agent), Running,
			"removing "+count(len(bindings), "APIBinding", "APIBindings")+" with the objects in their workspaces")
		if err := x.Runtime.Delete(ctx, bindings); err != nil {
			return err
		}
	}
	if w.orphan {
		return nil
	}
	return x.unused(ctx, w, nil)
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
	x.step(string(w.agent), Done, what+count(len(w.published), "published resource", "published resources")+" and "+
		count(len(remains), "object of its state", "objects of its state")+" are removed")
	return nil
}
