package agents

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	"github.com/kcpctl/kcpctl/internal/desired/agent"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// Changes are the changes of a run that agents depend on.
type Changes struct {
	Topology *topology.Topology
	// Known is the record of the installation before the run.
	Known *record.Record
	// Left are the clusters that the run excludes. Only are the components that it changes: empty means all. It also
	// removes the ones in Removed.
	Left    []plan.Unreachable
	Only    plan.Scope
	Removed []topology.ID
	// Orphan are the agents that are removed although workspaces have objects of their APIs.
	Orphan []topology.ID
}

// Withdrawal is the removal of an agent, or of some of the resources that it publishes.
type Withdrawal struct {
	Agent topology.ID
	// items are the objects to delete. workloads are the Deployments among them, bindings the APIBindings of the agent,
	// published the PublishedResources.
	items, workloads, bindings, published []plan.Item
	// changed are PublishedResources that publish something else from now on. dropped are the kinds that the agent no
	// longer publishes, by the record: also if an interrupted run has changed the PublishedResources.
	changed []plan.Item
	dropped []record.Published
	// narrowed are PublishedResources with another filter. copied are the related resources of workspaces that the
	// agent has copied, and uncopied the ones that it no longer copies for objects that it still publishes.
	narrowed         []narrowing
	copied, uncopied []schema.GroupResource
	// whole means that the agent goes, with its identity.
	whole bool
	// moved means that the agent publishes through another APIExport from now on.
	moved bool
	// orphan means that the copies of objects are kept.
	orphan bool
	// stopped means that the setup file stops the agent.
	stopped bool
}

// runs reports whether the agent runs, so that it deletes the copies of objects that are deleted.
func (w *Withdrawal) runs() bool {
	return !w.whole && !w.stopped || slices.ContainsFunc(w.workloads, func(it plan.Item) bool {
		if it.Live == nil {
			return true
		}
		replicas, found, _ := unstructured.NestedInt64(it.Live.Object, "spec", "replicas")
		return !found || replicas > 0
	})
}

// gone returns the PublishedResources that no longer publish what they have published.
func (w *Withdrawal) gone() []plan.Item { return slices.Concat(w.published, w.changed) }

// all reports whether everything goes that the agent has published through an APIExport.
func (w *Withdrawal) all() bool { return w.whole || w.moved }

// kinds reports whether the agent no longer publishes something.
func (w *Withdrawal) kinds() bool { return w.all() || len(w.gone())+len(w.dropped) > 0 }

// some reports whether something goes that objects of workspaces depend on.
func (w *Withdrawal) some() bool { return w.kinds() || len(w.narrowed)+len(w.uncopied) > 0 }

// add adds an object that is deleted.
func (w *Withdrawal) add(it plan.Item) {
	w.items = append(w.items, it)
	switch {
	case it.Kind == "Deployment":
		w.workloads, w.whole = append(w.workloads, it), true
	case it.Kind == "ServiceAccount":
		w.whole = true
	case it.Kind == agent.Kind:
		w.published = append(w.published, it)
	case it.GroupKind() == kcpapi.APIBinding.GroupKind():
		w.bindings = append(w.bindings, it)
	}
}

// unbinds adds deleted APIBindings of other components to what a whole agent publishes.
func (w *Withdrawal) unbinds(deleted []plan.Item, exports []record.Agent) {
	for _, it := range deleted {
		of, ok := boundBy(it)
		if ok && slices.ContainsFunc(exports, of.Publishes) &&
			!slices.ContainsFunc(w.bindings, func(b plan.Item) bool { return b.Ref == it.Ref }) {
			w.bindings = append(w.bindings, it)
		}
	}
}

// withdrawals are the removals of agents, or of parts of them, by a run.
type withdrawals struct {
	all     []*Withdrawal
	orphans []topology.ID
}

// of returns the withdrawal of an agent, which it adds if there is none.
func (ws *withdrawals) of(id topology.ID) *Withdrawal {
	i := slices.IndexFunc(ws.all, func(w *Withdrawal) bool { return w.Agent == id })
	if i < 0 {
		i = len(ws.all)
		ws.all = append(ws.all, &Withdrawal{Agent: id, orphan: slices.Contains(ws.orphans, id)})
	}
	return ws.all[i]
}

// deletes adds what deletions take away.
func (ws *withdrawals) deletes(deleted []plan.Item) {
	for _, it := range deleted {
		if it.Component.Kind() == topology.Agent {
			ws.of(it.Component).add(it)
		}
	}
}

