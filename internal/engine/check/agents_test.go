package check_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/client/ready"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/engine/check"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/engine/run/deploy"
	"github.com/kcpctl/kcpctl/internal/testutil/fakekcp"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeruntime"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

const (
	withAgent = `  external: {hostname: kcp.example.com}
  agents:
  - name: widgets
    workspace: root:widgets
    paused: true
    publishedResources: [{name: widgets, spec: {resource: {apiGroup: example.com, kind: Widget, versions: [v1]}, naming: {name: "{{ .ClusterName }}"},
      related: [{identifier: input, origin: kcp, version: v1, resource: secrets, object: {template: {template: "x"}}, watch: {byOwner: {}}}]}}]
`
	schemaOfWidgets = "v1234.widgets.example.com"
	exportPath      = "/services/apiexport/abc/widgets"
	watchedPath     = exportPath + "/clusters/*/apis/apis.kcp.io/v1alpha1/apibindings"
	widgetsPath     = exportPath + "/clusters/*/apis/example.com"
)

func in(apiVersion, kind string, fields map[string]any) *unstructured.Unstructured {
	fields["apiVersion"], fields["kind"] = apiVersion, kind
	return &unstructured.Unstructured{Object: fields}
}

// putExport stores the APIExport of the agent, and the APIBinding of its consumer, which accepts some claims.
func (w *world) putExport(accepted ...any) {
	w.rt.Kcp.PutIn("root:widgets/apiexports/widgets", in("apis.kcp.io/v1alpha2", "APIExport", map[string]any{"spec": map[string]any{
		"resources":        []any{map[string]any{"group": "example.com", "name": "widgets", "schema": schemaOfWidgets}},
		"permissionClaims": []any{asked("events"), asked("secrets"), asked("namespaces")},
	}}))
	w.rt.Kcp.PutIn("root:widgets/apibindings/widgets", in("apis.kcp.io/v1alpha2", "APIBinding", map[string]any{
		"spec": map[string]any{"permissionClaims": accepted},
		"status": map[string]any{"phase": "Bound", "boundResources": []any{
			map[string]any{"schema": map[string]any{"name": schemaOfWidgets}},
		}},
	}))
}

func claim(resource string) any {
	return map[string]any{"resource": resource, "verbs": []any{"*"}, "state": "Accepted"}
}

func asked(resource string) any { return map[string]any{"resource": resource, "verbs": []any{"*"}} }

// widgets scripts the Widgets of all workspaces.
func (w *world) widgets(all ...any) {
	w.rt.Kcp.Always("GET "+widgetsPath+"/v1/widgets", items(all...))
}

// secrets scripts the Secrets of all workspaces that the agent may read.
func (w *world) secrets(all ...any) {
	w.rt.Kcp.Always("GET "+exportPath+"/clusters/*/api/v1/secrets", items(all...))
}

func (w *world) lease(renewed time.Time) {
	lease := in("coordination.k8s.io/v1", "Lease", map[string]any{"spec": map[string]any{
		"holderIdentity": "pod-1", "renewTime": renewed.UTC().Format(time.RFC3339Nano),
	}})
	lease.SetName("syncagent.demo-widgets")
	home := w.top.Home
	w.rt.Made = []plan.Item{{Ref: plan.Ref{
		Cluster: home.Name, Namespace: home.Namespace, Name: lease.GetName(), GroupVersionKind: lease.GroupVersionKind(),
	}, Live: lease}}
}

