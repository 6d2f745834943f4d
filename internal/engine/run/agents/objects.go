package agents

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/agent"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/agentstate"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
	"github.com/kcpctl/kcpctl/internal/kit/poll"
)

// askTime is how long kcp may take to list the objects of the APIs of an agent. releaseTime is how long it may take to
// list and change the objects that lose its finalizer: no user waits for an answer then. serveTime is how long a server
// may take to serve an API of an APIExport.
const (
	askTime     = 30 * time.Second
	serveTime   = 20 * time.Second
	releaseTime = 10 * time.Minute
	// releaseTries is how often objects are listed if they change before they lose the finalizer.
	releaseTries = 3
)

// usedObject is an object of an API of an agent, and where it is.
type usedObject struct {
	kcp.Exported
	// workspace is the path of its workspace, or else the name of its logical cluster.
	workspace string
	// server and path are where it is served. shard is its shard.
	server, shard *topology.Component
	path          string
}

// held reports whether the object waits for an agent before it is deleted.
func (u *usedObject) held() bool { return slices.Contains(u.Finalizers, agent.Finalizer) }

// exportsOf returns the APIExports of an agent that earlier runs have applied, first the one of the last finished run.
func exportsOf(known *record.Record, id topology.ID) []record.Agent {
	var out []record.Agent
	if was, ok := known.Agents[id]; ok {
		out = append(out, was)
	}
	for _, p := range known.Placed {
		if p.Component != id || p.Ref().GroupKind() != kcpapi.APIExport.GroupKind() {
			continue
		}
		if e := (record.Agent{Workspace: p.Workspace, APIExport: p.Name}); !slices.ContainsFunc(out, e.Publishes) {
			out = append(out, e)
		}
	}
	return out
}

// exports returns the APIExports through which objects depend on what is withdrawn. published means that the agent has
// published something: if not, there is none.
func (x *Withdrawer) exports(w *Withdrawal, published bool) ([]record.Agent, error) {
	_, recorded := x.Known.Agents[w.Agent]
	if !published && !(recorded && w.all()) && len(w.bindings) == 0 {
		return nil, nil
	}
	all := exportsOf(x.Known, w.Agent)
	switch {
	case len(all) == 0:
		return nil, errors.New("the record of the installation does not have its APIExport")
	case recorded && !w.whole:
		return all[:1], nil
	}
	return all, nil
}

// objects returns the objects that depend on what is withdrawn, on all shards.
func (x *Withdrawer) objects(ctx context.Context, w *Withdrawal) ([]usedObject, error) {
	own, err := x.resources(ctx, w)
	if err != nil {
		return nil, err
	}
	out, err := x.objectsOf(ctx, w, own, askTime)
	if err != nil {
		return nil, err
	}
	excluded, err := x.excluded(ctx, w, askTime)
	if err != nil {
		return nil, err
	}
	uncopied, err := x.heldByConsumers(ctx, w, w.uncopied, askTime)
	return slices.Concat(out, excluded, uncopied), err
}

// objectsOf returns the objects of some resources, which what is withdrawn publishes. If all goes, these are also the
// objects of everything else that the APIExports provide and that have the finalizer.
func (x *Withdrawer) objectsOf(ctx context.Context, w *Withdrawal, own []schema.GroupResource,
	limit time.Duration) ([]usedObject, error) {
	exports, err := x.exports(w, len(own) > 0)
	if err != nil {
		return nil, err
	}
	var out []usedObject
	for i, e := range exports {
		found, err := x.exported(ctx, e, own, w.all(), limit)
		if err != nil {
			return nil, err
		}
		_, recorded := x.Known.Agents[w.Agent]
		for _, u := range found {
			if u.held() || slices.Contains(own, u.GroupResource()) && (i == 0 || !recorded) {
				out = append(out, u)
			}
		}
	}
	return out, nil
}