// some returns the withdrawals that take something away that objects of workspaces depend on.
func (ws *withdrawals) some() []*Withdrawal {
	return slices.DeleteFunc(ws.all, func(w *Withdrawal) bool { return !w.some() })
}

// waiting adds agents of which only the objects remain that wait for them. They are lost with kcp. Their copies are
// kept, unless these are in kcp, too.
func (ws *withdrawals) waiting(known *record.Record) {
	for _, id := range slices.Sorted(maps.Keys(known.Agents)) {
		if was := known.Agents[id]; !was.Orphaned && (was.Place == "" || topology.IsKubernetes(was.Place)) {
			ws.of(id).whole = true
		}
	}
}

// Deleted returns what the deletion of all objects takes away of agents, and with a purge also the agents of which only
// the objects remain that wait for them.
func (ch Changes) Deleted(objects []plan.Item, purge bool) []*Withdrawal {
	ws := &withdrawals{orphans: ch.Orphan}
	ws.deletes(objects)
	if purge {
		ws.waiting(ch.Known)
	}
	return ws.some()
}

// Withdrawn returns what a plan takes away of agents. Whether an agent publishes elsewhere, or the setup no longer has
// it, follows from the record, also if kcpctl down, or another user, has removed its objects before.
func (ch Changes) Withdrawn(p *plan.Plan) []*Withdrawal {
	ws := &withdrawals{orphans: ch.Orphan}
	ws.deletes(p.Deletions())
	for _, it := range p.Items {
		if publishesElse(it) {
			w := ws.of(it.Component)
			w.changed = append(w.changed, it)
		}
	}
	ch.copiesFewer(ws, p)
	for _, w := range ws.all {
		// kcp deletes the objects with the APIBinding. Without the agent, they would wait for it.
		w.whole = w.whole || len(w.bindings) > 0 && ch.Topology.Component(w.Agent) == nil
	}
	for _, id := range slices.Sorted(maps.Keys(ch.Known.Agents)) {
		if was := ch.Known.Agents[id]; !ch.isLeft(was) { // a later run does it
			ch.compareAgent(ws, id, was)
		}
	}
	for _, w := range ws.all {
		w.compareCopied(ch.Topology.Component(w.Agent))
		if w.whole {
			w.unbinds(p.Deletions(), exportsOf(ch.Known, w.Agent))
		}
	}
	return ws.some()
}

// compareAgent adds what a run takes away of an agent, by the record.
func (ch Changes) compareAgent(ws *withdrawals, id topology.ID, was record.Agent) {
	c := ch.Topology.Component(id)
	if c == nil {
		if ch.drops(id) {
			w := ws.of(id)
			w.whole = true
			w.orphan = w.orphan || was.Orphaned
		}
		return
	}
	if was.Orphaned || !ch.Only.Includes(id) {
		return
	}
	now := Recorded(c)
	w := ws.of(id)
	w.whole = w.whole || !was.IsAt(now)
	w.moved = !was.Publishes(now)
	w.stopped = c.Replicas == 0
	for _, p := range was.Published {
		if !slices.ContainsFunc(now.Published, func(n record.Published) bool { return n.API() == p.API() }) {
			w.dropped = append(w.dropped, p)
		}
	}
	w.copiedFewer(was, c)
}

// isLeft reports whether the run excludes the cluster of an agent.
func (ch Changes) isLeft(a record.Agent) bool {
	_, left := plan.UnreachableIn(ch.Left, a.Cluster)
	return left
}

// drops reports whether the run removes a component that the setup no longer has.
func (ch Changes) drops(id topology.ID) bool {
	return !ch.Only.Limited() || slices.Contains(ch.Removed, id)
}

// publishesElse reports whether a plan changes a PublishedResource so that it no longer publishes what it has
// published: another kind, under another name, or nothing.
func publishesElse(it plan.Item) bool {
	if it.Action != plan.Change || it.Kind != agent.Kind || it.Component.Kind() != topology.Agent || it.Live == nil {
		return false
	}
	next := it.Merged
	if next == nil {
		next = it.Want
	}
	return !slices.EqualFunc(agent.Kinds(publishing(it.Live)), agent.Kinds(publishing(next)),
		func(was, now agent.PublishedKind) bool {
			return was.GroupKind == now.GroupKind && was.Projected == now.Projected &&
				was.ProjectedKind == now.ProjectedKind && (now.Synchronized || !was.Synchronized)
		})
}