// inAgentWorld runs a test on a setup with an agent that is well.
func inAgentWorld(t *testing.T, test func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) {
		top := newTopology(t, withAgent)
		rt := fakeruntime.New(t, top)
		w := &world{top: top, rt: rt, net: &network{}, now: time.Now()}
		w.leads("front-proxy/main")
		rt.Kcp.ServeObjects()
		rt.Kcp.PutIn("root/workspaces/widgets", in("tenancy.kcp.io/v1alpha1", "Workspace", map[string]any{"status": map[string]any{"phase": "Ready"}}))
		_, err := (&deploy.Up{Topology: top, Runtime: rt, Observe: func(run.Event) {}, Now: time.Now, Network: w.net}).Run(t.Context())
		require.NoError(t, err)
		rt.Edit("PublishedResource/widgets", func(o *unstructured.Unstructured) {
			o.Object["status"] = map[string]any{"resourceSchemaName": schemaOfWidgets}
		})
		rt.Kcp.PutIn("root:widgets/apiexportendpointslices/widgets", in("apis.kcp.io/v1alpha1", "APIExportEndpointSlice", map[string]any{
			"status": map[string]any{"endpoints": []any{map[string]any{"url": top.Root().VirtualWorkspaceURL + exportPath}}},
		}))
		w.putExport(claim("events"), claim("secrets"), claim("namespaces"))
		w.lease(w.now)
		w.widgets()
		w.secrets()
		rt.Kcp.Always("GET "+watchedPath, items())
		rt.Kcp.Always("GET "+widgetsPath, fakekcp.Answer{Code: http.StatusOK, Body: map[string]any{"preferredVersion": map[string]any{"version": "v1"}}})
		w.top = newTopology(t, strings.Replace(withAgent, "paused: true", "paused: false", 1))
		test(t, w)
	})
}

// checkAgents returns the results of the checks of agents that have not passed, as "KCP141 fail: cause".
func (w *world) checkAgents(t *testing.T) []string {
	s := &check.Subject{Topology: w.top, Runtime: w.rt, Network: w.net, Now: func() time.Time { return w.now }}
	defer s.Close()
	require.NoError(t, s.Prepare(t.Context()))
	var all []check.Check
	for _, c := range check.Health {
		if c.Category == "Agents that run" {
			all = append(all, c)
		}
	}
	require.Len(t, all, 5)
	var out []string
	for _, r := range check.Run(t.Context(), s, all).Results {
		if r.Status != check.OK {
			out = append(out, r.ID+" "+string(r.Status)+": "+r.Cause)
		}
	}
	return out
}

