package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/agent"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/agentstate"
)

// stuckTime is how long a deleted object may keep the finalizer of an agent.
const stuckTime = 5 * time.Minute

// publishable looks for kinds that agents publish and that their cluster does not serve.
func publishable(ctx context.Context, s *Subject, cl agentCluster) (o outcome) {
	found := false
	for _, c := range s.agents() {
		if !cl.has(c) {
			continue
		}
		for _, k := range agent.Kinds(&c.Agent.Agent) {
			if k.Group == "" || defined(c.Agent.Definitions, k.GroupKind) {
				continue // of Kubernetes itself, or up creates it
			}
			found = true
			served, err := cl.asked.Versions(ctx, k.GroupKind)
			if err != nil {
				o.add(fmt.Errorf("%s: PublishedResource %s: %w", c.ID(), k.Name, err))
				continue
			}
			for _, v := range k.Versions {
				if !slices.Contains(served, v) {
					o.fail("%s: PublishedResource %s: the API server serves %s in %s, and not in %s", c.ID(), k.Name,
						k.GroupKind, list(served), v)
				}
			}
		}
	}
	if !found {
		return skipped("no agent on it publishes kinds of CustomResourceDefinitions that exist already")
	}
	return o
}

// defined reports whether a CustomResourceDefinition of the setup defines a kind.
func defined(definitions []v1alpha1.Object, kind schema.GroupKind) bool {
	return slices.ContainsFunc(definitions, func(d v1alpha1.Object) bool {
		group, _, _ := unstructured.NestedString(d, "spec", "group")
		name, _, _ := unstructured.NestedString(d, "spec", "names", "kind")
		return group == kind.Group && name == kind.Kind
	})
}

// agents are the agents of the setup.
func (s *Subject) agents() []*topology.Component {
	return slices.DeleteFunc(slices.Clone(s.Topology.Components),
		func(c *topology.Component) bool { return c.Kind != topology.Agent })
}

// readyProxies are the front-proxies that serve kcpctl.
func (s *Subject) readyProxies() []*topology.Component {
	return slices.DeleteFunc(s.servers(topology.FrontProxy),
		func(c *topology.Component) bool { return !c.AcceptsClientCertificates() })
}

// eachAgent runs a check for all agents that are not paused, through a front-proxy.
func eachAgent(ask func(context.Context, *Subject, *agentstate.Agent) outcome) func(context.Context, *Subject) outcome {
	return func(ctx context.Context, s *Subject) outcome {
		var agents, lost []*topology.Component
		for _, c := range s.agents() {
			switch {
			case c.Replicas == 0:
			case s.lost(c.Cluster.Name):
				lost = append(lost, c)
			default:
				agents = append(agents, c)
			}
		}
		if len(agents) == 0 {
			return skipped("the setup has no agents that run")
		}
		proxies := s.readyProxies()
		if len(proxies) == 0 {
			return skipped("no front-proxy is ready")
		}
		proxy, err := s.client(proxies[0])
		if err != nil {
			return fromError(err)
		}
		o := every(agents, func(c *topology.Component) outcome {
			return ask(ctx, s, &agentstate.Agent{Component: c, Runtime: s.Runtime, Proxy: proxy, Now: s.Now})
		})
		o.notExamined("their cluster does not answer", lost)
		return o
	}
}

func agentLeads(ctx context.Context, _ *Subject, a *agentstate.Agent) (o outcome) {
	if _, err := a.Leader(ctx); err != nil {
		o.fail("%s: %s", a.ID(), reason(ctx, err))
	}
	return o
}

func agentPublishes(ctx context.Context, s *Subject, a *agentstate.Agent) (o outcome) {
	if _, err := a.Published(ctx); err != nil {
		o.fail("%s: %s", a.ID(), reason(ctx, err))
		return o
	}
	return agentAlone(ctx, s, a)
}

