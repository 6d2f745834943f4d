package agents_test

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run/deploy"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil/fakekcp"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeruntime"
	"github.com/kcpctl/kcpctl/internal/testutil/runtest"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

const (
	// withAgents has agents that do not run: whether they publish is not asked.
	withAgents = runtest.Minimal + `spec:
  external: {hostname: kcp.example.com}
  agents:
  - name: widgets
    workspace: root:widgets
    paused: true
    publishedResources:
    - {name: widgets, spec: {resource: {apiGroup: example.com, kind: Widget}, naming: {name: "{{ .ClusterName }}"}, ` + inputs + `}}
    - {name: gadgets, spec: {resource: {apiGroup: example.com, kind: Gadget}, naming: {name: "{{ .ClusterName }}"}}}
  - name: others
    workspace: root:others
    paused: true
    publishedResources: [{name: others, spec: {resource: {apiGroup: example.com, kind: Gadget}, naming: {name: "{{ .ClusterName }}"}}}]
`
	// inputs are Secrets of workspaces that an agent copies to its cluster.
	inputs       = `related: [{identifier: input, origin: kcp, version: v1, resource: secrets, object: {template: {template: "x"}}, watch: {byOwner: {}}}]`
	agentWidgets = topology.ID("agent/widgets")
	// endpoint is the path of the APIExport on the root shard.
	endpoint = "/services/apiexport/abc/widgets"
	firstURL = endpoint + "/clusters/c1/apis/example.com/v1/namespaces/default/widgets/first"
)

// inAgents runs a test with agents that have published their resources, and have state of two kinds of objects.
// Workspace root:team-a has a Widget.
func inAgents(t *testing.T, test func(t *testing.T, w *world, widgets func(...string))) {
	inWorld(t, withAgents, func(t *testing.T, w *world) {
		w.Runtime.Kcp.ServeObjects()
		ready := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"phase": "Ready"}}}
		w.Runtime.Kcp.PutIn("root/workspaces/widgets", ready)
		w.Runtime.Kcp.PutIn("root/workspaces/others", ready)
		w.exports("root:widgets", "widgets", endpoint, "widgets")
		w.exports("root:others", "others", "")
		w.MustRun(t)
		w.Runtime.Edit("PublishedResource/widgets", func(o *unstructured.Unstructured) {
			o.Object["status"] = map[string]any{"resourceSchemaName": "v1234.widgets.example.com"}
		})
		for _, kind := range []string{"Widget", "Gadget", "Strange"} {
			made(w, "Secret", "obj-state-c1-"+strings.ToLower(kind), kind)
		}
		made(w, "Lease", "syncagent.demo-widgets", "")
		made(w, "Lease", "syncagent.demo-others", "")
		served := metav1.APIGroup{PreferredVersion: metav1.GroupVersionForDiscovery{Version: "v1"}}
		w.Runtime.Kcp.Always("GET "+endpoint+"/clusters/*/apis/example.com", fakekcp.Answer{Code: http.StatusOK, Body: served})
		w.Runtime.Kcp.Always("PATCH "+firstURL, fakekcp.Answer{Code: http.StatusOK, Body: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget"}})
		w.Runtime.Kcp.Always(fakekcp.ListClusters, list(map[string]any{"metadata": map[string]any{"name": "cluster", "annotations": map[string]any{
			"kcp.io/cluster": "c1", "kcp.io/path": "root:team-a",
		}}}))
		widgets := func(names ...string) { w.widgets(endpoint, names...) }
		widgets("first")
		w.secrets(endpoint)
		w.consumers("widgets")
		w.onShard("secrets")
		test(t, w, widgets)
	})
}

// widgets are the Widgets that an APIExport shows.
func (w *world) widgets(endpoint string, names ...string) {
	items := []any{}
	for _, name := range names {
		items = append(items, map[string]any{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{
			"name": name, "namespace": "default", "finalizers": []any{"syncagent.kcp.io/cleanup", "mine"},
			"annotations": map[string]any{"kcp.io/cluster": "c1"}, "labels": map[string]any{"name": name},
		}})
	}
	w.Runtime.Kcp.Always("GET "+endpoint+"/clusters/*/apis/example.com/v1/widgets", list(items...))
}

