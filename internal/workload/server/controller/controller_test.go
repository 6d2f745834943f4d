package controller_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeapi"
	"github.com/kcpctl/kcpctl/internal/workload/server/controller"
	"github.com/kcpctl/kcpctl/internal/workload/server/probe"
)

func TestPublishesAndSyncs(t *testing.T) {
	k := newKCP(t)
	c1, c2 := newCluster(t, "one", "1", ", paused: {type: boolean}"), newCluster(t, "two", "2", "")
	k.add("c1", kubeconfig(c1.URL))
	k.run()
	k.identify()
	k.eventually(func() bool { return k.condition("c1", "Ready") == "True Ready" }, "the cluster is ready")
	require.Equal(t, []string{"deployments.apps v1 Published <nil>"}, k.apis("c1"))
	require.Len(t, k.Names(compute, schemas), 1)
	k.eventually(func() bool { return k.Get(compute, workspaceTypes, "", "workload") != nil }, "workspaces can use the APIs")

	k.Apply(t, compute, endpointSlices, fmt.Sprintf(`
apiVersion: apis.kcp.io/v1alpha1
kind: APIExportEndpointSlice
metadata: {name: cluster-c1}
status: {endpoints: [{url: "%s/services/apiexport/xyz/cluster-c1"}]}`, k.URL))
	k.Apply(t, "1a", deployments, `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop, labels: {workloads.kcp.dev/cluster: c1}}
spec: {replicas: 2}`)
	k.eventually(func() bool {
		return c1.Get("", deployments, api.DownstreamNamespace(compute, "1a", "shop"), "web") != nil
	}, "the leaf is in the cluster")

	w := httptest.NewRecorder()
	k.probe.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", nil))
	require.Equal(t, http.StatusOK, w.Code, w.Body.String())
	k.eventually(func() bool { return strings.Contains(k.metrics(), `kcpctl_cluster_ready{cluster="c1"} 1`) }, "metrics")

	// A cluster that does not have a published field.
	k.add("c2", kubeconfig(c2.URL))
	k.eventually(func() bool {
		return k.condition("c2", "Ready") == "True Ready" && strings.Contains(k.apis("c2")[0], "deployments.apps v1 Incompatible")
	}, "the second cluster is ready")
	require.Contains(t, k.apis("c2")[0], "paused")
	k.eventually(func() bool { return strings.HasPrefix(k.condition("c2", "APIsCompatible"), "False SchemaIncompatible") }, "condition")
	require.Len(t, k.Names(compute, schemas), 1, "a published schema stays")
	bindings, _, _ := unstructured.NestedSlice(k.Get(compute, workspaceTypes, "", "workload").Object, "spec", "defaultAPIBindings")
	require.Len(t, bindings, 1, "the controller binds the APIExports of the clusters itself")

	k.Apply(t, compute, clusters, `{metadata: {name: c1}, spec: {unschedulable: true}}`)
	k.eventually(func() bool { return strings.HasPrefix(k.condition("c1", "Schedulable"), "False Cordoned") }, "cordoned")
}

// Users are not protected while a policy is missing, so the controller does not wait for its next start.
func TestPoliciesThatAreDeletedOrChangedComeBack(t *testing.T) {
	k := newKCP(t)
	k.add("c1", kubeconfig(newCluster(t, "one", "1", "").URL))
	k.run()
	k.identify()
	k.eventually(func() bool { return k.condition("c1", "Ready") == "True Ready" }, "the cluster is ready")
	const name = "patches.workloads.kcp.dev"
	text := func(path string) string {
		if o := k.Get(compute, path, "", name); o != nil {
			return fmt.Sprint(o.Object["spec"])
		}
		return ""
	}
	for path, change := range map[string]string{
		"apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies":       "failurePolicy: Ignore",
		"apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings": "validationActions: [Audit]",
	} {
		k.eventually(func() bool { return text(path) != "" }, "it is written")
		want := text(path)
		k.Delete(compute, path, "", name)
		k.eventually(func() bool { return text(path) == want }, "it is written again")
		k.Apply(t, compute, path, fmt.Sprintf("{metadata: {name: %s}, spec: {%s}}", name, change))
		k.eventually(func() bool { return text(path) == want }, "the change is reverted")
	}
}