func TestAgentsThatRun(t *testing.T) {
	stuck := func(w *world, age time.Duration) any {
		return map[string]any{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{
			"name": "first", "namespace": "default", "annotations": map[string]any{"kcp.io/cluster": "c1"},
			"finalizers": []any{"syncagent.kcp.io/cleanup"}, "deletionTimestamp": w.now.Add(-age).UTC().Format(time.RFC3339),
		}}
	}
	for name, tc := range map[string]struct {
		spoil func(w *world)
		want  []string
	}{
		"well": {func(*world) {}, nil},
		"a lease that is not renewed": {
			func(w *world) { w.lease(w.now.Add(-time.Minute)) },
			[]string{"KCP141 fail: agent/widgets: pod-1 holds Lease syncagent.demo-widgets, but has not renewed it for 1m0s"},
		},
		"no lease": {func(w *world) { w.rt.Made = nil }, []string{"KCP141 fail: agent/widgets: starting, has no Lease syncagent.demo-widgets yet"}},
		"not published": {
			func(w *world) {
				w.rt.Edit("PublishedResource/widgets", func(o *unstructured.Unstructured) { delete(o.Object, "status") })
			},
			[]string{
				"KCP142 fail: agent/widgets: PublishedResource widgets: the agent has made no APIResourceSchema yet",
				"KCP143 skipped: agent/widgets has not published everything",
			},
		},
		"another agent publishes too": {
			func(w *world) {
				go func() {
					time.Sleep(time.Second) // both write their names in turn
					export := w.rt.Kcp.In("root:widgets/apiexports/widgets")
					export.SetAnnotations(map[string]string{"syncagent.kcp.io/agent-name": "other"})
					w.rt.Kcp.PutIn("root:widgets/apiexports/widgets", export)
				}()
			},
			[]string{"KCP142 fail: agent/widgets: APIExport widgets in root:widgets is also published by the agent other"},
		},
		"a claim is not accepted": {
			func(w *world) { w.putExport(claim("events"), claim("namespaces")) },
			[]string{"KCP143 fail: agent/widgets: APIBinding widgets in root:widgets does not accept the claims of secrets"},
		},
		"claims that do not follow from the setup": {
			func(w *world) {
				w.putExport(claim("events"), claim("secrets"), claim("namespaces"), claim("configmaps"))
				export := w.rt.Kcp.In("root:widgets/apiexports/widgets")
				all, _, _ := unstructured.NestedSlice(export.Object, "spec", "permissionClaims")
				all = append(all, map[string]any{"group": "rbac.authorization.k8s.io", "resource": "clusterroles", "verbs": []any{"*"}})
				_ = unstructured.SetNestedSlice(export.Object, all, "spec", "permissionClaims")
				export.Object["metadata"].(map[string]any)["managedFields"] = []any{map[string]any{
					"manager": "kubectl-patch", "fieldsType": "FieldsV1", "fieldsV1": map[string]any{"f:spec": map[string]any{"f:permissionClaims": map[string]any{
						`k:{"group":"rbac.authorization.k8s.io","resource":"clusterroles"}`: map[string]any{},
					}}},
				}}
				w.rt.Kcp.PutIn("root:widgets/apiexports/widgets", export)
			},
			[]string{"KCP143 fail: agent/widgets: APIExport widgets in root:widgets claims what does not follow from the setup: " +
				"clusterroles.rbac.authorization.k8s.io (*), written by kubectl-patch\n" +
				"agent/widgets: APIBinding widgets in root:widgets accepts what does not follow from the setup: configmaps (*)"},
		},
		"a shard refuses the agent": {
			func(w *world) {
				w.rt.Kcp.Always("GET "+watchedPath, fakekcp.Answer{Code: http.StatusForbidden, Body: "no\n"})
			},
			[]string{"KCP144 fail: agent/widgets: root-shard: https://demo-root.kcp.svc.cluster.local:6443" + exportPath + " answers the agent with HTTP status 403: no"},
		},
		"a shard that the agent does not watch": {
			func(w *world) {
				w.rt.Log("agent/widgets", fmt.Sprintf(
					`{"level":"error","msg":"failed to watch endpoint","url":"%s","error":"no route to host"}`+"\n", w.top.Root().VirtualWorkspaceURL+exportPath))
			},
			[]string{"KCP144 fail: agent/widgets does not watch root-shard (no route to host)"},
		},
		"an object that was just deleted": {func(w *world) { w.widgets(stuck(w, time.Minute)) }, nil},
		"an object that stays": {
			func(w *world) { w.widgets(stuck(w, time.Hour)) },
			[]string{"KCP145 fail: agent/widgets: root-shard: deleted more than 5m0s ago, with the finalizer syncagent.kcp.io/cleanup: " +
				"widgets.example.com default/first in logical cluster c1"},
		},
		"a related object that stays": {
			func(w *world) { w.secrets(stuck(w, time.Hour)) },
			[]string{"KCP145 fail: agent/widgets: root-shard: deleted more than 5m0s ago, with the finalizer syncagent.kcp.io/cleanup: " +
				"secrets default/first in logical cluster c1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			inAgentWorld(t, func(t *testing.T, w *world) {
				tc.spoil(w)
				require.Equal(t, tc.want, w.checkAgents(t))
				for _, r := range w.rt.Kcp.Requests("GET " + watchedPath) {
					require.Equal(t, "kcpctl:agent:demo:widgets", r.User)
				}
			})
		})
	}
}

// An agent serves neither /readyz nor a certificate.
func TestAgentsAreNoServers(t *testing.T) {
	inAgentWorld(t, func(t *testing.T, w *world) {
		w.rt.Kcp.Always("GET /health", fakekcp.Answer{Code: http.StatusOK, Body: "{}"})
		s := &check.Subject{Topology: w.top, Runtime: w.rt, Network: w.net, Now: func() time.Time { return w.now }}
		defer s.Close()
		require.NoError(t, s.Prepare(t.Context()))
		for _, id := range []string{"KCP102", "KCP111"} {
			c, _ := check.Find(id)
			r := check.Run(t.Context(), s, []check.Check{c}).Results[0]
			require.Equal(t, check.OK, r.Status, r.Cause)
		}
	})
}

