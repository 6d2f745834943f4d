package agents

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/agent"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/agentstate"
	"github.com/kcpctl/kcpctl/internal/engine/run"
)

// narrowing is another filter of a PublishedResource. An agent does not look at objects that its filter excludes, also
// if it has copied them before, and they keep its finalizer (api-syncagent: internal/controller/sync/controller.go,
// Reconcile).
type narrowing struct {
	name     string
	resource schema.GroupResource
	was, now agent.Filter
}

// copiesFewer adds what agents no longer copy from objects that they still publish, by the PublishedResources on their
// clusters that a plan changes.
func (ch Changes) copiesFewer(ws *withdrawals, p *plan.Plan) {
	for _, it := range p.Items {
		c := ch.Topology.Component(it.Component)
		if it.Action != plan.Change || it.Kind != agent.Kind || c == nil || c.Kind != topology.Agent || it.Live == nil {
			continue
		}
		w, live := ws.of(it.Component), publishing(it.Live)
		w.copied = union(w.copied, agent.RelatedOfConsumers(live))
		for _, was := range agent.Kinds(live) {
			for _, now := range agent.Kinds(&c.Agent.Agent) {
				if now.Name == it.Name && now.GroupKind == was.GroupKind && was.Synchronized {
					w.narrow(was.Filter, now)
				}
			}
		}
	}
}

// copiedFewer is copiesFewer by the record: also after a run that was interrupted when it had changed the
// PublishedResources.
func (w *Withdrawal) copiedFewer(was record.Agent, c *topology.Component) {
	w.copied = union(w.copied, relatedIn(was))
	for _, now := range agent.Kinds(&c.Agent.Agent) {
		i := slices.IndexFunc(was.Published,
			func(p record.Published) bool { return p.API() == publishedOf(now).API() })
		if i >= 0 {
			w.narrow(was.Published[i].Filter, now)
		}
	}
}

// narrow adds a filter that was another one.
func (w *Withdrawal) narrow(was agent.Filter, now agent.PublishedKind) {
	n := narrowing{now.Name, now.Projected, was, now.Filter}
	if was != now.Filter && now.Synchronized && !slices.Contains(w.narrowed, n) {
		w.narrowed = append(w.narrowed, n)
	}
}

// compareCopied sets the related resources that an agent no longer copies. It omits the related resources of
// PublishedResources that are removed: without objects of these, only related objects to which no object refers have
// the finalizer. An interrupted run may have removed them already.
func (w *Withdrawal) compareCopied(c *topology.Component) {
	if c == nil || w.all() || len(w.dropped) > 0 && len(w.gone()) == 0 {
		return
	}
	stay := union(agent.RelatedOfConsumers(&c.Agent.Agent),
		agent.RelatedOfConsumers(publishing(liveOf(w.gone())...)))
	w.uncopied = slices.DeleteFunc(slices.Clone(w.copied),
		func(r schema.GroupResource) bool { return slices.Contains(stay, r) })
}

// relatedIn returns the related resources of workspaces that an agent has copied, by the record.
func relatedIn(was record.Agent) []schema.GroupResource {
	var out []schema.GroupResource
	for _, r := range was.Related {
		out = union(out, []schema.GroupResource{schema.ParseGroupResource(r)})
	}
	return out
}

// excluded returns the objects with the finalizer that the filters of an agent exclude from now on.
func (x *Withdrawer) excluded(ctx context.Context, w *Withdrawal, limit time.Duration) ([]usedObject, error) {
	if w.all() || len(w.narrowed) == 0 {
		return nil, nil
	}
	exports, err := x.exports(w, true)
	if err != nil {
		return nil, err
	}
	var out []usedObject
	for _, n := range w.narrowed {
		for _, e := range exports {
			found, err := x.exported(ctx, e, []schema.GroupResource{n.resource}, false, limit)
			if err != nil {
				return nil, err
			}
			found = slices.DeleteFunc(found, func(u usedObject) bool { return !u.held() })
			namespaces, err := x.labelsOfNamespaces(ctx, n, found, limit)
			if err != nil {
				return nil, err
			}
			found = slices.DeleteFunc(found, func(u usedObject) bool {
				of := namespaces[namespaceOf{u.Cluster, u.Namespace}]
				return !n.was.Selects(u.Labels, of) || n.now.Selects(u.Labels, of)
			})
			out = append(without(out, found), found...)
		}
	}
	return out, nil
}

// namespaceOf is a namespace of a logical cluster.
type namespaceOf struct{ cluster, name string }