// exports adds an APIExport with resources of example.com, which the root shard serves at an endpoint.
func (w *world) exports(workspace, name, endpoint string, resources ...string) {
	endpoints, provided := []any{}, []any{}
	if endpoint != "" {
		endpoints = append(endpoints, map[string]any{"url": w.Topology.Root().VirtualWorkspaceURL + endpoint})
	}
	for _, r := range resources {
		provided = append(provided, map[string]any{"group": "example.com", "name": r, "schema": "v1234." + r + ".example.com"})
	}
	w.Runtime.Kcp.PutIn(workspace+"/apiexports/"+name, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport", "spec": map[string]any{"resources": provided},
		"metadata": map[string]any{"name": name, "annotations": map[string]any{"kcp.io/cluster": "of-" + name}},
	}})
	w.Runtime.Kcp.PutIn(workspace+"/apiexportendpointslices/"+name, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIExportEndpointSlice", "status": map[string]any{"endpoints": endpoints},
	}})
}

// secrets are the Secrets that an APIExport shows, as far as consumers have accepted its claim.
func (w *world) secrets(endpoint string, names ...string) {
	items := []any{}
	for _, name := range names {
		secret := map[string]any{"name": name, "namespace": "default", "annotations": map[string]any{"kcp.io/cluster": "c1"}}
		if name != "unused" {
			secret["finalizers"] = []any{"syncagent.kcp.io/cleanup"}
		}
		items = append(items, map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": secret})
	}
	w.Runtime.Kcp.Always("GET "+endpoint+"/clusters/*/api/v1/secrets", list(items...))
}

// consumers are the APIExports that the workspace root:team-a binds.
func (w *world) consumers(exports ...string) {
	items := []any{}
	for _, name := range exports {
		items = append(items, map[string]any{
			"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding",
			"metadata": map[string]any{"name": name, "annotations": map[string]any{"kcp.io/cluster": "c1"}},
			"spec":     map[string]any{"reference": map[string]any{"export": map[string]any{"name": name}}},
			"status":   map[string]any{"apiExportClusterName": "of-" + name},
		})
	}
	w.Runtime.Kcp.Always("list apibindings", list(items...))
}

// onShard are the objects of a core resource in all workspaces of the root shard. Those of root:team-a are named as in
// names, and another workspace has one that another agent has copied.
func (w *world) onShard(resource string, names ...string) {
	object := func(cluster, name string) any {
		return map[string]any{"apiVersion": "v1", "kind": "Any", "metadata": map[string]any{
			"name": name, "namespace": "default", "annotations": map[string]any{"kcp.io/cluster": cluster},
			"finalizers": []any{"syncagent.kcp.io/cleanup"},
		}}
	}
	items := []any{object("c2", "elsewhere")}
	for _, name := range names {
		items = append(items, object("c1", name))
	}
	w.Runtime.Kcp.Always("GET /clusters/*/api/v1/"+resource, list(items...))
}

func list(items ...any) fakekcp.Answer {
	return fakekcp.Answer{Code: http.StatusOK, Body: map[string]any{"apiVersion": "v1", "kind": "List", "items": items}}
}

// made adds an object that an agent has made, a Secret with the state of an object of a kind.
func made(w *world, kind, name, of string) {
	gvk := schema.GroupVersionKind{Version: "v1", Kind: kind}
	if kind == "Lease" {
		gvk.Group = "coordination.k8s.io"
	}
	state := base64.StdEncoding.EncodeToString([]byte(`{"apiVersion":"example.com/v1","kind":"` + of + `"}`))
	o := &unstructured.Unstructured{Object: map[string]any{"data": map[string]any{"hash": state}}}
	o.SetName(name)
	o.SetLabels(map[string]string{"syncagent.kcp.io/object-state": "true"})
	home := w.Topology.Home
	w.Runtime.Made = append(w.Runtime.Made, plan.Item{Ref: plan.Ref{Cluster: home.Name, Namespace: home.Namespace, GroupVersionKind: gvk, Name: name}, Live: o})
}

// left are the names of the objects that agents have made.
func left(w *world) []string {
	var out []string
	for _, it := range w.Runtime.Made {
		out = append(out, it.Name)
	}
	return out
}

// without is the setup without the agent widgets.
func (w *world) without(t *testing.T) {
	head, rest, _ := strings.Cut(withAgents, "  - name: widgets")
	_, others, _ := strings.Cut(rest, "  - name: others")
	w.File(t, head+"  - name: others"+others)
}

// What another agent publishes too may be its state.
var ofOthers = []string{"obj-state-c1-gadget", "obj-state-c1-strange", "syncagent.demo-others"}

func TestAgentIsRemovedWhenNothingUsesIt(t *testing.T) {
	inAgents(t, func(t *testing.T, w *world, widgets func(...string)) {
		w.without(t)
		_, err := w.Run(t)
		runtest.RequireError(t, err, clierr.Failed, "agent/widgets: workspaces have 1 of the objects that it synchronizes: "+
			"1 widgets.example.com in root:team-a; it does not run, so they would keep its finalizer; it was not removed")
		require.Contains(t, clierr.Hint(err), "--orphan agent/widgets")
		require.Empty(t, w.Runtime.Calls())

		widgets()
		boom := errors.New("boom")
		w.Runtime.On("Finish", func() error { return boom })
		_, err = w.Run(t)
		require.ErrorIs(t, err, boom)
		require.Equal(t, []string{
			"Lock", "Save", "Begin", "Delete agent/widgets", "Delete agent/widgets", "Delete agent/widgets", "Delete agent/widgets", "Unlock",
		}, w.Runtime.Calls(), "the APIBinding, the workload, its state, then what it publishes; its identity goes last, so that the same command goes on")
		require.Equal(t, ofOthers, left(w))
		w.Runtime.On("Finish", func() error { return nil })
		w.MustRun(t)
		require.Equal(t, []string{"Lock", "Save", "Begin", "Finish", "Unlock"}, w.Runtime.Calls())
		require.Equal(t, ofOthers, left(w))
	})
}

// The agent of another setup in the same namespace publishes Widgets too, and one elsewhere publishes Gadgets.
func TestStateOfOtherSetupsStays(t *testing.T) {
	for name, tc := range map[string]struct {
		labels map[string]string
		lease  string
		stays  bool
	}{
		"an agent of the namespace":         {map[string]string{topology.LabelAgent: "prod-widgets"}, "syncagent.prod-widgets", true},
		"an agent of another namespace":     {map[string]string{topology.LabelAgent: "prod-widgets"}, "", false},
		"an agent that kcpctl did not make": {nil, "syncagent.by-hand", true},
	} {
		t.Run(name, func(t *testing.T) {
			inAgents(t, func(t *testing.T, w *world, widgets func(...string)) {
				o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"resource": map[string]any{"apiGroup": "example.com", "kind": "Widget"}}}}
				o.SetName("theirs")
				o.SetLabels(tc.labels)
				w.Runtime.Made = append(w.Runtime.Made, plan.Item{Live: o, Ref: plan.Ref{Cluster: w.Topology.Home.Name, Name: "theirs", GroupVersionKind: schema.GroupVersionKind{
					Group: "syncagent.kcp.io", Version: "v1alpha1", Kind: "PublishedResource",
				}}})
				if tc.lease != "" {
					made(w, "Lease", tc.lease, "")
				}
				w.without(t)
				widgets()
				w.MustRun(t)
				require.Equal(t, tc.stays, slices.Contains(left(w), "obj-state-c1-widget"))
			})
		})
	}
}

