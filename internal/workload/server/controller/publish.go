package controller

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/kit/mergepatch"
	"github.com/kcpctl/kcpctl/internal/workload/apis/negotiate"
	"github.com/kcpctl/kcpctl/internal/workload/apis/puller"
	"github.com/kcpctl/kcpctl/internal/workload/placement/roots"
)

// The resources of kcp that the controller writes.
var (
	schemas        = kcpapi.APIResourceSchema.GVR()
	exports        = kcpapi.APIExport.GVR()
	workspaceTypes = kcpapi.WorkspaceType.GVR()
)

// identityInterval is how often the controller requests the identity that kcp gives an APIExport.
const identityInterval = 500 * time.Millisecond

// publish negotiates the APIs of the clusters and writes the result, if anything has changed since the last time.
func (c *controller) publish(ctx context.Context, clusters []*api.Cluster) error {
	if len(clusters) == 0 {
		c.claims = map[string][]any{}
		return nil
	}
	version := c.version(clusters) // before the input: what is read in between is published by the next pass
	if version+exported(c.object(exports, "", api.ExportWorkloads)) == c.negotiated {
		return c.writeStates(ctx, clusters, c.states) // kcp may have been restored with others
	}
	in := c.input(clusters)
	if err := c.readPublished(ctx, &in); err != nil {
		return err
	}
	live, err := negotiate.Published(in.Export, in.Schemas)
	if err != nil {
		return err
	}
	if in.Export != nil || neverPublished(in, clusters) {
		c.setPublished(live)
	}
	out, err := negotiate.Negotiate(in)
	if err != nil {
		return err
	}
	for i, cl := range clusters {
		switch {
		case len(cl.Status.APIs) > 0 && !c.isTheOne(cl, clusters):
			delete(out.States, cl.Name) // what is scheduled to it is kept
		case cl.Mode() != api.SyncModePush:
			out.States[cl.Name] = c.statesOf(cl, out.States[cl.Name])
		case in.Clusters[i].Problems == nil: // it was not read yet, or not when the input was made
			delete(out.States, cl.Name)
		}
	}
	for _, s := range out.Schemas {
		klog.FromContext(ctx).Info("Publishing a schema", "schema", s.GetName())
		if _, err := c.client.Resource(schemas).Create(ctx, s, metav1.CreateOptions{FieldManager: api.ManagerController}); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create APIResourceSchema %s: %w", s.GetName(), err)
		}
	}
	if out.Export == nil { // no cluster could be read yet. Syncers report the APIs in the status.
		return c.writeStates(ctx, clusters, out.States)
	}
	for gr, found := range out.Refused {
		klog.FromContext(ctx).Info("The schema is not widened: it would become narrower", "resource", gr, "differences",
			fmt.Sprint(found))
	}
	// The policies come first, so that no object is without them.
	if err := c.protect(ctx, clusters, negotiate.Exported(out.Export)); err != nil {
		return err
	}
	if err := c.applyExport(ctx, in.Export, out.Export); err != nil {
		return err
	}
	for _, e := range out.ClusterExports {
		if err := c.apply(ctx, exports, e); err != nil {
			return err
		}
	}
	if len(out.ClusterExports) > 0 {
		c.claims = negotiate.ClaimsOf(out.ClusterExports)
	}
	c.setPublished(out.Published)
	if err := c.writeStates(ctx, clusters, out.States); err != nil {
		return err
	}
	if len(out.ClusterExports) == 0 {
		time.AfterFunc(c.every(identityInterval), c.poke) // kcp has not given the APIExport an identity yet
		return nil
	}
	if err := c.apply(ctx, workspaceTypes, c.workspaceType()); err != nil {
		return err
	}
	for _, name := range out.Obsolete {
		if err := c.client.Resource(schemas).Delete(ctx, name, metav1.DeleteOptions{}); err != nil &&
			!apierrors.IsNotFound(err) {
			return fmt.Errorf("delete APIResourceSchema %s: %w", name, err)
		}
	}
	if err := c.endRequests(ctx, clusters, out); err != nil {
		return err
	}
	c.negotiated, c.states = version+exported(out.Export), out.States
	debug.FreeOSMemory() // all schemas were decoded, which seldom happens
	return nil
}

// applyExport applies the APIExport, unless what it publishes has changed since it was read: a user may have withdrawn
// an API. kcp changes other fields, which does not matter. It may not have existed.
func (c *controller) applyExport(ctx context.Context, read, next *unstructured.Unstructured) error {
	before := exported(read)
	for {
		if read != nil {
			next.SetResourceVersion(read.GetResourceVersion())
		}
		err := c.apply(ctx, exports, next)
		if read == nil || !apierrors.IsConflict(err) {
			return err
		}
		var readErr error
		read, readErr = c.client.Resource(exports).Get(ctx, api.ExportWorkloads, metav1.GetOptions{})
		if readErr != nil || exported(read) != before {
			return errors.Join(err, readErr) // the change wakes the next pass
		}
	}
}

