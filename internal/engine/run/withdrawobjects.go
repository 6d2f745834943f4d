package run

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/agent"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/agentstate"
)

// askTime is how long kcp may take to list the objects of the APIs of an agent.
const askTime = 30 * time.Second

// usedObject is an object of an API of an agent, and where it is.
type usedObject struct {
	kcp.Exported
	// workspace is the path of its workspace, or else the name of its logical cluster.
	workspace string
	// server and path are where it is served.
	server *topology.Component
	path   string
}

// objects returns the objects of the APIs that are withdrawn, on all shards.
func (x *withdrawer) objects(ctx context.Context, w *withdrawal) ([]usedObject, error) {
	resources, err := x.resources(ctx, w)
	if err != nil {
		return nil, err
	}
	workspace, export := x.exportOf(w.agent)
	return x.exported(ctx, workspace, export, resources)
}

// exported returns the objects of some resources that an APIExport provides or claims, on all shards.
func (x *withdrawer) exported(ctx context.Context, workspace, export string,
	resources []schema.GroupResource) ([]usedObject, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, askTime, fmt.Errorf("no answer after %s", askTime))
	defer cancel()
	out, err := x.ask(ctx, workspace, export, resources)
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return out, err
}

func (x *withdrawer) ask(ctx context.Context, workspace, export string,
	resources []schema.GroupResource) ([]usedObject, error) {
	if export == "" || len(resources) == 0 {
		return nil, nil
	}
	proxy, err := ConnectFrontProxy(x.Runtime, x.topology, x.left, x.state, x.now())
	if err != nil {
		return nil, err
	}
	defer proxy.Close()
	slice, err := proxy.Object(ctx,
		plan.Ref{Workspace: workspace, GroupVersionKind: kcpapi.APIExportEndpointSlice.GroupVersionKind, Name: export})
	if err != nil {
		return nil, fmt.Errorf("read APIExportEndpointSlice %s in %s: %w", export, workspace, err)
	}
	if slice == nil {
		return nil, nil // no workspace can bind it
	}
	var out []usedObject
	for _, at := range agentstate.EndpointsOf(slice, x.topology) {
		found, err := x.onShard(ctx, at, resources)
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	return out, nil
}

// onShard returns the objects of resources on the shard with an endpoint.
func (x *withdrawer) onShard(ctx context.Context, at agentstate.Endpoint,
	resources []schema.GroupResource) ([]usedObject, error) {
	if at.Shard == nil {
		return nil, fmt.Errorf("no shard of the setup serves %s", at.URL)
	}
	server := x.topology.WorkspaceServer(at.Shard)
	client, err := kcp.Connect(x.Runtime, server, x.state, x.now())
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var out []usedObject
	for _, r := range resources {
		found, err := client.Exported(ctx, at.URL.Path, r)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", server.ID(), err)
		}
		for _, e := range found {
			out = append(out, usedObject{Exported: e, workspace: e.Cluster, server: server, path: at.URL.Path})
		}
	}
	if len(out) == 0 {
		return nil, nil
	}
	return out, x.name(ctx, at.Shard, out)
}

// name replaces the names of logical clusters by the paths of their workspaces.
func (x *withdrawer) name(ctx context.Context, shard *topology.Component, all []usedObject) error {
	client, err := kcp.Connect(x.Runtime, shard, x.state, x.now())
	if err != nil {
		return err
	}
	defer client.Close()
	clusters, err := client.LogicalClusters(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", shard.ID(), err)
	}
	paths := map[string]string{}
	for _, l := range clusters {
		paths[l.Name] = l.Path
	}
	for i := range all {
		if path := paths[all[i].Cluster]; path != "" {
			all[i].workspace = path
		}
	}
	return nil
}

// exportOf returns the APIExport of an agent, and its workspace, as earlier runs have applied it.
func (x *withdrawer) exportOf(id topology.ID) (workspace, name string) {
	for _, p := range x.known.Placed {
		if ref := p.Ref(); p.Component == id && ref.GroupKind() == kcpapi.APIExport.GroupKind() {
			return ref.Workspace, ref.Name
		}
	}
	return "", ""
}