func TestKindsOfAgentsExist(t *testing.T) {
	widget := schema.GroupKind{Group: "example.com", Kind: "Widget"}
	for name, tc := range map[string]struct {
		kinds map[schema.GroupKind][]string
		want  string
	}{
		"served":          {map[schema.GroupKind][]string{widget: {"v2", "v1"}}, ""},
		"another version": {map[schema.GroupKind][]string{widget: {"v2"}}, "agent/widgets: PublishedResource widgets: the API server serves Widget.example.com in v2, and not in v1"},
		"missing":         {map[schema.GroupKind][]string{}, "agent/widgets: PublishedResource widgets: Widget.example.com is not served"},
	} {
		t.Run(name, func(t *testing.T) {
			top := newTopology(t, withAgent)
			rt := fakeruntime.New(t, top)
			rt.Place.Clusters = []check.Cluster{&fakeruntime.Cluster{Kinds: tc.kinds, Label: top.Home.Name}}
			found, ok := check.Find("KCP042")
			require.True(t, ok)
			r := check.Run(t.Context(), &check.Subject{Topology: top, Runtime: rt, Now: time.Now}, []check.Check{found}).Results[0]
			require.Equal(t, tc.want, r.Cause)
			require.Equal(t, tc.want == "", r.Status == check.OK)
		})
	}
}

// The objects of agents without a namespace are the subject of a check of their own.
func TestPermissionsForAgents(t *testing.T) {
	for name, tc := range map[string]struct {
		spec string
		want check.Status
		asks []string
	}{
		"an agent":  {withAgent, check.Fail, []string{"ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition", "PublishedResource"}},
		"no agents": {"  external: {hostname: kcp.example.com}\n", check.Skipped, nil},
	} {
		t.Run(name, func(t *testing.T) {
			top := newTopology(t, tc.spec)
			desired, err := deploy.LoadDesired(t.Context(), top, nil, deploy.DesiredOptions{Now: time.Now()})
			require.NoError(t, err)
			objects, err := desired.Objects()
			require.NoError(t, err)
			var asks []string
			rt := fakeruntime.New(t, top)
			rt.Place.Clusters = []check.Cluster{&fakeruntime.Cluster{
				Label: top.Home.Name,
				Permissions: func(objects []render.Object) error {
					for _, o := range objects {
						if o.GetNamespace() == "" && o.GetKind() != "Namespace" {
							return fmt.Errorf("%s", o.Ref())
						}
					}
					return nil
				},
				ClusterScoped: func(objects []render.Object) error {
					for _, o := range objects {
						asks = append(asks, o.GetKind())
					}
					return errors.New("not allowed")
				},
			}}
			var all []check.Check
			for _, id := range []string{"KCP002", "KCP045"} {
				c, ok := check.Find(id)
				require.True(t, ok)
				all = append(all, c)
			}
			r := check.Run(t.Context(), &check.Subject{Topology: top, Runtime: rt, Objects: objects, Now: time.Now}, all)
			require.Equal(t, check.OK, r.Results[0].Status, r.Results[0].Cause)
			require.Equal(t, tc.want, r.Results[1].Status, r.Results[1].Cause)
			slices.Sort(asks)
			require.Equal(t, tc.asks, asks)
		})
	}
}

// An agent or a syncer on another cluster cannot use the names of Services.
func TestVirtualWorkspacesHaveAddressesForTenants(t *testing.T) {
	for name, tc := range map[string]struct {
		url, cluster string
		status       check.Status
	}{
		"an address":          {"https://beta.example.com:6443", "services", check.OK},
		"a Service":           {"https://demo-shard-beta.kcp.svc.cluster.local:6443", "services", check.Fail},
		"a short name":        {"https://demo-shard-beta.kcp:6443", "services", check.Fail},
		"another Service":     {"https://gateway.ingress.svc:6443", "services", check.Fail},
		"this machine":        {"https://127.0.0.1:6443", "services", check.Fail},
		"on the same cluster": {"https://demo-shard-beta.kcp.svc.cluster.local:6443", "home", check.Skipped},
	} {
		t.Run(name, func(t *testing.T) {
			top := newTopology(t, `  external: {hostname: kcp.example.com}
  clusters: [{name: home, context: a}, {name: services, context: b}]
  rootShard: {cluster: home, virtualWorkspaceURL: "https://root.example.com:6443"}
  shards: [{name: beta, cluster: home, virtualWorkspaceURL: "`+tc.url+`"}]
  agents:
  - name: widgets
    cluster: `+tc.cluster+`
    workspace: root:widgets
    publishedResources: [{name: widgets, spec: {resource: {apiGroup: example.com, kind: Widget, versions: [v1]}, naming: {name: "{{ .ClusterName }}"}}}]
  workloads:
    cluster: home
    clusters: [{name: c1, context: c}, {name: c2, cluster: `+tc.cluster+`, syncMode: Pull}]
`)
			for id, client := range map[string]string{"KCP043": "agent/widgets", "KCP052": "cluster/c2"} {
				found, ok := check.Find(id)
				require.True(t, ok)
				r := check.Run(t.Context(), &check.Subject{Topology: top, Runtime: fakeruntime.New(t, top), Now: time.Now}, []check.Check{found}).Results[0]
				require.Equal(t, tc.status, r.Status, r.Cause)
				if tc.status == check.Fail {
					require.Equal(t, client+" on cluster services dials shard/beta at "+tc.url+", which only leads there within cluster home", r.Cause)
				}
				local := topologytest.LocalOf(top.Setup)
				r = check.Run(t.Context(), &check.Subject{Topology: local, Runtime: fakeruntime.New(t, local), Now: time.Now}, []check.Check{found}).Results[0]
				require.Equal(t, "all components run on this machine", r.Cause)
			}
		})
	}
}

