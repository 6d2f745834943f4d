package check_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/engine/check"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/engine/run/deploy"
	"github.com/kcpctl/kcpctl/internal/testutil/fakekcp"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeruntime"
	"github.com/kcpctl/kcpctl/internal/workload/apis/guard"
)

const (
	withWorkloads = `  external: {hostname: kcp.example.com}
  workloads: {apis: [deployments.apps], clusters: [{name: c1}]}
`
	inComputePath = "/clusters/root:compute/apis/"
	kubernetes    = "/services/apiexport/abc/kubernetes"
	deployments   = kubernetes + "/clusters/*/apis/apps/v1/deployments"
	configMaps    = kubernetes + "/clusters/*/api/v1/configmaps"
	bindings      = kubernetes + "/clusters/*/apis/apis.kcp.io/v1alpha2/apibindings"
)

// workloadCluster is the Cluster with a name, and the states of its APIs.
func workloadCluster(name string, states ...any) any {
	return in("workloads.kcp.dev/v1alpha1", "Cluster", map[string]any{
		"metadata": map[string]any{"name": name}, "spec": map[string]any{}, "status": map[string]any{"apis": append([]any{}, states...)},
	}).Object
}

func apiState(state, message string) any {
	return map[string]any{"group": "apps", "resource": "deployments", "version": "v1", "state": state, "message": message}
}

// boundTo is an APIBinding in the logical cluster team.
func boundTo(export, applied string) any {
	return in("apis.kcp.io/v1alpha2", "APIBinding", map[string]any{
		"metadata": map[string]any{"name": export, "annotations": map[string]any{"kcp.io/cluster": "team"}},
		"spec":     map[string]any{"reference": map[string]any{"export": map[string]any{"path": "root:compute", "name": export}}},
		"status":   map[string]any{"conditions": []any{map[string]any{"type": "PermissionClaimsApplied", "status": applied}}},
	}).Object
}

// deployed is a Deployment that was created a time ago: a root, or the leaf of another one.
func (w *world) deployed(age time.Duration, name, leafOf, cluster string) map[string]any {
	metadata := map[string]any{
		"name": name, "namespace": "default", "creationTimestamp": w.now.Add(-age).UTC().Format(time.RFC3339),
		"annotations": map[string]any{"kcp.io/cluster": "team"},
	}
	if leafOf != "" {
		metadata["labels"] = map[string]any{api.LabelCluster: cluster}
		metadata["annotations"].(map[string]any)[api.AnnotationName] = leafOf
		metadata["ownerReferences"] = []any{map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": leafOf, "uid": "1"}}
	}
	return map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": map[string]any{"replicas": int64(1)}}
}

func scheduledFalse(d map[string]any) map[string]any {
	d["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Scheduled", "status": "False", "reason": "NoCluster", "message": "no cluster is ready"}}}
	return d
}

// account stores the rights of the syncer in the physical cluster.
func (w *world) account(t *testing.T, apis ...schema.GroupResource) {
	t.Helper()
	home := w.top.Home
	w.rt.Made = nil
	for _, o := range []any{
		&rbacv1.ClusterRole{Rules: api.SyncerRules(apis)}, &rbacv1.ClusterRoleBinding{},
	} {
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		require.NoError(t, err)
		u := &unstructured.Unstructured{Object: fields}
		kind := map[bool]string{true: "ClusterRole", false: "ClusterRoleBinding"}[fields["rules"] != nil]
		u.SetGroupVersionKind(rbacv1.SchemeGroupVersion.WithKind(kind))
		u.SetName("kcpctl:syncer:demo:c1")
		w.rt.Made = append(w.rt.Made, plan.Item{Ref: plan.Ref{Cluster: home.Name, GroupVersionKind: u.GroupVersionKind(), Name: u.GetName()}, Live: u})
	}
}