func TestAgentIsRemovedAndItsObjectsStay(t *testing.T) {
	inAgents(t, func(t *testing.T, w *world, _ func(...string)) {
		w.Up.Options.Orphan = []topology.ID{agentWidgets}
		_, err := w.Run(t)
		runtest.RequireError(t, err, clierr.BadInput, "--orphan agent/widgets: nothing of it is removed; nothing was changed")

		w.without(t)
		w.MustRun(t)
		require.Equal(t, ofOthers, left(w))
		require.Len(t, w.Runtime.Kcp.Requests("PATCH "+firstURL), 1, "it loses the finalizer")
	})
}

// An agent leaves its finalizer on the Secrets to which its objects no longer refer.
func TestRelatedObjectsLoseTheFinalizerOfTheirAgent(t *testing.T) {
	inAgents(t, func(t *testing.T, w *world, widgets func(...string)) {
		const ofOthers = "/services/apiexport/def/others"
		others := strings.Replace(withAgents, `kind: Gadget}, naming: {name: "{{ .ClusterName }}"}}}]`, `kind: Gadget}, naming: {name: "{{ .ClusterName }}"}, `+inputs+`}}]`, 1)
		_, others, _ = strings.Cut(others, "  - name: others")
		head, _, _ := strings.Cut(withAgents, "  - name: widgets")
		top := topologytest.Build(t, head+"  - name: others"+others)
		w.Runtime.Use(top)
		w.Topology, w.Up.Topology = top, top
		slice := w.Runtime.Kcp.In("root:widgets/apiexportendpointslices/widgets")
		slice.Object["status"] = map[string]any{"endpoints": []any{map[string]any{"url": top.Root().VirtualWorkspaceURL + ofOthers}}}
		w.Runtime.Kcp.PutIn("root:others/apiexportendpointslices/others", slice)
		w.Runtime.Kcp.PutIn("root/workspaces/others", &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"phase": "Ready"}}})

		widgets()
		w.secrets(endpoint, "first", "unused", "shared")
		w.secrets(ofOthers, "shared")
		secret := "PATCH " + endpoint + "/clusters/c1/api/v1/namespaces/default/secrets/"
		w.Runtime.Kcp.Always(secret+"first", fakekcp.Answer{Code: http.StatusOK, Body: map[string]any{"apiVersion": "v1", "kind": "Secret"}})
		w.MustRun(t)
		require.Len(t, w.Runtime.Kcp.Requests(secret+"first"), 1)
		require.Empty(t, w.Runtime.Kcp.Requests(secret+"unused"))
		require.Empty(t, w.Runtime.Kcp.Requests(secret+"shared"), "another agent copies it too")
	})
}

