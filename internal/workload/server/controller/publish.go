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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/kit/mergepatch"
	"github.com/kcpctl/kcpctl/internal/kit/refused"
	"github.com/kcpctl/kcpctl/internal/workload/apis/negotiate"
	"github.com/kcpctl/kcpctl/internal/workload/placement/roots"
	"github.com/kcpctl/kcpctl/internal/workload/sync/heartbeat"
)

// The resources of kcp that the controller writes.
var (
	schemas        = kcpapi.APIResourceSchema.GVR()
	exports        = kcpapi.APIExport.GVR()
	workspaceTypes = kcpapi.WorkspaceType.GVR()
)

type publisher struct {
	*workspace
	Options
	reports  *reports
	policies *policies
	// bound returns the names of the APIResourceSchemas that workspaces use.
	bound func() map[string]bool
	// claims are the permission claims of the APIExports of the clusters.
	claims map[string][]any
	// negotiated is the version of what was negotiated last, and states are its states of the clusters.
	negotiated string
	states     map[string][]api.APIStatus
	// published are the published APIs. Nil: they could not be read yet.
	published *roots.Published
	// refuses is whether kcp has refused a schema that was to be published, and denied why it refused the rest. Empty:
	// it did not.
	refuses bool
	denied  string
}

// publish negotiates the APIs of the clusters and writes the result, if anything has changed since the last time.
func (p *publisher) publish(ctx context.Context, ids identities) error {
	err := p.update(ctx, ids)
	p.deny(err)
	return err
}

func (p *publisher) update(ctx context.Context, ids identities) error {
	clusters := ids.clusters
	if len(clusters) == 0 {
		p.claims = map[string][]any{}
		return nil
	}
	version := p.version(ids) // before the input: what is read in between is published by the next pass
	if version+exported(p.object(exports, "", api.ExportWorkloads)) == p.negotiated {
		return p.writeStates(ctx, clusters, p.states) // kcp may have been restored with others
	}
	in := p.input(ids)
	if err := p.readPublished(ctx, &in); err != nil {
		return err
	}
	live, err := negotiate.Published(in.Export, in.Schemas)
	if err != nil {
		return err
	}
	if in.Export != nil || neverPublished(in, clusters) {
		p.setPublished(live)
	}
	out, err := p.negotiate(ctx, in)
	if err != nil {
		return err
	}
	p.keepStates(ids, out)
	done, err := p.write(ctx, ids, in.Export, out)
	if err != nil || !done {
		return err
	}
	if err := p.endRequests(ctx, clusters, out); err != nil {
		return err
	}
	p.negotiated, p.states = version+exported(out.Export), out.States
	debug.FreeOSMemory() // all schemas were decoded, which seldom happens
	return nil
}

// negotiate decides what is published, and creates the schemas for it. An API whose schema kcp refuses is kept as it
// is, and does not prevent the others.
func (p *publisher) negotiate(ctx context.Context, in negotiate.Input) (*negotiate.Output, error) {
	in.Refused = map[string]string{}
	for {
		out, err := negotiate.Negotiate(in)
		if err != nil {
			return nil, err
		}
		before := len(in.Refused)
		for _, s := range out.Schemas {
			klog.FromContext(ctx).Info("Publishing a schema", "schema", s.GetName())
			why, err := p.create(ctx, s)
			if err != nil {
				return nil, err
			}
			if why != "" {
				in.Refused[s.GetName()] = heartbeat.Cut(why)
			}
		}
		if len(in.Refused) == before { // each is refused once
			p.refuses = before > 0
			return out, nil
		}
	}
}

// keepStates lets clusters that could not be read keep the states that they have.
func (p *publisher) keepStates(ids identities, out *negotiate.Output) {
	for _, cl := range ids.clusters {
		if len(cl.Status.APIs) > 0 && !ids.isTheOne(cl) {
			delete(out.States, cl.Name) // what is scheduled to it is kept
		} else {
			out.States[cl.Name] = statesOf(cl, p.reports.record(cl.Name).Cluster, out.States[cl.Name])
		}
	}
}