// inWorkloadsWorld runs a test on a setup with a physical cluster that is well.
func inWorkloadsWorld(t *testing.T, test func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) {
		top := newTopology(t, withWorkloads)
		rt := fakeruntime.New(t, top)
		w := &world{top: top, rt: rt, net: &network{}, now: time.Now()}
		w.leads("front-proxy/main")
		k := rt.Kcp
		k.ServeObjects()
		k.PutIn("root/workspaces/compute", in("tenancy.kcp.io/v1alpha1", "Workspace", map[string]any{"status": map[string]any{"phase": "Ready"}}))
		_, err := (&deploy.Up{Topology: top, Runtime: rt, Observe: func(run.Event) {}, Now: time.Now, Network: w.net}).Run(t.Context())
		require.NoError(t, err)

		exported := schema.GroupResource{Group: "apps", Resource: "deployments"}
		k.PutIn("root:compute/apiexports/kubernetes", in("apis.kcp.io/v1alpha2", "APIExport", map[string]any{"spec": map[string]any{
			"resources": []any{map[string]any{"group": "apps", "name": "deployments", "schema": "v1.deployments.apps"}},
		}}))
		k.PutIn("root:compute/apiexportendpointslices/kubernetes", in("apis.kcp.io/v1alpha1", "APIExportEndpointSlice", map[string]any{
			"status": map[string]any{"endpoints": []any{map[string]any{"url": top.Root().VirtualWorkspaceURL + kubernetes}}},
		}))
		serve := func(path string, resources ...any) {
			k.Always("GET "+path, fakekcp.Answer{Code: http.StatusOK, Body: map[string]any{"kind": "APIResourceList", "resources": append([]any{}, resources...)}})
		}
		serve(inComputePath+"workloads.kcp.dev/v1alpha1", map[string]any{"name": "clusters", "kind": "Cluster"})
		serve(inComputePath+"admissionregistration.k8s.io/v1",
			map[string]any{"name": "validatingadmissionpolicies", "kind": "ValidatingAdmissionPolicy"},
			map[string]any{"name": "validatingadmissionpolicybindings", "kind": "ValidatingAdmissionPolicyBinding"})
		for _, o := range append(guard.Objects([]schema.GroupResource{exported}), w.placement(w.controller(), "c1")...) {
			_ = unstructured.SetNestedField(o.Object, "Equivalent", "spec", "matchConstraints", "matchPolicy") // a default
			k.PutIn("root:compute/"+guard.Resource(o).Resource+"/"+o.GetName(), o)
		}
		version := func(path, v string) {
			k.Always("GET "+path, fakekcp.Answer{Code: http.StatusOK, Body: map[string]any{"preferredVersion": map[string]any{"version": v}}})
		}
		version(kubernetes+"/clusters/*/apis/apps", "v1")
		version(kubernetes+"/clusters/*/apis/apis.kcp.io", "v1alpha2")
		k.Always("GET "+inComputePath+"workloads.kcp.dev/v1alpha1/clusters", items(workloadCluster("c1", apiState("Published", ""))))
		k.Always("GET "+deployments, items(w.deployed(time.Hour, "web", "", ""), w.deployed(time.Hour, "web--c1", "web", "c1")))
		for _, dependency := range []string{"configmaps", "secrets", "serviceaccounts"} {
			k.Always("GET "+strings.Replace(configMaps, "configmaps", dependency, 1), items())
		}
		k.Always("GET "+bindings, items(boundTo("kubernetes", "True"), boundTo("cluster-c1", "True")))
		k.Always("GET /health", fakekcp.Answer{Code: http.StatusOK, Body: "{}"})
		w.account(t, exported)
		test(t, w)
	})
}

// placementPolicy is where the policy of who may name a cluster is.
const placementPolicy = "root:compute/validatingadmissionpolicies/" + guard.PolicyPlacement

// placement is this policy, and its binding.
func (w *world) placement(controller guard.User, open ...string) []*unstructured.Unstructured {
	exported := []schema.GroupResource{{Group: "apps", Resource: "deployments"}}
	return append(guard.Placement(exported, open, controller), guard.Members(exported, controller)...)
}