func TestAgentOfUnknownUse(t *testing.T) {
	inAgents(t, func(t *testing.T, w *world, _ func(...string)) {
		w.Runtime.Kcp.Always("GET "+endpoint+"/clusters/*/apis/example.com", fakekcp.Answer{Code: http.StatusServiceUnavailable, Body: "x"})
		w.without(t)
		_, err := w.Run(t)
		runtest.RequireError(t, err, clierr.Failed, "agent/widgets: whether workspaces have objects of its APIs is not known: root-shard: "+
			"read the versions of example.com: HTTP status 503")
		w.Up.Options.Orphan = []topology.ID{agentWidgets}
		w.MustRun(t)
		require.Equal(t, ofOthers, left(w))
		require.Empty(t, w.Runtime.Kcp.Requests("PATCH "+firstURL))

		w.Up.Options.Orphan = nil
		w.MustRun(t)
		require.Contains(t, strings.Join(w.Of(""), "\n"), "agent/widgets: objects in workspaces keep the finalizer syncagent.kcp.io/cleanup")
		served := metav1.APIGroup{PreferredVersion: metav1.GroupVersionForDiscovery{Version: "v1"}}
		w.Runtime.Kcp.Always("GET "+endpoint+"/clusters/*/apis/example.com", fakekcp.Answer{Code: http.StatusOK, Body: served})
		w.MustRun(t)
		require.Len(t, w.Runtime.Kcp.Requests("PATCH "+firstURL), 1, "a later run does what was asked for")
		require.True(t, w.MustRun(t).Plan.Empty())
	})
}

// A server of virtual workspaces is ready before it knows its APIExports.
func TestAgentWhoseAPIsAreNotServedYet(t *testing.T) {
	notFound := fakekcp.Answer{Code: http.StatusNotFound, Body: "404 page not found"}
	inAgents(t, func(t *testing.T, w *world, _ func(...string)) {
		w.Runtime.Kcp.Script("GET "+endpoint+"/clusters/*/apis/example.com", notFound, notFound)
		w.without(t)
		_, err := w.Run(t)
		runtest.RequireError(t, err, clierr.Failed, "agent/widgets: workspaces have 1 of the objects that it synchronizes: "+
			"1 widgets.example.com in root:team-a; it does not run, so they would keep its finalizer; it was not removed")

		w.Runtime.Kcp.Always("GET "+endpoint+"/clusters/*/apis/example.com", notFound)
		_, err = w.Run(t)
		runtest.RequireError(t, err, clierr.Failed, "agent/widgets: whether workspaces have objects of its APIs is not known: root-shard: "+
			"not served after 20s: list widgets.example.com: the workspace does not serve this API")
		require.Empty(t, w.Runtime.Calls())

		w.exports("root:widgets", "widgets", endpoint)
		w.MustRun(t)
		require.Equal(t, ofOthers, left(w), "the APIExport no longer has the API")
	})
}

func TestOnePublishedResourceIsRemoved(t *testing.T) {
	inAgents(t, func(t *testing.T, w *world, widgets func(...string)) {
		at := strings.Index(withAgents, "    - {name: widgets")
		_, rest, _ := strings.Cut(withAgents[at:], "\n")
		top := topologytest.Build(t, withAgents[:at]+rest)
		w.Runtime.Use(top)
		w.Up.Topology = top
		_, err := w.Run(t)
		runtest.RequireError(t, err, clierr.Failed, "agent/widgets: workspaces have 1 of the objects that it synchronizes: "+
			"1 widgets.example.com in root:team-a; it was not removed")
		widgets()
		w.MustRun(t)
		require.Equal(t, []string{"obj-state-c1-gadget", "obj-state-c1-strange", "syncagent.demo-widgets", "syncagent.demo-others"}, left(w))
	})
}

