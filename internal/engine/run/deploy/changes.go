package deploy

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// changes are the changes that a run makes to the components in its scope, in the order of the topology.
type changes struct {
	all []*change
	of  map[topology.ID]*change
}

// change is the change that a run makes to a component.
type change struct {
	*topology.Component
	// items are the objects that are created or changed, without new namespaces, which are applied before everything
	// else.
	items []plan.Item
	// aliases are the additional Services among its changes. They are applied when it serves, because clients use them.
	aliases []plan.Item
	// grants are the rights in kcp of the user of a kubeconfig. They are applied when kcp serves. The kubeconfig does
	// not wait for that: its user may create the workspace.
	grants []plan.Item
	// isNew means that the component does not run yet, rolls that a running component is changed.
	isNew, rolls bool
	// moved are the front-proxies that must restart once the shard is registered with its new base URL.
	moved []topology.ID
	// hands is the server to which a shard that runs hands over its virtual workspaces. It is changed when the server
	// is ready: until then, it serves them itself. The server is early: it starts without waiting for components that
	// run already.
	hands topology.ID
	early bool
	// needs are the components in the scope that it needs.
	needs []topology.ID
	// after are the components whose rolls come before its own; none for the first ones and for those that do not roll.
	after []topology.ID
	// turn is its place among the components that roll, one after another; -1 if it does not roll.
	turn int
}

// awaits reports whether a new component starts as soon as another one answers, without waiting until it is ready.
func (c *change) awaits(id topology.ID) bool { return slices.Contains(c.Awaits, id) }

// changesOf returns what a plan does to the components in a scope. Shards roll at most parallel at a time, and so do
// their etcds; everything else rolls alone.
func changesOf(t *topology.Topology, s plan.Scope, p *plan.Plan, parallel int) *changes {
	out := &changes{of: map[topology.ID]*change{}}
	for _, c := range t.Components {
		if !s.Includes(c.ID()) {
			continue
		}
		ch := &change{Component: c, items: p.Of(c.ID()), needs: s.Of(c.Needs), turn: -1}
		ch.isNew = slices.ContainsFunc(ch.items, func(it plan.Item) bool {
			return it.Action == plan.Create && plan.HasPods(it.Kind)
		})
		_, outside := plan.InWorkspaces(ch.items)
		ch.rolls = len(outside) > 0 && !ch.isNew
		ch.items = slices.DeleteFunc(ch.items, isNewNamespace)
		if c.Kind == topology.Kubeconfig {
			ch.grants, ch.items = plan.InWorkspaces(ch.items)
		}
		alias := func(it plan.Item) bool { return c.IsAlias(it.Kind, it.Name) }
		ch.aliases = slices.DeleteFunc(slices.Clone(ch.items), func(it plan.Item) bool { return !alias(it) })
		ch.items = slices.DeleteFunc(ch.items, alias)
		out.all, out.of[c.ID()] = append(out.all, ch), ch
	}
	out.handOver()
	serial := out.serial()
	for i, ch := range serial {
		ch.turn = i
	}
	chain(serial, max(parallel, 1))
	return out
}

// isFirst reports whether a component comes before all kcp servers.
func (c *change) isFirst() bool { return c.Kind == topology.Base }

// handOver finds the shards that hand over their virtual workspaces to a server.
func (cs *changes) handOver() {
	for _, shard := range cs.all {
		server := cs.of[shard.VirtualWorkspaces]
		if server == nil || !shard.rolls || !slices.ContainsFunc(shard.items, servesNoLonger) {
			continue
		}
		shard.hands, server.early = server.ID(), true
	}
}

// servesNoLonger reports whether a change of a shard ends its own virtual workspaces.
func servesNoLonger(it plan.Item) bool {
	serves := func(workload *unstructured.Unstructured) string {
		return record.FlagOf(topology.Shard, workload, "run-virtual-workspaces")
	}
	return it.Kind == "Deployment" && it.Live != nil && serves(it.Want) == "false" && serves(it.Live) != "false"
}

// chain lets components roll in their order: at most limit of a group at a time, after all of the group before. If one
// fails, no further one begins.
func chain(serial []*change, limit int) {
	var before, group []topology.ID
	for i, ch := range serial {
		if i > 0 && !together(serial[i-1].Component, ch.Component) {
			before, group = group, nil
		}
		ch.after = slices.Concat(before, group[:max(0, len(group)-limit+1)])
		group = append(group, ch.ID())
	}
}

// together reports whether components can roll at the same time: shards do not depend on one another.
func together(a, b *topology.Component) bool {
	ofShard := func(c *topology.Component) bool {
		return c.Kind == topology.Etcd && c.ID().EtcdOwner().Kind() == topology.Shard
	}
	return a.Kind == topology.Shard && b.Kind == topology.Shard || ofShard(a) && ofShard(b)
}

// serial returns the components that roll, in the order in which they do: servers of virtual workspaces before the
// front-proxies, whose roll clients notice most, and users with rights in a workspace after the workspaces.
func (cs *changes) serial() []*change {
	var out, proxies, tenants, granted []*change
	for _, ch := range cs.all {
		switch {
		case !ch.rolls || ch.early:
		case len(ch.grants) > 0:
			granted = append(granted, ch)
		case ch.Kind.Tenant():
			tenants = append(tenants, ch)
		case ch.Kind == topology.FrontProxy:
			proxies = append(proxies, ch)
		case ch.Kind == topology.Kubeconfig:
			out, proxies = append(append(out, proxies...), ch), nil
		default:
			out = append(out, ch)
		}
	}
	return slices.Concat(out, proxies, tenants, granted)
}

func isNewNamespace(it plan.Item) bool {
	return it.Kind == "Namespace" && it.Action == plan.Create && it.Workspace == ""
}
