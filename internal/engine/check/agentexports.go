package check

import (
	"context"
	"net"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/desired/agent"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/agentstate"
)

// addressed looks for shards whose virtual workspaces components of a kind on other clusters cannot reach, because the
// URL has a name that only their own cluster resolves.
func addressed(kind topology.Kind, word string) func(context.Context, *Subject) outcome {
	return func(_ context.Context, s *Subject) (o outcome) {
		if s.Topology.Local() {
			return skipped("all components run on this machine")
		}
		dialled := false
		for _, c := range s.Topology.Running() {
			if c.Kind != kind {
				continue
			}
			for _, shard := range s.Topology.Shards() {
				server := s.Topology.WorkspaceServer(shard)
				if server.Cluster.Name == c.Cluster.Name ||
					c.Kind == topology.Agent && server.Cluster.SameServer(c.Cluster) || server.Assignment.Pending() {
					continue
				}
				dialled = true
				if isWithin(server, hostOf(shard.VirtualWorkspaceURL)) {
					o.fail("%s on cluster %s dials %s at %s, which only leads there within cluster %s", c.ID(),
						c.Cluster.Name, shard.ID(),
						shard.VirtualWorkspaceURL, server.Cluster.Name)
				}
			}
		}
		if !dialled {
			return skipped("no %s dials shards of another cluster", word)
		}
		return o
	}
}

// isWithin reports whether a host leads to a server only within its cluster: the name of a Service, or of the pod
// itself.
func isWithin(server *topology.Component, host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback() || host == server.Object() ||
		host == server.Object()+"."+server.Cluster.Namespace || strings.HasSuffix(host, ".svc") ||
		strings.HasSuffix(host, ".svc."+server.Cluster.Domain)
}

// exportsOwned looks for APIExports of agents that others own, or publish through, if kcp runs already.
func exportsOwned(ctx context.Context, s *Subject) outcome {
	agents := s.agents()
	if len(agents) == 0 {
		return skipped("the setup has no agents")
	}
	s.loadState(ctx)
	proxies := slices.DeleteFunc(s.Topology.FrontProxies(), func(c *topology.Component) bool {
		return !c.AcceptsClientCertificates() || s.lost(c.Cluster.Name) || !s.runs(ctx, c.ID())
	})
	if len(s.state.CAs) == 0 || len(proxies) == 0 {
		return skipped("no front-proxy is ready")
	}
	proxy, err := s.client(proxies[0])
	if err != nil {
		return fromError(err)
	}
	return every(agents, func(c *topology.Component) (o outcome) {
		a := &agentstate.Agent{Component: c, Proxy: proxy}
		export, err := a.FindExport(ctx)
		switch {
		case apierrors.IsForbidden(err), err == nil && export == nil: // the workspace does not exist, or the APIExport
		case err != nil:
			return skipped("%s: %s", c.ID(), reason(ctx, err))
		default:
			if why := s.foreign(export); why != "" {
				o.fail("%s: APIExport %s in %s %s", c.ID(), c.Agent.APIExport, c.Agent.Workspace, why)
				return o
			}
			if s.runs(ctx, c.ID()) {
				return agentAlone(ctx, s, a)
			}
			// An agent that was removed leaves its name. One that runs writes its own instead.
			if name := a.Other(export); name != "" {
				o.warn("%s: APIExport %s in %s has the name of the agent %s: make sure that it no longer runs", c.ID(),
					c.Agent.APIExport, c.Agent.Workspace, name)
			}
		}
		return o
	})
}

// agentAlone looks for another agent that publishes through the same APIExport.
func agentAlone(ctx context.Context, _ *Subject, a *agentstate.Agent) (o outcome) {
	switch rival, err := a.Rival(ctx); {
	case err != nil:
		o.fail("%s: %s", a.ID(), reason(ctx, err))
	case rival != "":
		o.fail("%s: APIExport %s in %s is also published by the agent %s", a.ID(), a.Agent.APIExport,
			a.Agent.Workspace, rival)
	}
	return o
}

// foreign returns why an APIExport is not one of the setup; empty if it is.
func (s *Subject) foreign(export *unstructured.Unstructured) string {
	switch id := export.GetLabels()[topology.LabelInstallation]; {
	case id == "":
		return "was not created by kcpctl"
	case id != s.state.Installation.ID:
		return "belongs to the installation " + id
	}
	return ""
}

// published checks the PublishedResources of all agents as the setup file does: a setup may also come from a revision.
func published(_ context.Context, s *Subject) (o outcome) {
	agents := s.Topology.Setup.Spec.Agents
	if len(agents) == 0 {
		return skipped("the setup has no agents")
	}
	for i := range agents {
		var all []agent.Source
		for _, p := range agents[i].PublishedResources {
			all = append(all, agent.Source{PublishedResource: p})
		}
		problems, err := agent.Validate(agents[i].Version, all, agent.Reserved(s.Topology.Setup, &agents[i])...)
		o.add(err)
		for _, p := range problems {
			if !p.Warning {
				o.fail("agent/%s: PublishedResource %s: %v", agents[i].Name,
					all[p.Source].PublishedResource.Name, p.Error)
			}
		}
	}
	return o
}