func TestClustersThatCannotBeUsed(t *testing.T) {
	k := newKCP(t)
	c1 := newCluster(t, "one", "1", "")
	k.add("c1", kubeconfig(c1.URL))
	k.add("text", "my password is swordfish")
	k.add("program", strings.Replace(kubeconfig(c1.URL), "{name: u}", "{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: touch, interactiveMode: Never}}}", 1))
	gone := newCluster(t, "gone", "1", "")
	gone.Close()
	k.add("gone", kubeconfig(gone.URL))
	closed := newCluster(t, "closed", "1", "")
	closed.Refuse(func(r *http.Request) (int, string) {
		if r.URL.Path == "/openapi/v3" {
			return http.StatusForbidden, "no"
		}
		return 0, ""
	})
	k.add("closed", kubeconfig(closed.URL))
	k.run()
	k.identify()
	k.eventually(func() bool { return k.condition("c1", "Ready") == "True Ready" }, "the first one is ready")
	k.add("same", kubeconfig(c1.URL)) // now: the one that answers first is used
	for name, want := range map[string]string{
		"same":    "False DuplicateCluster: Cluster c1 is the same physical cluster: delete one of them",
		"text":    "False KubeconfigInvalid: the kubeconfig cannot be used: the content of Secret default/text is not a kubeconfig with a current context",
		"program": "False KubeconfigInvalid: the kubeconfig cannot be used",
		"gone":    "False Unreachable: the API server of the cluster is not reached: Get",
		"closed":  "False SchemasUnreadable: the syncer cannot report the APIs of the cluster: read " + closed.URL + "/openapi/v3: no",
	} {
		k.eventually(func() bool {
			return strings.HasPrefix(k.condition(name, "Ready"), want)
		}, name)
	}
	k.add("text", kubeconfig(newCluster(t, "three", "3", "").URL))
	k.eventually(func() bool { return k.condition("text", "Ready") == "True Ready" }, "a new kubeconfig is used")
}

func TestSyncerBesideACluster(t *testing.T) {
	k := newKCP(t)
	c1, c2 := newCluster(t, "one", "1", ", paused: {type: boolean}"), newCluster(t, "two", "2", ", paused: {type: boolean}, more: {type: string}")
	k.add("c1", kubeconfig(c1.URL))
	k.run()
	k.identify()
	member := controller.Member{
		KCP: &rest.Config{Host: k.URL}, Physical: &rest.Config{Host: c2.URL}, Workspace: compute, Cluster: "c2", Version: "v1", Holder: "edge/1", Now: time.Now,
	}
	err := controller.RunSyncer(t.Context(), member)
	require.ErrorContains(t, err, "read Cluster c2 in workspace compute")
	member.Cluster = "c1"
	require.ErrorContains(t, controller.RunSyncer(t.Context(), member), "the controller syncs Cluster c1 itself: its syncMode is Push")

	member.Cluster = "c2"
	k.Apply(t, compute, clusters, `
apiVersion: workloads.kcp.dev/v1alpha1
kind: Cluster
metadata: {name: c2, creationTimestamp: "2026-01-02T00:00:00Z"}
spec: {syncMode: None}`)
	k.eventually(func() bool { return strings.HasPrefix(k.condition("c2", "Ready"), "False SyncerNotRunning") }, "no syncer yet")
	require.Equal(t, []string{"deployments.apps <nil> Ignored the syncer has not reported the API yet"}, k.apis("c2"))
	k.eventually(func() bool { return k.Get(compute, exports, "", api.ExportCluster("c2")) != nil }, "the cluster has an APIExport")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- controller.RunSyncer(ctx, member) }()
	k.eventually(func() bool { return k.condition("c2", "Ready") == "True Ready" }, "the cluster is ready")
	k.eventually(func() bool {
		return strings.HasPrefix(k.apis("c2")[0], "deployments.apps v1 Compatible not published: ")
	}, "the syncer reports the APIs")

	second := member
	second.Holder, second.Probe = "edge/2", &probe.Probe{}
	ctx2, cancel2 := context.WithCancel(t.Context())
	done2 := make(chan error, 1)
	go func() { done2 <- controller.RunSyncer(ctx2, second) }()
	readyz := func() string {
		w := httptest.NewRecorder()
		second.Probe.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", nil))
		return w.Body.String()
	}
	k.eventually(func() bool {
		return readyz() == "the syncer edge/1 works for cluster c2: this one waits until it has stopped\n"
	}, "the second one waits")
	holder := func() string {
		h, _, _ := unstructured.NestedString(k.Get(compute, "apis/coordination.k8s.io/v1/leases", "default", "cluster-c2").Object, "spec", "holderIdentity")
		return h
	}
	require.Equal(t, "edge/1", holder())
	cancel()
	require.NoError(t, <-done)
	k.eventually(func() bool { return holder() == "edge/2" }, "the first one has ended")
	cancel2()
	require.NoError(t, <-done2)
	require.Empty(t, holder())
}