// exported returns the objects of some resources that an APIExport provides or claims, on all shards: with all, also of
// all resources that it provides.
func (x *Withdrawer) exported(ctx context.Context, e record.Agent, resources []schema.GroupResource, all bool,
	limit time.Duration) ([]usedObject, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer after %s", limit))
	defer cancel()
	out, err := x.ask(ctx, e, resources, all)
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return out, err
}

func (x *Withdrawer) ask(ctx context.Context, e record.Agent, resources []schema.GroupResource,
	all bool) ([]usedObject, error) {
	if len(resources) == 0 && !all {
		return nil, nil
	}
	proxy, err := run.ConnectFrontProxy(x.Runtime, x.Topology, x.Left, x.State, x.Now())
	if err != nil {
		return nil, err
	}
	defer proxy.Close()
	export, err := readOf(ctx, proxy, e, kcpapi.APIExport.GroupVersionKind)
	if err != nil {
		return nil, err
	}
	if all {
		resources = union(resources, agentstate.Resources(export))
	}
	slice, err := readOf(ctx, proxy, e, kcpapi.APIExportEndpointSlice.GroupVersionKind)
	if err != nil {
		return nil, err
	}
	var out []usedObject
	for _, at := range agentstate.EndpointsOf(slice, x.Topology) {
		found, err := x.onShard(ctx, at, export, resources)
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	return out, nil
}

// readOf reads the APIExport of an agent, or the APIExportEndpointSlice of the same name. It fails if it does not
// exist, because then it is not known who uses it.
func readOf(ctx context.Context, proxy *kcp.Client, e record.Agent,
	k schema.GroupVersionKind) (*unstructured.Unstructured, error) {
	o, err := proxy.Object(ctx, plan.Ref{Workspace: e.Workspace, GroupVersionKind: k, Name: e.APIExport})
	switch {
	case err != nil:
		return nil, fmt.Errorf("read %s %s in %s: %w", k.Kind, e.APIExport, e.Workspace, err)
	case o == nil:
		return nil, fmt.Errorf("%s %s in %s does not exist", k.Kind, e.APIExport, e.Workspace)
	}
	return o, nil
}

// union returns the resources of both lists, each once.
func union(a, b []schema.GroupResource) []schema.GroupResource {
	out := slices.Clone(a)
	for _, r := range b {
		if !slices.Contains(out, r) {
			out = append(out, r)
		}
	}
	return out
}

// onShard returns the objects of resources on the shard with an endpoint of an APIExport.
func (x *Withdrawer) onShard(ctx context.Context, at agentstate.Endpoint, export *unstructured.Unstructured,
	resources []schema.GroupResource) ([]usedObject, error) {
	if at.Shard == nil {
		return nil, fmt.Errorf("no shard of the setup serves %s", at.URL)
	}
	server := x.Topology.WorkspaceServer(at.Shard)
	client, err := kcp.Connect(x.Runtime, server, x.State, x.Now())
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var out []usedObject
	for _, r := range resources {
		found, err := exportedAt(ctx, client, at.URL.Path, export, r)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", server.ID(), err)
		}
		for _, e := range found {
			out = append(out, usedObject{Exported: e, workspace: e.Cluster, server: server, shard: at.Shard,
				path: at.URL.Path})
		}
	}
	if len(out) == 0 {
		return nil, nil
	}
	return out, x.name(ctx, at.Shard, out)
}

// exportedAt returns the objects of a resource at an endpoint of an APIExport. A resource that the APIExport neither
// provides nor claims is not served. It waits until the others are: a server that has just started is ready before it
// knows its APIExports, and does not show their objects until then.
func exportedAt(ctx context.Context, client *kcp.Client, path string, export *unstructured.Unstructured,
	r schema.GroupResource) (found []kcp.Exported, err error) {
	has := slices.Contains(agentstate.Resources(export), r) ||
		slices.ContainsFunc(kcp.Asked(export), func(c kcp.Claim) bool { return c.GroupResource == r })
	limited, cancel := context.WithTimeoutCause(ctx, serveTime, fmt.Errorf("not served after %s", serveTime))
	defer cancel()
	for {
		found, err = client.Exported(ctx, path, r)
		if !errors.Is(err, kcp.ErrNotServed) {
			return found, err
		}
		if !has {
			return nil, nil
		}
		if late := poll.Pause(limited, time.Second); late != nil {
			return nil, fmt.Errorf("%w: %w", late, err)
		}
	}
}