// labelsOfNamespaces returns the labels of the namespaces of objects, if the filter before or after a change depends on
// them. The shards are asked: consumers may not have accepted the claim for namespaces yet.
func (x *Withdrawer) labelsOfNamespaces(ctx context.Context, n narrowing, objects []usedObject,
	limit time.Duration) (map[namespaceOf]map[string]string, error) {
	out := map[namespaceOf]map[string]string{}
	if n.was.NamespaceLabels == "" && n.now.NamespaceLabels == "" {
		return out, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer after %s", limit))
	defer cancel()
	var shards []*topology.Component
	for _, u := range objects {
		out[namespaceOf{u.Cluster, u.Namespace}] = nil
		if !slices.Contains(shards, u.shard) {
			shards = append(shards, u.shard)
		}
	}
	for _, shard := range shards {
		client, err := kcp.Connect(x.Runtime, shard, x.State, x.Now())
		if err != nil {
			return nil, err
		}
		err = client.EachExported(ctx, "", schema.GroupResource{Resource: "namespaces"},
			func(_ schema.GroupVersionResource, o *unstructured.Unstructured) {
				key := namespaceOf{o.GetAnnotations()[kcpapi.AnnotationCluster], o.GetName()}
				if _, wanted := out[key]; wanted {
					out[key] = o.GetLabels()
				}
			})
		client.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", shard.ID(), err)
		}
	}
	return out, nil
}

// heldByConsumers returns the objects of related resources that have the finalizer, in the workspaces that bind the
// APIExport of an agent that is kept. It omits the resources that the agent still copies, because it is not known which
// objects these are, and the objects that other agents copy, too. The shards are asked: the APIExport only shows the
// objects whose claim is accepted, and the setup accepts no claim that the agent no longer needs.
func (x *Withdrawer) heldByConsumers(ctx context.Context, w *Withdrawal, resources []schema.GroupResource,
	limit time.Duration) ([]usedObject, error) {
	c := x.Topology.Component(w.Agent)
	if c == nil || w.all() {
		return nil, nil
	}
	still := agent.RelatedOfConsumers(&c.Agent.Agent)
	resources = slices.DeleteFunc(slices.Clone(resources),
		func(r schema.GroupResource) bool { return slices.Contains(still, r) })
	if len(resources) == 0 {
		return nil, nil
	}
	exports, err := x.exports(w, true)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer after %s", limit))
	defer cancel()
	out, err := x.inConsumers(ctx, exports, resources)
	for _, other := range x.Topology.OfKind(topology.Agent) {
		shared := shared(other, resources)
		if err != nil || len(out) == 0 || len(shared) == 0 {
			continue
		}
		var others []usedObject
		others, err = x.inConsumers(ctx, exportsOf(x.Known, other.ID()), shared)
		out = without(out, others)
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return out, err
}

// inConsumers returns the objects of some resources that have the finalizer, in the workspaces that bind APIExports.
func (x *Withdrawer) inConsumers(ctx context.Context, exports []record.Agent,
	resources []schema.GroupResource) ([]usedObject, error) {
	proxy, err := run.ConnectFrontProxy(x.Runtime, x.Topology, x.Left, x.State, x.Now())
	if err != nil {
		return nil, err
	}
	defer proxy.Close()
	var out []usedObject
	for _, e := range exports {
		export, err := readOf(ctx, proxy, e, kcpapi.APIExport.GroupVersionKind)
		if err != nil {
			return nil, err
		}
		slice, err := readOf(ctx, proxy, e, kcpapi.APIExportEndpointSlice.GroupVersionKind)
		if err != nil {
			return nil, err
		}
		for _, at := range agentstate.EndpointsOf(slice, x.Topology) {
			found, err := x.heldOn(ctx, at, export, resources)
			if err != nil {
				return nil, err
			}
			out = append(out, found...)
		}
	}
	return out, nil
}

// heldOn is inConsumers for the shard with an endpoint of an APIExport.
func (x *Withdrawer) heldOn(ctx context.Context, at agentstate.Endpoint, export *unstructured.Unstructured,
	resources []schema.GroupResource) ([]usedObject, error) {
	if at.Shard == nil {
		return nil, fmt.Errorf("no shard of the setup serves %s", at.URL)
	}
	client, err := kcp.Connect(x.Runtime, at.Shard, x.State, x.Now())
	if err != nil {
		return nil, err
	}
	defer client.Close()
	consumers, err := client.Consumers(ctx, export)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", at.Shard.ID(), err)
	}
	var out []usedObject
	for _, r := range resources {
		found, err := client.ObjectsIn(ctx, consumers, r)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", at.Shard.ID(), err)
		}
		for _, e := range found {
			if u := (usedObject{Exported: e, workspace: e.Cluster, server: at.Shard, shard: at.Shard}); u.held() {
				out = append(out, u)
			}
		}
	}
	if len(out) == 0 {
		return nil, nil
	}
	return out, x.name(ctx, at.Shard, out)
}