// write writes what was negotiated. published is the APIExport as it was read. It returns false if the next pass has to
// negotiate again.
func (p *publisher) write(ctx context.Context, ids identities, published *unstructured.Unstructured,
	out *negotiate.Output) (done bool, _ error) {
	if out.Export == nil { // no cluster could be read yet. Syncers report the APIs in the status.
		return false, p.writeStates(ctx, ids.clusters, out.States)
	}
	if err := p.export(ctx, ids, published, out); err != nil {
		return false, err
	}
	if len(out.ClusterExports) == 0 {
		return false, nil // kcp has not given the APIExport an identity yet: the watch shows when it has
	}
	if _, err := p.apply(ctx, workspaceTypes, p.workspaceType()); err != nil {
		return false, err
	}
	for _, name := range out.Obsolete {
		if err := p.client.Resource(schemas).Delete(ctx, name, metav1.DeleteOptions{}); err != nil &&
			!apierrors.IsNotFound(err) {
			return false, fmt.Errorf("delete APIResourceSchema %s: %w", name, err)
		}
	}
	return true, nil
}

func (p *publisher) export(ctx context.Context, ids identities, published *unstructured.Unstructured,
	out *negotiate.Output) error {
	// The policies come first, so that no object is without them.
	if err := p.policies.protect(ctx, ids.clusters, negotiate.Exported(out.Export)); err != nil {
		return err
	}
	if err := p.applyExport(ctx, published, out.Export); err != nil {
		return err
	}
	for _, e := range out.ClusterExports {
		if _, err := p.apply(ctx, exports, e); err != nil {
			return err
		}
	}
	if len(out.ClusterExports) > 0 {
		p.claims = map[string][]any{}
	}
	for _, e := range out.ClusterExports {
		p.claims[e.GetName()], _, _ = unstructured.NestedSlice(e.Object, "spec", "permissionClaims")
	}
	p.setPublished(out.Published)
	return p.writeStates(ctx, ids.clusters, out.States)
}

// applyExport applies the APIExport, unless what it publishes has changed since it was read: a user may have withdrawn
// an API. kcp changes other fields, which does not matter. It may not have existed.
func (p *publisher) applyExport(ctx context.Context, read, next *unstructured.Unstructured) error {
	before := exported(read)
	for {
		if read != nil {
			next.SetResourceVersion(read.GetResourceVersion())
		}
		_, err := p.apply(ctx, exports, next)
		if read == nil || !apierrors.IsConflict(err) {
			return err
		}
		var readErr error
		read, readErr = p.client.Resource(exports).Get(ctx, api.ExportWorkloads, metav1.GetOptions{})
		if readErr != nil || exported(read) != before {
			return errors.Join(err, readErr) // the change wakes the next pass
		}
	}
}