// newFleet runs the controller with two clusters that are ready.
func newFleet(t *testing.T) (k *kcp, servers map[string]*fakeapi.Server) {
	t.Helper()
	k = newKCP(t)
	servers = map[string]*fakeapi.Server{"c1": newCluster(t, "one", "1", ""), "c2": newCluster(t, "two", "2", "")}
	for _, name := range []string{"c1", "c2"} {
		k.add(name, kubeconfig(servers[name].URL))
	}
	for _, name := range []string{api.ExportWorkloads, api.ExportCluster("c1"), api.ExportCluster("c2")} {
		k.Apply(t, compute, endpointSlices, fmt.Sprintf(`
apiVersion: apis.kcp.io/v1alpha1
kind: APIExportEndpointSlice
metadata: {name: %s}
status: {endpoints: [{url: "%s/services/apiexport/xyz/%s"}]}`, name, k.URL, name))
	}
	k.run()
	k.identify()
	// Not the conditions: the scheduler learns of a cluster after its status is written, and what runs in the first one
	// stays there.
	k.eventually(func() bool {
		metrics := k.metrics()
		return strings.Contains(metrics, `kcpctl_cluster_ready{cluster="c1"} 1`) && strings.Contains(metrics, `kcpctl_cluster_ready{cluster="c2"} 1`)
	}, "workloads can be scheduled to both clusters")
	return k, servers
}

func TestDividesReplicas(t *testing.T) {
	k, servers := newFleet(t)
	k.Apply(t, "1a", deployments, `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec: {replicas: 5}`)
	below := func(name string) *unstructured.Unstructured {
		return servers[name].Get("", deployments, api.DownstreamNamespace(compute, "1a", "shop"), "web")
	}
	replicas := func(name string) (n int64) {
		if o := below(name); o != nil {
			v, _, _ := unstructured.NestedFieldNoCopy(o.Object, "spec", "replicas")
			_, _ = fmt.Sscan(fmt.Sprint(v), &n)
		}
		return n
	}
	k.eventually(func() bool { return replicas("c1")+replicas("c2") == 5 && replicas("c1") >= 2 && replicas("c2") >= 2 }, "the replicas are divided")
	require.Equal(t, []string{"shop/web", "shop/web--c1", "shop/web--c2"}, k.Names("1a", deployments))
	for name, s := range servers {
		s.Apply(t, "", deployments, fmt.Sprintf(`{metadata: {name: web, namespace: %s}, status: {replicas: %d, readyReplicas: %d, availableReplicas: %d, observedGeneration: %d}}`,
			api.DownstreamNamespace(compute, "1a", "shop"), replicas(name), replicas(name), replicas(name), below(name).GetGeneration()))
	}
	root := func(path ...string) string {
		v, _, _ := unstructured.NestedFieldNoCopy(k.Get("1a", deployments, "shop", "web").Object, path...)
		return fmt.Sprint(v)
	}
	k.eventually(func() bool {
		return root("status", "readyReplicas") == "5" && root("status", "observedGeneration") == "1"
	}, "the status is that of all")
	require.Contains(t, root("metadata", "annotations", api.AnnotationPlacement), `"c1":{"replicas":`)
	require.Contains(t, root("metadata", "annotations", api.AnnotationExplain), `"chosen":true`)

	k.Apply(t, "1a", deployments, `{metadata: {name: web, namespace: shop, annotations: {workloads.kcp.dev/weights: "c1=1"}}}`)
	k.eventually(func() bool { return strings.Contains(root("status", "conditions"), "Scheduled") }, "a condition says that it is scheduled")
	k.Apply(t, "1a", deployments, `{metadata: {name: web, namespace: shop, annotations: {workloads.kcp.dev/weights: "c1=many"}}}`)
	k.eventually(func() bool { return strings.Contains(root("status", "conditions"), api.ReasonInvalidHint) }, "a mistake is a condition")
	require.Positive(t, replicas("c1"), "it moves nothing")
}

