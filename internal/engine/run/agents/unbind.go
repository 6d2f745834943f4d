package agents

import (
	"cmp"
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
)

// unbinding are the APIBindings that a run deletes although it keeps their agent. kcp deletes the objects of its APIs
// with them, and the objects wait for the agent to delete their copies.
type unbinding struct {
	agent    *topology.Component
	exports  []record.Agent
	bindings []plan.Item
}

// boundBy returns the APIExport of an APIBinding that a plan deletes. It returns false for other objects.
func boundBy(it plan.Item) (record.Agent, bool) {
	if it.GroupKind() != kcpapi.APIBinding.GroupKind() || it.Live == nil {
		return record.Agent{}, false
	}
	of, _, _ := unstructured.NestedStringMap(it.Live.Object, "spec", "reference", "export")
	return record.Agent{Workspace: cmp.Or(of["path"], it.Workspace), APIExport: of["name"]}, true
}

// Unbindings returns the APIBindings that a plan deletes, by the agents of the setup.
func (ch Changes) Unbindings(p *plan.Plan) []unbinding {
	var out []unbinding
	for _, c := range ch.Topology.OfKind(topology.Agent) {
		n := unbinding{agent: c, exports: exportsOf(ch.Known, c.ID())}
		for _, it := range p.Deletions() {
			if of, ok := boundBy(it); ok && slices.ContainsFunc(n.exports, of.Publishes) {
				n.bindings = append(n.bindings, it)
			}
		}
		if len(n.bindings) > 0 {
			out = append(out, n)
		}
	}
	return out
}

// MayUnbind refuses to delete APIBindings while their agent is paused: kcp would delete their objects, and wait for the
// agent.
func (x *Withdrawer) MayUnbind(ctx context.Context, all []unbinding) error {
	var errs []error
	for _, n := range all {
		if n.agent.Replicas == 0 {
			errs = append(errs, x.unheld(ctx, n))
		}
	}
	return parallel.Join(errs)
}

// unheld fails if objects in the workspaces of APIBindings have the finalizer of their agent, which is paused, or if
// that is not known.
func (x *Withdrawer) unheld(ctx context.Context, n unbinding) error {
	start := "remove paused of the agent " + n.agent.Name + " from the setup file, and run the command again: it " +
		"starts the agent first"
	var held []usedObject
	for _, e := range n.exports {
		found, err := x.exported(ctx, e, nil, true, askTime)
		if err != nil {
			return clierr.New(clierr.Failed, start,
				"%s is paused, and whether workspaces have objects that wait for it is not known: %w; nothing was "+
					"changed", n.agent.ID(), err)
		}
		held = append(without(held, found), found...)
	}
	held = slices.DeleteFunc(held, func(u usedObject) bool {
		return !u.held() ||
			!slices.ContainsFunc(n.bindings, func(it plan.Item) bool { return it.Workspace == u.workspace })
	})
	if len(held) == 0 {
		return nil
	}
	return clierr.New(clierr.Failed, start,
		"%s is paused: %s would keep its finalizer, and the APIBinding would wait for them; nothing was changed",
		n.agent.ID(), gather.Few(placesOf(held), gather.Listed, ", "))
}

// unbindAll deletes the APIBindings of agents that are kept, now that these run, except for the deleted ones.
func (x *Withdrawer) unbindAll(ctx context.Context, all []unbinding, deleted []plan.Item) error {
	for _, n := range all {
		id := n.agent.ID()
		n.bindings = slices.DeleteFunc(n.bindings, func(it plan.Item) bool {
			return slices.ContainsFunc(deleted, func(d plan.Item) bool { return d.Ref == it.Ref })
		})
		if len(n.bindings) == 0 {
			continue
		}
		x.Step(string(id), run.Running,
			"removing "+gather.Count(len(n.bindings), "APIBinding", "APIBindings")+
				" with the objects in their workspaces")
		if err := x.deleteBindings(ctx, &Withdrawal{Agent: id, bindings: n.bindings}); err != nil {
			return x.Fail(string(id), err)
		}
		x.Step(string(id), run.Done, gather.Count(len(n.bindings), "APIBinding", "APIBindings")+" removed")
	}
	return nil
}