// resources returns the resources in kcp that are withdrawn: not those that the agent publishes under another name from
// now on. It fails if the cluster of the agent does not answer.
func (x *withdrawer) resources(ctx context.Context, w *withdrawal) ([]schema.GroupResource, error) {
	stays := map[schema.GroupResource]bool{}
	if c := x.topology.Component(w.agent); c != nil && !w.whole {
		for _, k := range agent.Kinds(&c.Agent.Agent) {
			stays[k.Projected] = true
		}
	}
	var out []schema.GroupResource
	for _, it := range w.published {
		if it.Live == nil {
			found, err := x.Runtime.Find(ctx, it.Ref, "")
			if err != nil {
				return nil, err
			}
			if len(found) == 0 {
				continue
			}
			it.Live = &found[0]
		}
		if r, ok := publishedAs(it.Live); ok && !stays[r] && !slices.Contains(out, r) {
			out = append(out, r)
		}
	}
	return out, nil
}

// publishedAs returns the resource in kcp of a live PublishedResource: the name of its APIResourceSchema is
// v<hash>.<plural>.<group> (api-syncagent: internal/kcp/apiresourceschema.go). Without one it has never been published.
func publishedAs(live *unstructured.Unstructured) (schema.GroupResource, bool) {
	name, _, _ := unstructured.NestedString(live.Object, "status", "resourceSchemaName")
	_, resource, ok := strings.Cut(name, ".")
	return schema.ParseGroupResource(resource), ok
}

// related returns the related objects of workspaces that have the finalizer. An agent leaves it on those to which its
// objects no longer refer. Those that another agent copies too keep it.
func (x *withdrawer) related(ctx context.Context, w *withdrawal) ([]usedObject, error) {
	workspace, export := x.exportOf(w.agent)
	resources := agent.RelatedOfConsumers(publishing(w.published...))
	out, err := x.exported(ctx, workspace, export, resources)
	out = slices.DeleteFunc(out, func(u usedObject) bool { return !slices.Contains(u.Finalizers, agent.Finalizer) })
	if err != nil || len(out) == 0 {
		return nil, err
	}
	for _, c := range x.topology.OfKind(topology.Agent) {
		if c.ID() == w.agent && w.whole {
			continue
		}
		shared := slices.DeleteFunc(agent.RelatedOfConsumers(&c.Agent.Agent),
			func(r schema.GroupResource) bool { return !slices.Contains(resources, r) })
		others, err := x.exported(ctx, c.Agent.Workspace, c.Agent.APIExport, shared)
		if err != nil {
			return nil, err
		}
		out = slices.DeleteFunc(out, func(u usedObject) bool {
			return slices.ContainsFunc(others,
				func(o usedObject) bool { return o.String() == u.String() && o.Cluster == u.Cluster })
		})
	}
	return out, nil
}

// publishing is an agent with PublishedResources as they are in a cluster.
func publishing(all ...plan.Item) *v1alpha1.Agent {
	out := &v1alpha1.Agent{}
	for _, it := range all {
		if it.Live != nil {
			spec, _, _ := unstructured.NestedMap(it.Live.Object, "spec")
			out.PublishedResources = append(out.PublishedResources,
				v1alpha1.PublishedResource{Name: it.Name, Spec: spec})
		}
	}
	return out
}

// release removes the finalizer of the agent from the objects in kcp that have it, because the agent no longer does. If
// there are objects of its APIs, the user has asked for it. While kcp does not answer, the objects keep it.
func (x *withdrawer) release(ctx context.Context, w *withdrawal) error {
	used, err := x.related(ctx, w)
	if err == nil && w.orphan {
		var own []usedObject
		own, err = x.objects(ctx, w)
		used = append(used, own...)
	}
	if err != nil && ctx.Err() == nil {
		x.note(fmt.Sprintf("%s: objects in workspaces keep the finalizer %s, because kcp does not answer: %s", w.agent,
			agent.Finalizer, FirstLine(err)))
		return nil
	}
	if err != nil {
		return err
	}
	for _, u := range used {
		client, err := kcp.Connect(x.Runtime, u.server, x.state, x.now())
		if err == nil {
			err = client.ReleaseExported(ctx, u.path, u.Exported, agent.Finalizer)
			client.Close()
		}
		if err != nil {
			return fmt.Errorf("%s: %w", u.workspace, err)
		}
	}
	if len(used) > 0 {
		x.note(fmt.Sprintf("%s: %s in workspaces no longer have a finalizer of it; their copies stay", w.agent,
			count(len(used), "object", "objects")))
	}
	return nil
}