// agentAccepted looks for consumers that do not serve the APIs, or have not accepted all claims that follow from the
// agent, and for claims that go beyond these.
func agentAccepted(ctx context.Context, _ *Subject, a *agentstate.Agent) (o outcome) {
	export, err := a.Export(ctx)
	if err != nil {
		o.fail("%s: %s", a.ID(), reason(ctx, err))
		return o
	}
	if beyond := a.Beyond(export, kcp.Asked(export)); len(beyond) > 0 {
		o.fail("%s: APIExport %s in %s claims what does not follow from the setup: %s", a.ID(), a.Agent.APIExport,
			a.Agent.Workspace, list(beyond))
	}
	for _, consumer := range a.Agent.Agent.Bind {
		missing, beyond, err := a.Accepted(ctx, export, consumer)
		switch {
		case err != nil:
			o.fail("%s: %s", a.ID(), reason(ctx, err))
		case len(missing) > 0:
			o.fail("%s: APIBinding %s in %s does not accept the claims of %s", a.ID(), a.Agent.APIExport,
				consumer, list(missing))
		}
		if len(beyond) > 0 {
			o.fail("%s: APIBinding %s in %s accepts what does not follow from the setup: %s", a.ID(), a.Agent.APIExport,
				consumer, list(beyond))
		}
	}
	if _, err := a.Published(ctx); err != nil {
		o.merge(Skipped, fmt.Sprintf("%s has not published everything", a.ID()))
		return o
	}
	if err := a.Bound(ctx); err != nil {
		o.fail("%s: %s", a.ID(), reason(ctx, err))
	}
	return o
}

// eachEndpoint asks about all endpoints of an agent.
func eachEndpoint(ask func(context.Context, *Subject, *agentstate.Agent,
	agentstate.Endpoint) error) func(context.Context, *Subject, *agentstate.Agent) outcome {
	return func(ctx context.Context, s *Subject, a *agentstate.Agent) (o outcome) {
		all, err := a.Endpoints(ctx, s.Topology)
		if err != nil {
			o.fail("%s: %s", a.ID(), reason(ctx, err))
			return o
		}
		return every(all, func(e agentstate.Endpoint) (o outcome) {
			if e.Shard == nil {
				o.fail("%s: %s belongs to no shard of the setup", a.ID(), e.URL)
				return o
			}
			if s.lost(s.Topology.WorkspaceServer(e.Shard).Cluster.Name) {
				return o
			}
			if err := ask(ctx, s, a, e); err != nil {
				o.fail("%s: %s: %s", a.ID(), e.Shard.ID(), reason(ctx, err))
			}
			return o
		})
	}
}

// agentReaches requests, with the agent's own certificate, what the agent watches first.
func agentReaches(ctx context.Context, s *Subject, a *agentstate.Agent, e agentstate.Endpoint) error {
	return a.Answers(ctx, e, s.Topology.WorkspaceServer(e.Shard), s.state, s.Runtime)
}

// agentServed checks whether the shards answer the agent, and reads in its log whether it watches them.
func agentServed(ctx context.Context, s *Subject, a *agentstate.Agent) outcome {
	o := eachEndpoint(agentReaches)(ctx, s, a)
	var log agentstate.WatchLog
	if o.status != "" || s.Runtime.Logs(ctx, a.Component, LogOptions{}, &log) != nil || !log.Failed() {
		return o
	}
	all, err := a.Endpoints(ctx, s.Topology)
	if err != nil {
		o.fail("%s: %s", a.ID(), reason(ctx, err))
		return o
	}
	if gone := log.Unwatched(all); len(gone) > 0 {
		o.fail("%s %s", a.ID(), agentstate.Unwatching(gone))
	}
	return o
}

// agentCleansUp looks for deleted objects that keep the finalizer of the agent.
func agentCleansUp(ctx context.Context, s *Subject, a *agentstate.Agent, e agentstate.Endpoint) error {
	export, err := a.Export(ctx)
	if err != nil {
		return err
	}
	client, err := s.client(s.Topology.WorkspaceServer(e.Shard))
	if err != nil {
		return err
	}
	var stuck []string
	own := agentstate.Resources(export)
	for _, r := range slices.Concat(own, agent.RelatedOfConsumers(&a.Agent.Agent)) {
		all, err := client.Exported(ctx, e.URL.Path, r)
		if errors.Is(err, kcp.ErrNotServed) && !slices.Contains(own, r) { // not claimed yet
			continue
		}
		if err != nil {
			return err
		}
		for _, object := range all {
			if slices.Contains(object.Finalizers, agent.Finalizer) && !object.Deleted.IsZero() &&
				s.Now().Sub(object.Deleted) > stuckTime {
				stuck = append(stuck, fmt.Sprintf("%s in logical cluster %s", object, object.Cluster))
			}
		}
	}
	if len(stuck) > 0 {
		return fmt.Errorf("deleted more than %s ago, with the finalizer %s: %s", stuckTime,
			agent.Finalizer, list(stuck))
	}
	return nil
}
