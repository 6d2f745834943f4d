package cmd

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/client/cluster"
	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/agentstate"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/workload/apis/negotiate"
	"github.com/kcpctl/kcpctl/internal/workload/apis/puller"
	"github.com/kcpctl/kcpctl/internal/workload/server/controller"
)

// negotiation compares the schemas of clusters with the published ones, and requests other ones from the controller.
type negotiation struct {
	*compute
	env   *Env
	flags *setupFlags
	// setup is its name.
	setup string
	// inFile are the names of the clusters in the setup file: kcpctl can read their schemas.
	inFile  []string
	timeout time.Duration
	// pull reads the APIs of a cluster of the setup file, once.
	pull func(ctx context.Context, cluster string, apis []schema.GroupResource) (negotiate.Cluster, error)
	// each calls do for every object of an API in all workspaces.
	each func(ctx context.Context, api schema.GroupResource, do func(*unstructured.Unstructured)) error
}

// negotiation returns a negotiation of the setup.
func (s *session) negotiation(c *compute, timeout time.Duration) *negotiation {
	pulled := map[string]negotiate.Cluster{}
	pull := func(ctx context.Context, name string, apis []schema.GroupResource) (own negotiate.Cluster, err error) {
		own, ok := pulled[name]
		if !ok {
			if own, err = s.pullAPIs(ctx, name, apis); err == nil {
				pulled[name] = own
			}
		}
		return own, err
	}
	return &negotiation{
		compute: c, env: s.env, flags: s.flags, setup: s.topology.Name, inFile: physicalNames(s),
		timeout: timeout, pull: pull,
		each: func(ctx context.Context, api schema.GroupResource, do func(*unstructured.Unstructured)) error {
			return s.eachObject(ctx, c, api, do)
		},
	}
}

// pullAPIs reads the APIs of a cluster with its kubeconfig in the setup file, as the controller does.
func (s *session) pullAPIs(ctx context.Context, name string, apis []schema.GroupResource) (negotiate.Cluster, error) {
	at := slices.IndexFunc(physicalClusters(s), func(c v1alpha1.WorkloadCluster) bool { return c.Name == name })
	c := physicalClusters(s)[at]
	from := topology.Cluster{Name: c.Name}
	from.Context, from.Kubeconfig = topology.ConnectionOf(s.topology.Setup.Spec.Clusters, c)
	client, err := s.physicalClient(from, c.Server)
	if err != nil {
		return negotiate.Cluster{}, err
	}
	ctx = cluster.Quiet(ctx)
	if err := client.Cluster().Connect(ctx); err != nil {
		return negotiate.Cluster{}, err
	}
	p, err := puller.New(client.Cluster().Config)
	if err != nil {
		return negotiate.Cluster{}, fmt.Errorf("cluster %q: %w", name, err)
	}
	result, err := p.Pull(ctx, apis)
	if err != nil {
		return negotiate.Cluster{}, clierr.New(clierr.Failed, "rerun the command when the cluster answers",
			"read the APIs of cluster %q: %w", name, err)
	}
	return controller.Served(name, result), nil
}

// eachObject calls do for every object of a published API, in the workspaces of all shards, through the virtual
// workspaces of the APIExport.
func (s *session) eachObject(ctx context.Context, c *compute, gr schema.GroupResource,
	do func(*unstructured.Unstructured)) error {
	endpoints, err := s.endpoints(ctx, c)
	if err != nil {
		return err
	}
	for _, e := range endpoints {
		client, err := kcp.Connect(s.runtime, s.topology.WorkspaceServer(e.Shard), c.state, s.env.Now())
		if err != nil {
			return err
		}
		err = client.EachExported(cluster.Quiet(ctx), e.URL.Path, gr,
			func(_ schema.GroupVersionResource, o *unstructured.Unstructured) { do(o) })
		client.Close()
		if err != nil {
			return clierr.New(clierr.Failed, "make the shard reachable, and rerun the command", "%s: %w",
				e.Shard.ID(), err)
		}
	}
	return nil
}

