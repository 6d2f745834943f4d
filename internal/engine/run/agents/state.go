package agents

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/desired/agent"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/agentstate"
	"github.com/kcpctl/kcpctl/internal/engine/run"
)

// remains returns what the agent keeps about the objects: its Secrets, and its Lease if it goes.
func (x *Withdrawer) remains(ctx context.Context, w *Withdrawal) ([]plan.Item, error) {
	place, ok := x.place(w)
	if !ok {
		return nil, nil
	}
	kinds, err := x.kindsOf(ctx, w, place)
	if err != nil {
		return nil, err
	}
	at := place
	at.GroupVersionKind = kind.Secret.GroupVersionKind
	secrets, err := x.find(ctx, at, stateSelector)
	if err != nil {
		return nil, err
	}
	var out []plan.Item
	for i := range secrets {
		if s := &secrets[i]; holdsState(s, kinds) {
			out = append(out, itemAt(at, w.Agent, s))
		}
	}
	if !w.whole {
		return out, nil
	}
	at.GroupVersionKind, at.Name = kind.Lease.GroupVersionKind, topology.AgentLease(x.Topology.Name, w.Agent.Name())
	leases, err := x.find(ctx, at, "")
	for i := range leases {
		out = append(out, itemAt(at, w.Agent, &leases[i]))
	}
	return out, err
}

// place is where the agent keeps its state: its namespace, or the workspace that takes the place of its cluster.
func (x *Withdrawer) place(w *Withdrawal) (plan.Ref, bool) {
	if c := x.Topology.Component(w.Agent); c != nil && !w.whole {
		if c.Agent.ServicePlace != "" {
			return plan.Ref{Workspace: c.Agent.ServicePlace, Namespace: c.ServiceNamespace()}, true
		}
		return plan.Ref{Cluster: c.Cluster.Name, Namespace: c.Cluster.Namespace}, true
	}
	for _, it := range w.items {
		switch onKubernetes := it.Cluster != "" || topology.IsKubernetes(it.Workspace); {
		case onKubernetes && it.Namespace != "":
			return plan.Ref{Cluster: it.Cluster, Workspace: it.Workspace, Namespace: it.Namespace}, true
		case !onKubernetes && it.Workspace != "" && it.Kind == agent.Kind:
			return plan.Ref{Workspace: it.Workspace, Namespace: topology.WorkspaceNamespace}, true
		}
	}
	return plan.Ref{}, false
}

// kindsOf returns the kinds whose state goes: those that are withdrawn, without those that another agent of the
// namespace publishes.
func (x *Withdrawer) kindsOf(ctx context.Context, w *Withdrawal, place plan.Ref) (map[schema.GroupKind]bool, error) {
	place.GroupVersionKind = kind.Lease.GroupVersionKind
	leases, err := x.find(ctx, place, "")
	if err != nil {
		return nil, err
	}
	place.GroupVersionKind = agentstate.PublishedKind
	place.Namespace = ""
	all, err := x.find(ctx, place, "")
	if err != nil {
		return nil, err
	}
	goes := map[string]bool{}
	out := map[schema.GroupKind]bool{}
	for _, it := range w.published {
		goes[it.Name] = true
	}
	for _, p := range w.dropped {
		out[schema.ParseGroupKind(p.Kind)], out[schema.ParseGroupKind(p.As)] = true, true
	}
	for _, o := range liveOf(w.gone()) {
		for _, k := range kindsIn(o) {
			out[k] = true
		}
	}
	for i := range all {
		if p := &all[i]; !goes[p.GetName()] &&
			publishedFrom(leases, p, topology.AgentLease(x.Topology.Name, w.Agent.Name())) {
			for _, k := range kindsIn(p) {
				delete(out, k)
			}
		}
	}
	return out, nil
}

// publishedFrom reports whether an agent of the namespace with these Leases publishes a resource: a PublishedResource
// has no namespace, but each agent has a Lease in its own, also one of another setup. own is the Lease of the agent
// that is withdrawn. Without the label by which agents of kcpctl select their resources, any other agent can publish
// it.
func publishedFrom(leases []unstructured.Unstructured, published *unstructured.Unstructured, own string) bool {
	name := published.GetLabels()[topology.LabelAgent]
	return slices.ContainsFunc(leases, func(lease unstructured.Unstructured) bool {
		agentName, isAgent := strings.CutPrefix(lease.GetName(), topology.AgentLeasePrefix)
		return isAgent && (name == agentName || name == "" && lease.GetName() != own)
	})
}

// kindsIn returns the kind of a PublishedResource on the service cluster, and in kcp.
func kindsIn(published *unstructured.Unstructured) []schema.GroupKind {
	var out []schema.GroupKind
	for _, k := range agent.Kinds(publishing(published)) {
		out = append(out, k.GroupKind, k.ProjectedKind)
	}
	return out
}

// holdsState reports whether a Secret has the state of an object of some kinds. It has each object as JSON, under a
// hash of its name (api-syncagent: internal/sync/state_store.go).
func holdsState(secret *unstructured.Unstructured, kinds map[schema.GroupKind]bool) bool {
	data, _, _ := unstructured.NestedStringMap(secret.Object, "data")
	for _, encoded := range data {
		raw, err := base64.StdEncoding.DecodeString(encoded)
		var object struct{ APIVersion, Kind string }
		if err == nil && json.Unmarshal(raw, &object) == nil &&
			kinds[schema.FromAPIVersionAndKind(object.APIVersion, object.Kind).GroupKind()] {
			return true
		}
	}
	return false
}

// find returns objects on a cluster, or in the workspace that takes its place.
func (x *Withdrawer) find(ctx context.Context, at plan.Ref, selector string) ([]unstructured.Unstructured, error) {
	if at.Workspace == "" || topology.IsKubernetes(at.Workspace) {
		return x.Runtime.Find(ctx, at, selector)
	}
	proxy, err := run.ConnectFrontProxy(x.Runtime, x.Topology, x.Left, x.State, x.Now())
	if err != nil {
		return nil, err
	}
	defer proxy.Close()
	place := plan.Ref{Workspace: at.Workspace, GroupVersionKind: at.GroupVersionKind,
		Namespace: at.Namespace, Name: at.Name}
	if at.Name == "" {
		return proxy.Objects(ctx, place, selector)
	}
	o, err := proxy.Object(ctx, place)
	if err != nil || o == nil {
		return nil, err
	}
	return []unstructured.Unstructured{*o}, nil
}

// itemAt is the deletion of an object of an agent.
func itemAt(at plan.Ref, id topology.ID, o *unstructured.Unstructured) plan.Item {
	at.Name = o.GetName()
	return plan.Item{Ref: at, Component: id, Action: plan.Delete, Live: o}
}