// endRequests removes the requests for other schemas that are fulfilled from the Clusters. A request that stayed would
// make a schema narrower again whenever a cluster changes.
func (c *controller) endRequests(ctx context.Context, clusters []*api.Cluster, out *negotiate.Output) error {
	for _, cl := range clusters {
		open := func(value string) bool { return !answered(out.States[cl.Name], value) }
		refused := func(api string) bool { return len(out.Refused[schema.ParseGroupResource(api)]) > 0 }
		done := map[string]any{}
		for annotation, pending := range map[string]func(string) bool{
			api.AnnotationAcceptSchema: open, api.AnnotationWidenSchema: refused} {
			if all := requested(cl, annotation); len(all) > 0 && !slices.ContainsFunc(all, pending) {
				done[annotation] = nil
			}
		}
		if len(done) == 0 {
			continue
		}
		_, err := mergepatch.Send(ctx, c.client.Resource(api.ClusterGVR()), api.ManagerController, cl.Name, cl.UID,
			map[string]any{"metadata": map[string]any{"annotations": done}})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("annotations of Cluster %s: %w", cl.Name, err)
		}
	}
	return nil
}

// answered reports whether a request to accept a schema needs no more: the cluster serves the API, it is no longer one
// of the setup, or its state has another value or none. What is accepted then is not what the user has seen.
func answered(states []api.APIStatus, value string) bool {
	name, _, _ := strings.Cut(value, ":")
	gr := schema.ParseGroupResource(name)
	return slices.ContainsFunc(states, func(a api.APIStatus) bool {
		return a.GroupResource() == gr && (a.State.Serves() || a.State == api.APIRemoved ||
			a.State == api.APIIncompatible && (a.Accept == nil || a.Accept.Value != value))
	})
}

// setPublished sets which APIs are published, and which of them the setup no longer has.
func (c *controller) setPublished(all []schema.GroupVersionResource) {
	next := &roots.Published{}
	for _, r := range all {
		if slices.Contains(c.APIs, r.GroupResource()) {
			next.Scheduled = append(next.Scheduled, r)
		} else {
			next.Removed = append(next.Removed, r)
		}
	}
	c.published = next
}

// neverPublished reports whether all records say that no API was ever published: there is no APIExport, none of the
// schemas that it had, and no cluster whose status has a published API. An APIExport that is missing alone does not
// mean that: objects of its APIs can run in clusters.
func neverPublished(in negotiate.Input, clusters []*api.Cluster) bool {
	published := func(a api.APIStatus) bool { return a.State != api.APIIgnored }
	return in.Export == nil && !slices.ContainsFunc(in.Schemas, negotiate.IsOwn) &&
		!slices.ContainsFunc(clusters, func(cl *api.Cluster) bool {
			return slices.ContainsFunc(cl.Status.APIs, published)
		})
}

// exported identifies what an APIExport publishes. Users can edit it, such as to withdraw an API.
func exported(export *unstructured.Unstructured) string {
	if export == nil {
		return ""
	}
	return fmt.Sprint(slices.Sorted(slices.Values(negotiate.SchemasOf(export))))
}

// version identifies what publish depends on, besides what is published.
func (c *controller) version(clusters []*api.Cluster) string {
	h := sha256.New()
	for _, cl := range clusters {
		hash := ""
		if result := c.result(cl.Name); result != nil {
			hash = result.Hash
		} else if r := c.reports[cl.Name]; r != nil {
			hash = r.hash()
		}
		fmt.Fprintf(h, "%s %s %t %s %q %q\n", cl.Name, cl.UID, c.isTheOne(cl, clusters), hash,
			cl.Annotations[api.AnnotationAcceptSchema], cl.Annotations[api.AnnotationWidenSchema])
	}
	return string(h.Sum(nil))
}

// result returns what a cluster in push mode serves, or nil if it could not be read.
func (c *controller) result(cluster string) *puller.Result {
	m := c.members[cluster]
	if m == nil {
		return nil
	}
	result, _, _ := m.state()
	return result
}

// requested returns the requests in an annotation of a Cluster.
func requested(cl *api.Cluster, annotation string) (out []string) {
	for _, value := range strings.Split(cl.Annotations[annotation], ",") {
		if value = strings.TrimSpace(value); value != "" {
			out = append(out, value)
		}
	}
	return out
}