// controller is the user of the controller.
func (w *world) controller() guard.User { return guard.User{Name: "kcpctl:controller:" + w.top.Name} }

// checkWorkloads returns the results of the checks of workloads, and of servers, that have not passed, as "KCP151 fail:
// cause".
func (w *world) checkWorkloads(t *testing.T) []string {
	s := &check.Subject{Topology: w.top, Runtime: w.rt, Network: w.net, Now: func() time.Time { return w.now }}
	defer s.Close()
	require.NoError(t, s.Prepare(t.Context()))
	var all []check.Check
	for _, c := range check.Health {
		if c.Category == "Workloads" || c.ID == "KCP102" || c.ID == "KCP111" { // the controller has no TLS
			all = append(all, c)
		}
	}
	require.Len(t, all, 8)
	var out []string
	for _, r := range check.Run(t.Context(), s, all).Results {
		if r.Status != check.OK {
			out = append(out, r.ID+" "+string(r.Status)+": "+r.Cause)
		}
	}
	return out
}

func TestWorkloadsThatRun(t *testing.T) {
	const at = " of the logical cluster team"
	clusters := "GET " + inComputePath + "workloads.kcp.dev/v1alpha1/clusters"
	for name, tc := range map[string]struct {
		spoil func(t *testing.T, w *world)
		want  []string
	}{
		"well": {func(*testing.T, *world) {}, nil},
		"nothing is published": {
			func(_ *testing.T, w *world) { w.rt.Kcp.PutIn("root:compute/apiexports/kubernetes", nil) },
			[]string{
				"KCP151 skipped: no API is published", "KCP153 skipped: no API is published", "KCP154 skipped: no API is published",
				"KCP155 skipped: no API is published", "KCP156 skipped: no API is published",
			},
		},
		"a policy that is gone": {
			func(_ *testing.T, w *world) {
				w.rt.Kcp.PutIn("root:compute/validatingadmissionpolicybindings/"+guard.PolicyPatches, nil)
			},
			[]string{"KCP151 fail: ValidatingAdmissionPolicyBinding patches.workloads.kcp.dev in root:compute does not exist"},
		},
		"a policy that was changed": {
			func(_ *testing.T, w *world) {
				name := "root:compute/validatingadmissionpolicies/" + guard.PolicyPatches
				o := w.rt.Kcp.In(name)
				_ = unstructured.SetNestedField(o.Object, "Ignore", "spec", "failurePolicy")
				w.rt.Kcp.PutIn(name, o)
			},
			[]string{"KCP151 fail: ValidatingAdmissionPolicy patches.workloads.kcp.dev in root:compute is not the one that the controller writes"},
		},
		"a policy that permits the label of another cluster": {
			func(_ *testing.T, w *world) {
				w.rt.Kcp.PutIn(placementPolicy, w.placement(w.controller(), "c1", "c2")[0])
			},
			[]string{"KCP151 fail: ValidatingAdmissionPolicy placement.workloads.kcp.dev in root:compute is not the one that the controller writes"},
		},
		"a policy that permits another user everything": {
			func(_ *testing.T, w *world) {
				w.rt.Kcp.PutIn(placementPolicy, w.placement(guard.User{Name: "x"}, "c1")[0])
			},
			[]string{"KCP151 fail: ValidatingAdmissionPolicy placement.workloads.kcp.dev in root:compute is not the one that the controller writes"},
		},
		"an API that no cluster can serve": {
			func(_ *testing.T, w *world) {
				w.rt.Kcp.Always(clusters, items(workloadCluster("c1", apiState("Incompatible", "spec.foo: gone"))))
			},
			[]string{"KCP153 fail: cluster/c1: deployments.apps: spec.foo: gone"},
		},
		"an API that another cluster serves": {
			func(_ *testing.T, w *world) {
				w.rt.Kcp.Always(clusters, items(workloadCluster("c1", apiState("Published", "")), workloadCluster("c2", apiState("Incompatible", "spec.foo: gone"))))
				w.rt.Kcp.PutIn(placementPolicy, w.placement(w.controller(), "c1", "c2")[0])
				w.rt.Kcp.Always("GET "+bindings, items(boundTo("kubernetes", "True"), boundTo("cluster-c1", "True"), boundTo("cluster-c2", "True")))
			},
			[]string{"KCP153 warn: cluster/c2: deployments.apps: spec.foo: gone"},
		},
		"an API whose schema is not known": {
			func(_ *testing.T, w *world) {
				c := workloadCluster("c1", apiState("Published", "")).(map[string]any)
				c["status"].(map[string]any)["conditions"] = []any{map[string]any{"type": "APIsCompatible", "status": "Unknown", "reason": "SchemasUnreadable", "message": "no ConfigMap"}}
				w.rt.Kcp.Always(clusters, items(c))
			},
			[]string{"KCP153 warn: cluster/c1: no ConfigMap"},
		},
		"workloads that run nowhere": {
			func(_ *testing.T, w *world) {
				w.rt.Kcp.Always("GET "+deployments, items(scheduledFalse(w.deployed(time.Hour, "web", "", "")), w.deployed(time.Hour, "api", "", ""), w.deployed(time.Second, "new", "", "")))
			},
			[]string{"KCP154 fail: root-shard: deployments.apps default/api" + at + " is in no cluster: the controller has not scheduled it\n" +
				"root-shard: deployments.apps default/web" + at + " is in no cluster: NoCluster: no cluster is ready"},
		},
		"leaves without a root, and without a cluster": {
			func(_ *testing.T, w *world) {
				w.rt.Kcp.Always("GET "+deployments, items(w.deployed(time.Hour, "web", "", ""), w.deployed(time.Hour, "web--c9", "web", "c9")))
				config := w.deployed(time.Hour, "settings--c1", "settings", "c1")
				config["apiVersion"], config["kind"] = "v1", "ConfigMap"
				w.rt.Kcp.Always("GET "+configMaps, items(config))
			},
			[]string{"KCP154 fail: root-shard: configmaps default/settings--c1" + at + " has lost its root configmaps default/settings" + at + "\n" +
				"root-shard: deployments.apps default/web--c9" + at + " has the cluster c9, which does not exist"},
		},
		"an API without permissions": {
			func(t *testing.T, w *world) { w.account(t) },
			[]string{"KCP155 fail: cluster/c1: ClusterRole kcpctl:syncer:demo:c1 does not grant get deployments.apps, list deployments.apps, " +
				"watch deployments.apps, create deployments.apps, update deployments.apps and 2 more"},
		},
		"an API that the setup no longer has": {
			func(t *testing.T, w *world) {
				w.account(t)
				w.top.Setup.Spec.Workloads.APIs = []string{"services"}
			},
			nil,
		},
		"no account": {
			func(_ *testing.T, w *world) { w.rt.Made = nil },
			[]string{"KCP155 fail: cluster/c1: ClusterRole kcpctl:syncer:demo:c1 does not grant anything, because the ClusterRoleBinding with its name does not exist"},
		},
		"a workspace without a binding": {
			func(_ *testing.T, w *world) { w.rt.Kcp.Always("GET "+bindings, items(boundTo("kubernetes", "True"))) },
			[]string{"KCP156 fail: root-shard: the logical cluster team has no APIBinding of the APIExport cluster-c1"},
		},
		"claims that are not applied": {
			func(_ *testing.T, w *world) {
				w.rt.Kcp.Always("GET "+bindings, items(boundTo("kubernetes", "True"), boundTo("cluster-c1", "False"), boundTo("cluster-c2", "True")))
			},
			[]string{"KCP156 fail: root-shard: the logical cluster team has not applied the claims of the APIExport cluster-c1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorkloadsWorld(t, func(t *testing.T, w *world) {
				tc.spoil(t, w)
				require.Equal(t, tc.want, w.checkWorkloads(t))
			})
		})
	}
}