// endpoints returns the virtual workspaces of the APIExport with the published APIs, with their shards.
func (s *session) endpoints(ctx context.Context, c *compute) ([]agentstate.Endpoint, error) {
	slice, err := c.Object(ctx, c.placeOf(kcpapi.APIExportEndpointSlice, api.ExportWorkloads))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read APIExportEndpointSlice %s in %s: %w", api.ExportWorkloads, c.workspace, err)
	case slice == nil:
		return nil, clierr.New(clierr.NotReady, "rerun the command when the controller has published the APIs",
			"APIExportEndpointSlice %s in %s does not exist, so the objects of workspaces are unknown",
			api.ExportWorkloads, c.workspace)
	}
	all := agentstate.EndpointsOf(slice, s.topology)
	for _, e := range all {
		if e.Shard == nil {
			return nil, clierr.New(clierr.Failed, "add the shard to the setup file",
				"%s belongs to no shard of the setup, so the objects of its workspaces are unknown", e.URL)
		}
	}
	return all, nil
}

// placeOf names an object of one of kcp's APIs in the compute workspace.
func (c *compute) placeOf(a kcpapi.API, name string) kcp.Place {
	return kcp.Place{Workspace: c.workspace, GroupVersionKind: a.GroupVersionKind, Name: name}
}