// name replaces the names of logical clusters by the paths of their workspaces.
func (x *Withdrawer) name(ctx context.Context, shard *topology.Component, all []usedObject) error {
	client, err := kcp.Connect(x.Runtime, shard, x.State, x.Now())
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

// resources returns the resources in kcp that are withdrawn: not those that the agent still publishes from the same
// kind from now on. It fails if the cluster of the agent does not answer.
func (x *Withdrawer) resources(ctx context.Context, w *Withdrawal) ([]schema.GroupResource, error) {
	stays := map[record.Published]bool{}
	if c := x.Topology.Component(w.Agent); c != nil && !w.whole {
		for _, p := range Recorded(c).Published {
			stays[p.API()] = true
		}
	}
	var out []schema.GroupResource
	for _, p := range w.dropped {
		out = union(out, []schema.GroupResource{schema.ParseGroupResource(p.Resource)})
	}
	for _, it := range w.gone() {
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
		r, ok := publishedAs(it.Live)
		for _, k := range agent.Kinds(publishing(it.Live)) {
			if k.Projected = r; ok && !stays[publishedOf(k).API()] {
				out = union(out, []schema.GroupResource{r})
			}
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
func (x *Withdrawer) related(ctx context.Context, w *Withdrawal, published bool) ([]usedObject, error) {
	resources := union(agent.RelatedOfConsumers(publishing(liveOf(w.gone())...)),
		relatedIn(x.Known.Agents[w.Agent]))
	if !w.all() {
		return x.heldByConsumers(ctx, w, resources, releaseTime)
	}
	if len(resources) == 0 {
		return nil, nil
	}
	exports, err := x.exports(w, published)
	if err != nil {
		return nil, err
	}
	out, err := x.heldIn(ctx, exports, resources)
	if err != nil || len(out) == 0 {
		return nil, err
	}
	for _, c := range x.Topology.OfKind(topology.Agent) {
		shared := shared(c, resources)
		if c.ID() == w.Agent || len(shared) == 0 {
			continue
		}
		others, err := x.heldIn(ctx, x.exportsWith(c), shared)
		if err != nil {
			return nil, err
		}
		out = without(out, others)
	}
	return out, nil
}

// shared returns which of some resources an agent copies from workspaces as related resources.
func shared(c *topology.Component, resources []schema.GroupResource) []schema.GroupResource {
	return slices.DeleteFunc(agent.RelatedOfConsumers(&c.Agent.Agent),
		func(r schema.GroupResource) bool { return !slices.Contains(resources, r) })
}

// exportsWith returns the APIExports of an agent, with the one in the setup file.
func (x *Withdrawer) exportsWith(c *topology.Component) []record.Agent {
	exports := exportsOf(x.Known, c.ID())
	if now := Recorded(c); !slices.ContainsFunc(exports, now.Publishes) {
		exports = append(exports, now)
	}
	return exports
}

// without returns the objects that are not among others.
func without(all, others []usedObject) []usedObject {
	return slices.DeleteFunc(all, func(u usedObject) bool {
		return slices.ContainsFunc(others,
			func(o usedObject) bool { return o.String() == u.String() && o.Cluster == u.Cluster })
	})
}

// heldIn returns the objects of some resources that have the finalizer, in several APIExports.
func (x *Withdrawer) heldIn(ctx context.Context, exports []record.Agent,
	resources []schema.GroupResource) ([]usedObject, error) {
	var out []usedObject
	for _, e := range exports {
		found, err := x.exported(ctx, e, resources, false, releaseTime)
		if err != nil {
			return nil, err
		}
		out = append(out, slices.DeleteFunc(found, func(u usedObject) bool { return !u.held() })...)
	}
	return out, nil
}

// liveOf returns the live objects of items.
func liveOf(items []plan.Item) []*unstructured.Unstructured {
	var out []*unstructured.Unstructured
	for _, it := range items {
		if it.Live != nil {
			out = append(out, it.Live)
		}
	}
	return out
}

// publishing is an agent with PublishedResources as they are in a cluster.
func publishing(all ...*unstructured.Unstructured) *v1alpha1.Agent {
	out := &v1alpha1.Agent{}
	for _, o := range all {
		spec, _, _ := unstructured.NestedMap(o.Object, "spec")
		out.PublishedResources = append(out.PublishedResources,
			v1alpha1.PublishedResource{Name: o.GetName(), Spec: spec})
	}
	return out
}

// release removes the finalizer of the agent from the objects in kcp that have it, because the agent no longer does. If
// there are objects of its APIs, the user has asked for it. While kcp does not answer, the objects keep it: then only
// an agent that is orphaned is removed, and the next run tries again.
func (x *Withdrawer) release(ctx context.Context, w *Withdrawal) error {
	released := 0
	var err error
	for range releaseTries {
		var used []usedObject
		if used, err = x.toRelease(ctx, w); err == nil {
			var n int
			n, err = x.removeFinalizers(ctx, used)
			released += n
		}
		if !apierrors.IsConflict(err) { // of an object that has changed since
			break
		}
	}
	if released > 0 {
		x.Note(fmt.Sprintf("%s: %s in workspaces no longer have a finalizer of it; their copies stay", w.Agent,
			gather.Count(released, "object", "objects")))
	}
	switch {
	case err == nil || ctx.Err() != nil:
		return err
	case w.orphan && w.whole:
		x.Note(fmt.Sprintf("%s: objects in workspaces keep the finalizer %s: %s", w.Agent, agent.Finalizer,
			run.FirstLine(err)))
		x.Unreleased = append(x.Unreleased, w.Agent)
		return nil
	}
	return clierr.New(clierr.Failed, "run the command again: it continues",
		"%s: objects in workspaces may still have the finalizer %s: %w", w.Agent, agent.Finalizer, err)
}

// toRelease returns the objects that lose the finalizer, without the resources that the agent still publishes.
func (x *Withdrawer) toRelease(ctx context.Context, w *Withdrawal) ([]usedObject, error) {
	own, err := x.resources(ctx, w)
	if err != nil && !(w.orphan && w.whole) { // the APIExport has the resources, too
		return nil, err
	}
	out, err := x.related(ctx, w, len(own) > 0)
	if err != nil || !w.orphan {
		return out, err
	}
	used, err := x.objectsOf(ctx, w, own, releaseTime)
	if err != nil {
		return nil, err
	}
	var stay []schema.GroupResource
	if c := x.Topology.Component(w.Agent); c != nil && !w.all() {
		for _, k := range agent.Kinds(&c.Agent.Agent) {
			stay = append(stay, k.Projected)
		}
	}
	for _, u := range used {
		if u.held() && !slices.Contains(stay, u.GroupResource()) {
			out = append(out, u)
		}
	}
	excluded, err := x.excluded(ctx, w, releaseTime)
	return append(out, excluded...), err
}

// removeFinalizers removes the finalizer from objects, and returns from how many.
func (x *Withdrawer) removeFinalizers(ctx context.Context, used []usedObject) (n int, err error) {
	for _, u := range used {
		client, err := kcp.Connect(x.Runtime, u.server, x.State, x.Now())
		if err == nil {
			err = client.ReleaseExported(ctx, u.path, u.Exported, agent.Finalizer)
			client.Close()
		}
		if err != nil {
			return n, fmt.Errorf("%s: %w", u.workspace, err)
		}
		n++
	}
	return n, nil
}