// input returns what the clusters serve. Each has an APIExport, but those that are the same as another one, that are
// not the one that was added, or that could not be read, have no part in the schemas.
func (c *controller) input(clusters []*api.Cluster) negotiate.Input {
	in := negotiate.Input{APIs: c.APIs, Bound: c.roots.Bound(), Accepted: map[string][]string{}}
	for _, cl := range clusters {
		next := negotiate.Cluster{Name: cl.Name}
		if c.isTheOne(cl, clusters) {
			next = c.served(cl.Name)
		}
		in.Clusters = append(in.Clusters, next)
		in.Accepted[cl.Name] = requested(cl, api.AnnotationAcceptSchema)
		for _, name := range requested(cl, api.AnnotationWidenSchema) {
			in.Widen = append(in.Widen, schema.ParseGroupResource(name))
		}
	}
	return in
}

// served returns what a cluster serves, as far as it is known.
func (c *controller) served(cluster string) negotiate.Cluster {
	if result := c.result(cluster); result != nil {
		return Served(cluster, result)
	}
	if r := c.reports[cluster]; r != nil {
		return r.served(cluster)
	}
	return negotiate.Cluster{Name: cluster}
}

// readPublished reads what is published: the schemas of the APIExport, and of the others, which can be many, only the
// metadata.
func (c *controller) readPublished(ctx context.Context, in *negotiate.Input) error {
	export, err := c.client.Resource(exports).Get(ctx, api.ExportWorkloads, metav1.GetOptions{})
	switch {
	case err == nil:
		in.Export = export
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("read APIExport %s in workspace %s: %w", api.ExportWorkloads, c.Workspace, err)
	}
	list, err := c.metadata.Resource(schemas).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list APIResourceSchemas in workspace %s: %w", c.Workspace, err)
	}
	var used []string
	if in.Export != nil {
		used = negotiate.SchemasOf(in.Export)
	}
	for i := range list.Items {
		s := kcpapi.APIResourceSchema.New(list.Items[i].Name)
		s.SetLabels(list.Items[i].Labels)
		if slices.Contains(used, s.GetName()) {
			if s, err = c.client.Resource(schemas).Get(ctx, s.GetName(), metav1.GetOptions{}); err != nil {
				return fmt.Errorf("read APIResourceSchema %s in workspace %s: %w", list.Items[i].Name, c.Workspace, err)
			}
		}
		in.Schemas = append(in.Schemas, s)
	}
	return nil
}

func (c *controller) apply(ctx context.Context, r schema.GroupVersionResource, o *unstructured.Unstructured) error {
	_, err := c.write(ctx, r, o)
	return err
}

// write applies an object, and returns it as it is then.
func (c *controller) write(ctx context.Context, r schema.GroupVersionResource,
	o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	out, err := c.client.Resource(r).Apply(ctx, o.GetName(), o,
		metav1.ApplyOptions{FieldManager: api.ManagerController, Force: true})
	if err != nil {
		return nil, fmt.Errorf("apply %s %s in workspace %s: %w", o.GetKind(), o.GetName(), c.Workspace, err)
	}
	return out, nil
}

// writeStates writes which APIs the clusters can serve. A cluster that could not be read keeps the states that it has.
func (c *controller) writeStates(ctx context.Context, clusters []*api.Cluster,
	states map[string][]api.APIStatus) error {
	for _, cl := range clusters {
		all, ok := states[cl.Name]
		if !ok || reflect.DeepEqual(all, cl.Status.APIs) {
			continue
		}
		next := cl.Status
		next.APIs = all
		if err := c.patchStatus(ctx, cl, next); err != nil {
			return err
		}
	}
	return nil
}

// workspaceType returns the type whose workspaces can use the APIs. kcp binds the APIExport in all of them, also in
// those that exist, with all claims accepted (kcp: pkg/reconciler/tenancy/defaultapibindinglifecycle). The scheduler of
// roots binds the APIExports of the clusters.
func (c *controller) workspaceType() *unstructured.Unstructured {
	bindings := []any{map[string]any{"path": c.Workspace, "export": api.ExportWorkloads}}
	u := kcpapi.WorkspaceType.New(c.WorkspaceType)
	u.Object["spec"] = map[string]any{
		"extend": map[string]any{"with": []any{map[string]any{"name": "universal",
			"path": "root"}}},
		"defaultAPIBindings":         bindings,
		"defaultAPIBindingLifecycle": "Maintain",
	}
	return u
}

// statusPatch returns what changes a status to another one, or nil if they are equal. A merge patch of the whole would
// keep resources of the capacity that the cluster no longer has, and each look would write it again.
func statusPatch(from, to *api.ClusterStatus) (map[string]any, error) {
	was, err := runtime.DefaultUnstructuredConverter.ToUnstructured(from)
	if err != nil {
		return nil, err
	}
	is, err := runtime.DefaultUnstructuredConverter.ToUnstructured(to)
	if err != nil {
		return nil, err
	}
	changes := api.MergePatch(was, is)
	if len(changes) == 0 {
		return nil, nil
	}
	return map[string]any{"status": changes}, nil
}