// published reads the published APIs.
func (n *negotiation) published(ctx context.Context) (in negotiate.Input, _ error) {
	read := func(a kcpapi.API, name string) (*unstructured.Unstructured, error) {
		o, err := n.Object(ctx, n.placeOf(a, name))
		switch {
		case err != nil:
			return nil, clierr.New(clierr.Failed, "see "+n.flags.command("status"), "read %s %s in %s: %w", a.Kind,
				name, n.workspace, err)
		case o == nil:
			return nil, clierr.New(clierr.NotReady,
				"rerun the command when the controller has published the APIs, see "+n.flags.command("status"),
				"%s %s in %s does not exist", a.Kind, name, n.workspace)
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

// chosen returns the published APIs among those that the user names, or all of them.
func chosen(in negotiate.Input, named []schema.GroupResource) ([]schema.GroupResource, error) {
	all := negotiate.Exported(in.Export)
	for _, gr := range named {
		if !slices.Contains(all, gr) {
			var known []string
			for _, a := range all {
				known = append(known, a.String())
			}
			return nil, unknownName("published API", gr.String(), known)
		}
	}
	if len(named) > 0 {
		return named, nil
	}
	return all, nil
}

// schemaRequest is a request to the controller for other schemas.
type schemaRequest struct {
	// narrow is whether the schemas become narrower, for the cluster.
	narrow bool
	// cluster is the Cluster that gets the request.
	cluster string
	// before has the published APIs and schemas.
	before negotiate.Input
	// changes are for the APIs whose schema changes, and refused for the requested APIs whose schema cannot change.
	changes, refused []negotiate.Change
	// objects are how many objects have fields that a narrower schema does not accept, and workspaces how many
	// workspaces they are in.
	objects, workspaces int
}

func (r *schemaRequest) annotation() string {
	if r.narrow {
		return api.AnnotationAcceptSchema
	}
	return api.AnnotationWidenSchema
}

// nothing is why the schemas do not change.
func (r *schemaRequest) nothing() string {
	if r.narrow {
		return fmt.Sprintf("cluster %q accepts every object of the published schemas", r.cluster)
	}
	return "the published schemas have all fields that the clusters have in common"
}

// apis are the APIs whose schema changes, as RESOURCE.GROUP.
func (r *schemaRequest) apis() []string {
	var out []string
	for _, c := range r.changes {
		out = append(out, c.API.String())
	}
	return out
}

// sort computes the changes.
func (r *schemaRequest) sort(in negotiate.Input) error {
	all, err := negotiate.Preview(in)
	for _, c := range all {
		switch {
		case c.Refused != "":
			r.refused = append(r.refused, c)
		case len(c.Lost)+len(c.Gained) > 0:
			r.changes = append(r.changes, c)
		}
	}
	return err
}

// narrowing computes what a cluster needs so that it can serve the APIs.
func (n *negotiation) narrowing(ctx context.Context, in negotiate.Input, name string,
	named []schema.GroupResource) (*schemaRequest, error) {
	live, err := n.cluster(ctx, name)
	if err != nil {
		return nil, err
	}
	if live == nil {
		return nil, n.unknownCluster(ctx, n.flags, n.inFile, name)
	}
	if err := n.readable(live); err != nil {
		return nil, err
	}
	r := &schemaRequest{narrow: true, cluster: name, before: in}
	apis, err := chosen(in, named)
	if err != nil {
		return nil, err
	}
	own, err := n.pull(ctx, name, apis)
	if err != nil {
		return nil, err
	}
	if len(named) == 0 { // those that the cluster does not serve need no other schema
		apis = slices.DeleteFunc(slices.Clone(apis),
			func(gr schema.GroupResource) bool { return own.Problems[gr] != "" })
	}
	in.Clusters = []negotiate.Cluster{own}
	in.Narrow = map[string][]schema.GroupResource{name: apis}
	return r, r.sort(in)
}

// readable fails if kcpctl cannot read the schemas of a cluster.
func (n *negotiation) readable(cl *api.Cluster) error {
	if !slices.Contains(n.inFile, cl.Name) {
		return clierr.New(clierr.BadInput, "add it to the setup file",
			"cluster %q is not in %s, so kcpctl cannot read its schemas", cl.Name, n.flags.file)
	}
	return nil
}

// widening computes what all clusters have in common.
func (n *negotiation) widening(ctx context.Context, in negotiate.Input,
	named []schema.GroupResource) (_ *schemaRequest, err error) {
	r := &schemaRequest{before: in}
	if in.Widen, err = chosen(in, named); err != nil {
		return nil, err
	}
	all, err := n.clusters(ctx)
	if err != nil {
		return nil, err
	}
	// As the controller has them: if two have no common schema, the older one decides.
	slices.SortStableFunc(all,
		func(a, b *api.Cluster) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	for _, cl := range all {
		if err := n.readable(cl); err != nil {
			return nil, err
		}
		own, err := n.pull(ctx, cl.Name, in.Widen)
		if err != nil {
			return nil, err
		}
		in.Clusters, r.cluster = append(in.Clusters, own), cmp.Or(r.cluster, cl.Name)
	}
	return r, r.sort(in)
}

// preview returns what each cluster needs, and what all have in common that is not published. Of a cluster that cannot
// be read, it returns what the status has.
func (n *negotiation) preview(ctx context.Context, in negotiate.Input,
	named []schema.GroupResource) ([]schemaChange, error) {
	if _, err := chosen(in, named); err != nil {
		return nil, err
	}
	all, err := n.clusters(ctx)
	if err != nil {
		return nil, err
	}
	var out []schemaChange
	unknown := false
	for _, cl := range all {
		r, err := n.narrowing(ctx, in, cl.Name, named)
		if err == nil {
			out = append(out, r.items()...)
			continue
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		unknown = true
		if found := reported(cl, named); len(found) > 0 {
			n.env.note(fmt.Sprintf("cluster %q has at most three differences for each API here: %s", cl.Name,
				firstLine(err.Error())))
			out = append(out, found...)
		}
	}
	if unknown {
		n.env.note("what --widen publishes is unknown, because a cluster cannot be read")
		return out, nil
	}
	r, err := n.widening(ctx, in, named)
	if err != nil {
		return nil, err
	}
	r.refused = nil // the clusters that prevent it are listed
	return append(out, r.items()...), nil
}

// reported are the first differences of a cluster whose schemas kcpctl does not read, as its status has them.
func reported(cl *api.Cluster, named []schema.GroupResource) (out []schemaChange) {
	for _, a := range cl.Status.APIs {
		gr := a.GroupResource()
		if a.State != api.APIIncompatible || len(named) > 0 && !slices.Contains(named, gr) {
			continue
		}
		out = append(out, schemaChange{
			Group: a.Group, Resource: a.Resource, Version: a.Version, Cluster: cl.Name, Refused: true,
			Message: strings.TrimSpace(firstLine(a.Message)),
		})
	}
	return out
}