func TestAgentKeepsItsName(t *testing.T) {
	inAgents(t, func(t *testing.T, w *world, _ func(...string)) {
		renamed := strings.Replace(withAgents, "- name: widgets\n", "- name: gizmos\n    apiExport: widgets\n", 1)
		w.File(t, renamed)
		_, err := w.Run(t)
		runtest.RequireError(t, err, clierr.Failed, "agent/widgets would become agent/gizmos, which publishes through the same APIExport widgets in root:widgets: "+
			"an agent finds the copies of objects by its name; nothing was changed")
		require.Empty(t, w.Runtime.Calls())

		require.Contains(t, clierr.Hint(err), "or remove the agent from the file, run kcpctl up --orphan agent/widgets, which keeps the objects on both sides, "+
			"add it with the new name, and change the label syncagent.kcp.io/agent-name of the copies from demo-widgets to demo-gizmos with kubectl label: "+
			"without it, the agent does not see their status")
		w.without(t)
		w.Up.Options.Orphan = []topology.ID{agentWidgets}
		w.MustRun(t)
		w.Up.Options.Orphan = nil
		w.File(t, renamed)
		w.MustRun(t)
	})
}

func TestDownOfAgents(t *testing.T) {
	for name, tc := range map[string]struct {
		down       deploy.Down
		err        string
		left       []string
		finalizers int
	}{
		"objects wait for the next up":     {deploy.Down{}, "", []string{"obj-state-c1-strange"}, 0},
		"a purge of objects that are used": {deploy.Down{Purge: true}, "agent/widgets: workspaces have 1 of", nil, 0},
		"and their copies stay":            {deploy.Down{Purge: true, Orphan: []topology.ID{agentWidgets}}, "", []string{"obj-state-c1-strange"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			inAgents(t, func(t *testing.T, w *world, _ func(...string)) {
				w.Runtime.Forget()
				d := tc.down
				d.Runtime, d.Topology, d.Observe, d.Now = w.Runtime, w.Topology, w.Observe(t), time.Now
				err := d.Run(t.Context())
				if tc.err != "" {
					require.ErrorContains(t, err, tc.err)
					require.Equal(t, []string{"Lock", "Unlock"}, w.Runtime.Calls())
					return
				}
				require.NoError(t, err)
				require.Equal(t, tc.left, left(w))
				require.Len(t, w.Runtime.Kcp.Requests("PATCH "+firstURL), tc.finalizers)
			})
		})
	}
}

// lost is a runtime with an agent whose cluster is gone: only its workload is known.
type lost struct{ *fakeruntime.Runtime }

func (l lost) Objects(ctx context.Context) ([]plan.Item, error) {
	all, err := l.Runtime.Objects(ctx)
	for i := range all {
		if it := &all[i]; it.Component == agentWidgets && it.Kind != "Deployment" {
			it.Live, it.Workspace = nil, "service-cluster/services"
		}
	}
	return all, err
}

func (l lost) Find(ctx context.Context, at plan.Ref, label string) ([]unstructured.Unstructured, error) {
	if at.Workspace == "service-cluster/services" {
		return nil, errors.New("connection refused")
	}
	return l.Runtime.Find(ctx, at, label)
}

func TestDownOfAnAgentWhoseClusterIsGone(t *testing.T) {
	inAgents(t, func(t *testing.T, w *world, _ func(...string)) {
		w.Runtime.Forget()
		d := deploy.Down{Runtime: lost{w.Runtime}, Topology: w.Topology, Observe: w.Observe(t), Now: time.Now, Purge: true}
		err := d.Run(t.Context())
		runtest.RequireError(t, err, clierr.Failed, "agent/widgets: whether workspaces have objects of its APIs is not known: connection refused")
		require.Contains(t, clierr.Hint(err), "--orphan agent/widgets")
		require.Equal(t, []string{"Lock", "Unlock"}, w.Runtime.Calls())

		d.Orphan = []topology.ID{agentWidgets}
		require.NoError(t, d.Run(t.Context()))
		require.Contains(t, w.Of("")[0], "agent/widgets: service-cluster/services cannot be reached: ")
		require.Contains(t, w.Runtime.Calls(), "Purge")
	})
}
