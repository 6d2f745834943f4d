package compute

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/engine/agentstate"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/workload/apis/negotiate"
)

// published reads the published APIs.
func (w *Workspace) published(ctx context.Context) (in negotiate.Input, _ error) {
	read := func(a kcpapi.API, name string) (*unstructured.Unstructured, error) {
		o, err := w.Object(ctx, w.ref(a, name))
		switch {
		case err != nil:
			return nil, clierr.New(clierr.Failed, "see kcpctl status",
				"read %s %s in %s: %w", a.Kind, name, w.Path, err)
		case o == nil:
			return nil, clierr.New(clierr.NotReady,
				"rerun the command when the controller has published the APIs, see kcpctl status",
				"%s %s in %s does not exist", a.Kind, name, w.Path)
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

// ref names an object of one of kcp's APIs in the compute workspace.
func (w *Workspace) ref(a kcpapi.API, name string) plan.Ref {
	return plan.Ref{Workspace: w.Path, GroupVersionKind: a.GroupVersionKind, Name: name}
}

// EachObject calls do for every object of a published API, in the workspaces of all shards, through the virtual
// workspaces of the APIExport.
func (w *Workspace) EachObject(
	ctx context.Context, gr schema.GroupResource, do func(*unstructured.Unstructured),
) error {
	endpoints, err := w.endpoints(ctx)
	if err != nil {
		return err
	}
	for _, e := range endpoints {
		client, err := w.connect(e)
		if err != nil {
			return err
		}
		err = client.EachExported(ctx, e.URL.Path, gr,
			func(_ schema.GroupVersionResource, o *unstructured.Unstructured) { do(o) })
		client.Close()
		if err != nil && !errors.Is(err, kcp.ErrNotServed) { // as an API that is no longer published
			return clierr.New(clierr.Failed, "make the shard reachable, and rerun the command", "%s: %w",
				e.Shard.ID(), err)
		}
	}
	return nil
}

// connect connects to the shard of an endpoint.
func (w *Workspace) connect(e agentstate.Endpoint) (*kcp.Client, error) {
	return kcp.Connect(w.Dialer, w.Topology.WorkspaceServer(e.Shard), w.State, w.Now())
}

// endpoints returns the virtual workspaces of the APIExport with the published APIs, with their shards.
func (w *Workspace) endpoints(ctx context.Context) ([]agentstate.Endpoint, error) {
	slice, err := w.Object(ctx, w.ref(kcpapi.APIExportEndpointSlice, api.ExportWorkloads))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read APIExportEndpointSlice %s in %s: %w", api.ExportWorkloads, w.Path, err)
	case slice == nil:
		return nil, clierr.New(clierr.NotReady, "rerun the command when the controller has published the APIs",
			"APIExportEndpointSlice %s in %s does not exist, so the objects of workspaces are unknown",
			api.ExportWorkloads, w.Path)
	}
	all := agentstate.EndpointsOf(slice, w.Topology)
	for _, e := range all {
		if e.Shard == nil {
			return nil, clierr.New(clierr.Failed, "add the shard to the setup file",
				"%s belongs to no shard of the setup, so the objects of its workspaces are unknown", e.URL)
		}
	}
	return all, nil
}
