package deploy

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/agentstate"
	"github.com/kcpctl/kcpctl/internal/engine/run"
)

// write applies the objects of a component. Objects of an agent that are on a cluster are applied when all shards with
// consumers serve the APIExport: an agent that starts earlier fails to watch a shard, and does not retry until the
// endpoints change (multicluster-provider: pkg/provider/provider.go).
func (r *rollout) write(ctx context.Context, c *change, options run.PlanOptions) error {
	if c.Kind != topology.Agent {
		return r.Runtime.Apply(ctx, c.items, options)
	}
	inside, outside := plan.InWorkspaces(c.items)
	if len(inside) > 0 {
		if err := r.Runtime.Apply(ctx, inside, options); err != nil {
			return err
		}
	}
	if len(outside) == 0 {
		return nil
	}
	if c.Replicas > 0 {
		err := r.throughProxy(func(proxy *kcp.Client) error {
			return r.endpoints(ctx, proxy, c.Component, c.Component, c.Agent.Bind...)
		})
		if err != nil {
			return err
		}
	}
	return r.Runtime.Apply(ctx, outside, options)
}

// consumes waits until the shard of a workspace serves the APIExports of the agents that the workspace binds, and the
// agents watch it. Those that are paused need not have published.
func (r *rollout) consumes(ctx context.Context, c *topology.Component) error {
	for _, agent := range r.Topology.OfKind(topology.Agent) {
		if agent.Replicas == 0 || !topology.BindsAgent(c.Workspace.Workspace, &agent.Agent.Agent) {
			continue
		}
		err := r.throughProxy(func(proxy *kcp.Client) error { return r.consumesOf(ctx, proxy, c, agent) })
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *rollout) consumesOf(ctx context.Context, proxy *kcp.Client, c, agent *topology.Component) error {
	if err := r.endpoints(ctx, proxy, c, agent, c.Workspace.Path); err != nil || !r.scope().Includes(agent.ID()) {
		return err
	}
	return r.watches(ctx, c, &agentstate.Agent{Component: agent, Runtime: r.Runtime, Proxy: proxy, Now: r.Now})
}

// endpoints waits, on behalf of c, until all shards with some consumers of an agent serve its APIExport.
func (r *rollout) endpoints(
	ctx context.Context, proxy *kcp.Client, c, agent *topology.Component, consumers ...string,
) error {
	return r.until(ctx, c, func() error {
		for _, consumer := range consumers {
			if err := r.endpoint(ctx, proxy, agent, consumer); err != nil {
				return err
			}
		}
		return nil
	})
}

// endpoint returns nil if the shard of a consumer serves the APIExport of an agent, or the reason why not.
func (r *rollout) endpoint(ctx context.Context, proxy *kcp.Client, c *topology.Component, consumer string) error {
	shard, err := r.shardOf(ctx, proxy, consumer)
	if err != nil {
		return err
	}
	slice, err := proxy.Object(ctx, plan.Ref{Workspace: c.Agent.Workspace,
		GroupVersionKind: kcpapi.APIExportEndpointSlice.GroupVersionKind, Name: c.Agent.APIExport})
	switch {
	case err != nil:
		return fmt.Errorf("read APIExportEndpointSlice %s in %s: %w", c.Agent.APIExport, c.Agent.Workspace, err)
	case slice == nil:
		return fmt.Errorf("APIExportEndpointSlice %s in %s does not exist yet", c.Agent.APIExport, c.Agent.Workspace)
	}
	all := agentstate.EndpointsOf(slice, r.Topology)
	i := slices.IndexFunc(all, func(e agentstate.Endpoint) bool { return e.Shard == shard })
	if i < 0 {
		return fmt.Errorf("APIExportEndpointSlice %s in %s has no URL of %s yet", c.Agent.APIExport,
			c.Agent.Workspace, shard.ID())
	}
	client, err := r.connect(r.Topology.WorkspaceServer(shard))
	if err != nil {
		return err
	}
	defer client.Close()
	answer, err := client.Get(ctx, all[i].URL.Path+agentstate.Watched, nil)
	if err == nil && answer.Code != http.StatusOK {
		err = fmt.Errorf("HTTP status %d", answer.Code)
	}
	if err != nil {
		return fmt.Errorf("%s does not serve APIExport %s yet: %w", shard.ID(), c.Agent.APIExport, err)
	}
	return nil
}

// shardOf returns the shard of a workspace.
func (r *rollout) shardOf(ctx context.Context, proxy *kcp.Client, path string) (*topology.Component, error) {
	at := strings.LastIndexByte(path, ':')
	if at < 0 {
		return r.Topology.Root(), nil
	}
	live, err := proxy.Object(ctx,
		plan.Ref{Workspace: path[:at], GroupVersionKind: kcpapi.Workspace.GroupVersionKind, Name: path[at+1:]})
	switch {
	case err != nil:
		return nil, fmt.Errorf("read workspace %s: %w", path, err)
	case live == nil:
		return nil, fmt.Errorf("workspace %s does not exist", path)
	}
	shards := r.Topology.Shards()
	var names []string
	for _, s := range shards {
		names = append(names, s.ShardName())
	}
	i := slices.Index(names, kcp.WorkspaceShard(live, names))
	if i < 0 {
		return nil, fmt.Errorf("workspace %s is on no shard of the setup yet", path)
	}
	return shards[i], nil
}