// Recorded returns what is recorded of an agent.
func Recorded(c *topology.Component) record.Agent {
	out := record.Agent{Workspace: c.Agent.Workspace, APIExport: c.Agent.APIExport, Place: c.Agent.ServicePlace,
		Namespace: c.ServiceNamespace()}
	if out.Place == "" {
		out.Cluster = c.Cluster.Name
	}
	for _, k := range agent.Kinds(&c.Agent.Agent) {
		if k.Synchronized {
			out.Published = append(out.Published, publishedOf(k))
		}
	}
	for _, r := range agent.RelatedOfConsumers(&c.Agent.Agent) {
		out.Related = append(out.Related, r.String())
	}
	slices.SortFunc(out.Published, record.Published.Compare)
	slices.Sort(out.Related)
	return out
}

func publishedOf(k agent.PublishedKind) record.Published {
	return record.Published{Kind: k.GroupKind.String(), As: k.ProjectedKind.String(), Resource: k.Projected.String(),
		Filter: k.Filter}
}

// Records returns what is recorded of the agents after the run.
func (ch Changes) Records() map[topology.ID]record.Agent {
	all := map[topology.ID]record.Agent{}
	for _, c := range ch.Topology.OfKind(topology.Agent) {
		if ch.Only.Includes(c.ID()) {
			all[c.ID()] = Recorded(c)
		}
	}
	for id, was := range ch.Known.Agents {
		if ch.isLeft(was) {
			all[id] = was
		}
	}
	return all
}

// SameAgents refuses to rename or move an agent: its name is on the copies of objects, by which it finds them
// (api-syncagent: internal/sync/types.go, agentNameLabel), and they are on its cluster.
func (ch Changes) SameAgents(all []*Withdrawal) error {
	for _, w := range all {
		c := ch.Topology.Component(w.Agent)
		if !w.whole && !leaves(w, c) {
			continue
		}
		if c != nil {
			return clierr.New(clierr.Failed,
				fmt.Sprintf("revert the cluster and its namespace; or remove the agent from the file, run kcpctl up "+
					"--%s %s, which keeps the objects on both sides, and add it again", FlagOrphan, w.Agent),
				"%s publishes from %s, and the setup file has %s: the copies of objects would stay behind; "+
					"nothing was changed",
				w.Agent, ch.placeText(w), Recorded(c))
		}
		for _, other := range ch.Topology.OfKind(topology.Agent) {
			now := Recorded(other)
			if ch.Known.Agents[w.Agent].Orphaned || !slices.ContainsFunc(exportsOf(ch.Known, w.Agent), now.Publishes) {
				continue
			}
			return clierr.New(clierr.Failed,
				fmt.Sprintf("revert the name to %s; or remove the agent from the file, run kcpctl up --%s %s, which "+
					"keeps the objects on both sides, add it with the new name, and change the label %s of the "+
					"copies from %s to %s with kubectl label: without it, the agent does not see their status",
					w.Agent.Name(), FlagOrphan, w.Agent, agent.AnnotationName,
					topology.AgentName(ch.Topology.Name, w.Agent.Name()),
					topology.AgentName(ch.Topology.Name, other.Name)),
				"%s would become %s, which publishes through the same APIExport %s in %s: an agent finds the "+
					"copies of objects by its name; nothing was changed",
				w.Agent, other.ID(), now.APIExport, now.Workspace)
		}
	}
	return nil
}

// leaves reports whether an agent on this machine would publish the APIs of another place.
func leaves(w *Withdrawal, c *topology.Component) bool {
	return c != nil && slices.ContainsFunc(w.published,
		func(it plan.Item) bool { return it.Workspace != c.Agent.ServicePlace })
}

// placeText names the place of a withdrawal.
func (ch Changes) placeText(w *Withdrawal) string {
	if was, ok := ch.Known.Agents[w.Agent]; ok {
		return was.String()
	}
	for _, it := range w.items {
		switch {
		case (it.Cluster != "" || topology.IsKubernetes(it.Workspace)) && it.Namespace != "":
			return record.Agent{Cluster: it.Cluster, Place: it.Workspace, Namespace: it.Namespace}.String()
		case it.Workspace != "" && it.Kind == agent.Kind:
			return record.Agent{Place: it.Workspace}.String()
		}
	}
	return "this machine"
}