// endRequests removes the requests for other schemas that are fulfilled from the Clusters. A request that stayed would
// make a schema narrower again whenever a cluster changes.
func (p *publisher) endRequests(ctx context.Context, clusters []*api.Cluster, out *negotiate.Output) error {
	for _, cl := range clusters {
		open := func(value string) bool { return !answered(out.States[cl.Name], value) }
		waits := func(api string) bool { return out.NotWidened[schema.ParseGroupResource(api)] != "" }
		done := map[string]any{}
		for annotation, pending := range map[string]func(string) bool{
			api.AnnotationAcceptSchema: open, api.AnnotationWidenSchema: waits,
		} {
			if all := requested(cl, annotation); len(all) > 0 && !slices.ContainsFunc(all, pending) {
				done[annotation] = nil
			}
		}
		if len(done) == 0 {
			continue
		}
		_, err := mergepatch.Send(ctx, p.client.Resource(api.ClusterGVR()), api.ManagerController, cl.Name, cl.UID,
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
func (p *publisher) setPublished(all []schema.GroupVersionResource) {
	next := &roots.Published{}
	for _, r := range all {
		if slices.Contains(p.APIs, r.GroupResource()) {
			next.Scheduled = append(next.Scheduled, r)
		} else {
			next.Removed = append(next.Removed, r)
		}
	}
	p.published = next
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
	return fmt.Sprint(slices.Sorted(slices.Values(negotiate.SchemasOf(export))))
}

// version identifies what publish depends on, besides what is published.
func (p *publisher) version(ids identities) string {
	h := sha256.New()
	for _, cl := range ids.clusters {
		is := p.reports.record(cl.Name)
		fmt.Fprintf(h, "%s %s %t %s %q %q\n", cl.Name, cl.UID, ids.isTheOne(cl), is.hash,
			cl.Annotations[api.AnnotationAcceptSchema], cl.Annotations[api.AnnotationWidenSchema])
	}
	if p.refuses {
		fmt.Fprintln(h, p.Now().Truncate(p.every(refused.Interval))) // it is sent again
	}
	return string(h.Sum(nil))
}

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
func (p *publisher) input(ids identities) negotiate.Input {
	in := negotiate.Input{APIs: p.APIs, Bound: p.bound(), Accepted: map[string][]string{},
		Unread: map[schema.GroupResource][]string{}}
	for _, cl := range ids.clusters {
		next := negotiate.Cluster{Name: cl.Name}
		if ids.isTheOne(cl) {
			next = p.reports.record(cl.Name).Cluster
		}
		in.Clusters = append(in.Clusters, next)
		in.Accepted[cl.Name] = requested(cl, api.AnnotationAcceptSchema)
		for _, name := range requested(cl, api.AnnotationWidenSchema) {
			gr := schema.ParseGroupResource(name)
			in.Widen = append(in.Widen, gr)
			in.Unread[gr] = p.unread(ids, gr)
		}
	}
	return in
}

// unread returns the clusters of which it is not known whether they serve an API. One that is the same physical cluster
// as another one does not count.
func (p *publisher) unread(ids identities, gr schema.GroupResource) (names []string) {
	for _, cl := range ids.clusters {
		known := p.reports.record(cl.Name)
		if ids.sameAs(cl) == "" && (!known.Knows(gr) || ids.replaced(cl) != "") {
			names = append(names, cl.Name)
		}
	}
	return names
}

// readPublished reads what is published: the schemas of the APIExport, and of the others, which can be many, only the
// metadata.
func (p *publisher) readPublished(ctx context.Context, in *negotiate.Input) error {
	export, err := p.client.Resource(exports).Get(ctx, api.ExportWorkloads, metav1.GetOptions{})
	switch {
	case err == nil:
		in.Export = export
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("read APIExport %s in workspace %s: %w", api.ExportWorkloads, p.path, err)
	}
	list, err := p.metadata.Resource(schemas).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list APIResourceSchemas in workspace %s: %w", p.path, err)
	}
	used := negotiate.SchemasOf(in.Export)
	for i := range list.Items {
		s := kcpapi.APIResourceSchema.New(list.Items[i].Name)
		s.SetLabels(list.Items[i].Labels)
		if slices.Contains(used, s.GetName()) {
			if s, err = p.client.Resource(schemas).Get(ctx, s.GetName(), metav1.GetOptions{}); err != nil {
				return fmt.Errorf("read APIResourceSchema %s in workspace %s: %w", list.Items[i].Name, p.path, err)
			}
		}
		in.Schemas = append(in.Schemas, s)
	}
	return nil
}

// writeStates writes which APIs the clusters can serve. A cluster that could not be read keeps the states that it has.
func (p *publisher) writeStates(ctx context.Context, clusters []*api.Cluster,
	states map[string][]api.APIStatus) error {
	for _, cl := range clusters {
		all, ok := states[cl.Name]
		if !ok || reflect.DeepEqual(all, cl.Status.APIs) {
			continue
		}
		next := cl.Status
		next.APIs = all
		if err := p.patchStatus(ctx, cl, next); err != nil {
			return err
		}
	}
	return nil
}

// workspaceType returns the type whose workspaces can use the APIs. kcp binds the APIExport in all of them, also in
// those that exist, with all claims accepted (kcp: pkg/reconciler/tenancy/defaultapibindinglifecycle). The scheduler of
// roots binds the APIExports of the clusters.
func (p *publisher) workspaceType() *unstructured.Unstructured {
	bindings := []any{map[string]any{"path": p.path, "export": api.ExportWorkloads}}
	u := kcpapi.WorkspaceType.New(p.WorkspaceType)
	u.Object["spec"] = map[string]any{
		"extend": map[string]any{"with": []any{map[string]any{"name": "universal",
			"path": "root"}}},
		"defaultAPIBindings":         bindings,
		"defaultAPIBindingLifecycle": "Maintain",
	}
	return u
}