func TestAPIExportsOfAgentsBelongToTheSetup(t *testing.T) {
	export := func(w *world, label, agent string) {
		o := in("apis.kcp.io/v1alpha2", "APIExport", map[string]any{})
		if label != "" {
			o.SetLabels(map[string]string{"kcpctl.dev/installation": label})
		}
		o.SetAnnotations(map[string]string{"syncagent.kcp.io/agent-name": agent})
		w.rt.Kcp.PutIn("root:widgets/apiexports/widgets", o)
	}
	for name, tc := range map[string]struct {
		spoil  func(w *world)
		status check.Status
		says   string
	}{
		"its own":          {func(w *world) { export(w, w.rt.PKI().Installation.ID, "demo-widgets") }, check.OK, ""},
		"not published":    {func(w *world) { export(w, w.rt.PKI().Installation.ID, "") }, check.OK, ""},
		"missing":          {func(w *world) { w.rt.Kcp.PutIn("root:widgets/apiexports/widgets", nil) }, check.OK, ""},
		"of a user":        {func(w *world) { export(w, "", "") }, check.Fail, "agent/widgets: APIExport widgets in root:widgets was not created by kcpctl"},
		"of another setup": {func(w *world) { export(w, "prod-x7k2", "demo-widgets") }, check.Fail, "agent/widgets: APIExport widgets in root:widgets belongs to the installation prod-x7k2"},
		"of another agent": {func(w *world) { export(w, w.rt.PKI().Installation.ID, "other") }, check.Fail, "agent/widgets: APIExport widgets in root:widgets is also published by the agent other"},
		"of an agent that was removed": {func(w *world) {
			export(w, w.rt.PKI().Installation.ID, "demo-earlier")
			w.rt.States("agent/widgets", ready.State{Reason: "not found"}) // up is to create it
		}, check.Warn, "agent/widgets: APIExport widgets in root:widgets has the name of the agent demo-earlier: make sure that it no longer runs"},
		"kcp refuses": {func(w *world) {
			w.rt.Kcp.Always("get apiexports", fakekcp.Refuse(http.StatusInternalServerError, "InternalError", "boom"))
		}, check.Skipped, "agent/widgets: read APIExport widgets in root:widgets: boom"},
		"kcp does not run": {func(w *world) { w.rt.States("front-proxy/main", ready.State{Reason: "CrashLoopBackOff"}) }, check.Skipped, "no front-proxy is ready"},
	} {
		t.Run(name, func(t *testing.T) {
			inAgentWorld(t, func(t *testing.T, w *world) {
				tc.spoil(w)
				found, ok := check.Find("KCP044")
				require.True(t, ok)
				s := &check.Subject{Topology: w.top, Runtime: w.rt, Now: time.Now}
				defer s.Close()
				r := check.Run(t.Context(), s, []check.Check{found}).Results[0]
				require.Equal(t, tc.status, r.Status, r.Cause)
				require.Equal(t, tc.says, r.Cause)
			})
		})
	}
}
