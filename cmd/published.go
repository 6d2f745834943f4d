package cmd

import (
	"cmp"
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/engine/agentstate"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
	"github.com/kcpctl/kcpctl/internal/workload/apis/negotiate"
)

// published reads the published APIs.
func (c *compute) published(ctx context.Context, flags *setupFlags) (in negotiate.Input, _ error) {
	read := func(a kcpapi.API, name string) (*unstructured.Unstructured, error) {
		o, err := c.Object(ctx, c.placeOf(a, name))
		switch {
		case err != nil:
			return nil, clierr.New(clierr.Failed, "see "+flags.command("status"), "read %s %s in %s: %w", a.Kind,
				name, c.workspace, err)
		case o == nil:
			return nil, clierr.New(clierr.NotReady,
				"rerun the command when the controller has published the APIs, see "+flags.command("status"),
				"%s %s in %s does not exist", a.Kind, name, c.workspace)
		}
		return o, nil
	}
	export, err := read(kcpapi.APIExport, api.ExportWorkloads)
	if err != nil {
		return in, err
	}
	in.Export = export
	for _, name := range negotiate.SchemasOf(export) {
		o, err := read(kcpapi.APIResourceSchema, name)
		if err != nil {
			return in, err
		}
		in.Schemas = append(in.Schemas, o)
	}
	return in, nil
}

// placeOf names an object of one of kcp's APIs in the compute workspace.
func (c *compute) placeOf(a kcpapi.API, name string) plan.Ref {
	return plan.Ref{Workspace: c.workspace, GroupVersionKind: a.GroupVersionKind, Name: name}
}

// eachObject calls do for every object of a published API, in the workspaces of all shards, through the virtual
// workspaces of the APIExport.
func (c *compute) eachObject(ctx context.Context, gr schema.GroupResource,
	do func(*unstructured.Unstructured)) error {
	endpoints, err := c.endpoints(ctx)
	if err != nil {
		return err
	}
	for _, e := range endpoints {
		client, err := c.connectTo(e)
		if err != nil {
			return err
		}
		err = client.EachExported(ctx, e.URL.Path, gr,
			func(_ schema.GroupVersionResource, o *unstructured.Unstructured) { do(o) })
		client.Close()
		if err != nil {
			return clierr.New(clierr.Failed, "make the shard reachable, and rerun the command", "%s: %w",
				e.Shard.ID(), err)
		}
	}
	return nil
}

// connectTo connects to the shard of an endpoint.
func (c *compute) connectTo(e agentstate.Endpoint) (*kcp.Client, error) {
	s := c.session
	return kcp.Connect(s.runtime, s.topology.WorkspaceServer(e.Shard), c.state, s.env.Now())
}

// endpoints returns the virtual workspaces of the APIExport with the published APIs, with their shards.
func (c *compute) endpoints(ctx context.Context) ([]agentstate.Endpoint, error) {
	slice, err := c.Object(ctx, c.placeOf(kcpapi.APIExportEndpointSlice, api.ExportWorkloads))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read APIExportEndpointSlice %s in %s: %w", api.ExportWorkloads, c.workspace, err)
	case slice == nil:
		return nil, clierr.New(clierr.NotReady, "rerun the command when the controller has published the APIs",
			"APIExportEndpointSlice %s in %s does not exist, so the objects of workspaces are unknown",
			api.ExportWorkloads, c.workspace)
	}
	all := agentstate.EndpointsOf(slice, c.session.topology)
	for _, e := range all {
		if e.Shard == nil {
			return nil, clierr.New(clierr.Failed, "add the shard to the setup file",
				"%s belongs to no shard of the setup, so the objects of its workspaces are unknown", e.URL)
		}
	}
	return all, nil
}

// paths returns the paths of the workspaces of logical clusters, by name. If a path does not exist, or cannot be
// read, the name is used. The group of kcpctl has all permissions in all workspaces (kcp:
// pkg/authorization/bootstrap/policy.go, SystemKcpAdminGroup).
func (c *compute) paths(ctx context.Context, clusters []string) map[string]string {
	paths := parallel.Map(parallel.Limit, clusters, func(name string) string {
		o, err := c.Object(ctx, plan.Ref{Workspace: name,
			GroupVersionKind: kcpapi.LogicalCluster.GroupVersionKind, Name: "cluster"})
		if err != nil || o == nil {
			return name
		}
		return cmp.Or(o.GetAnnotations()[kcpapi.AnnotationPath], name)
	})
	out := map[string]string{}
	for i, name := range clusters {
		out[name] = paths[i]
	}
	return out
}