// published returns the APIResourceSchema of Deployments that is published.
func (k *kcp) published() string {
	o := k.Get(compute, exports, "", api.ExportWorkloads)
	if o == nil {
		return ""
	}
	all, _, _ := unstructured.NestedSlice(o.Object, "spec", "resources")
	name, _, _ := unstructured.NestedString(all[0].(map[string]any), "schema")
	return fmt.Sprint(k.Get(compute, schemas, "", name))
}

// offer is what the status of a cluster says that a user can accept.
func (k *kcp) offer(cluster string) *api.Acceptance {
	k.Helper()
	c, err := api.ClusterOf(k.Get(compute, clusters, "", cluster))
	require.NoError(k, err)
	require.NotNil(k, c.Status.APIs[0].Accept)
	return c.Status.APIs[0].Accept
}

func TestSchemasChangeOnRequest(t *testing.T) {
	k := newKCP(t)
	k.add("c1", kubeconfig(newCluster(t, "one", "1", ", paused: {type: boolean}").URL))
	k.serves()
	k.run()
	k.identify()
	k.eventually(func() bool {
		return k.condition("c1", "APIsCompatible") == "True Compatible" && strings.Contains(k.published(), "paused")
	}, "the API is published")
	k.add("c2", kubeconfig(newCluster(t, "two", "2", "").URL))
	k.eventually(func() bool {
		return k.condition("c2", "APIsCompatible") == "False SchemaIncompatible: deployments.apps: spec.paused: the field is missing"
	}, "c2 would make it narrower")
	require.Contains(t, k.published(), "paused", "it is not narrowed by itself")

	request := func(cluster, annotation, value string) {
		k.Apply(t, compute, clusters, fmt.Sprintf("{metadata: {name: %s, annotations: {%s: %q}}}", cluster, annotation, value))
		k.eventually(func() bool { return k.Get(compute, clusters, "", cluster).GetAnnotations()[annotation] == "" }, "the request ends: "+annotation)
	}
	seen := k.offer("c2")
	require.Equal(t, []string{"spec.paused: the field is missing"}, seen.Lost)
	for _, other := range []string{"deployments.apps", "deployments.apps:00000000"} {
		request("c2", api.AnnotationAcceptSchema, other)
		require.Contains(t, k.published(), "paused", "the user has not seen what is lost")
	}
	request("c2", api.AnnotationAcceptSchema, seen.Value)
	require.NotContains(t, k.published(), "paused")
	k.eventually(func() bool { return k.condition("c2", "APIsCompatible") == "True Compatible" }, "c2 can serve it")

	k.Delete(compute, clusters, "", "c2")
	k.eventually(func() bool { return k.Get(compute, clusters, "", "c2") == nil }, "c2 is gone")
	require.NotContains(t, k.published(), "paused", "it is not widened by itself")
	request("c1", api.AnnotationWidenSchema, "deployments.apps")
	require.Contains(t, k.published(), "paused")
}
