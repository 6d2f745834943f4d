package controller_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kcpctl/kcpctl/internal/testutil/fakeapi"
	"github.com/kcpctl/kcpctl/internal/workload/api"
	"github.com/kcpctl/kcpctl/internal/workload/connect"
	"github.com/kcpctl/kcpctl/internal/workload/controller"
	"github.com/kcpctl/kcpctl/internal/workload/probe"
)

// The paths of resources.
const (
	compute        = "compute"
	clusters       = "apis/workloads.kcp.dev/v1alpha1/clusters"
	exports        = "apis/apis.kcp.io/v1alpha2/apiexports"
	schemas        = "apis/apis.kcp.io/v1alpha1/apiresourceschemas"
	slices         = "apis/apis.kcp.io/v1alpha1/apiexportendpointslices"
	workspaceTypes = "apis/tenancy.kcp.io/v1alpha1/workspacetypes"
	secrets        = "api/v1/secrets"
	deployments    = "apis/apps/v1/deployments"
)

const openAPI = `
components:
  schemas:
    Deployment:
      type: object
      x-kubernetes-group-version-kind: [{group: apps, version: v1, kind: Deployment}]
      properties: {metadata: {type: object}, spec: {type: object, properties: {replicas: {type: integer}%s}}, status: {type: object, properties: {replicas: {type: integer}}}}`

// newCluster is a physical cluster that serves Deployments, with more fields in their spec.
func newCluster(t *testing.T, uid, hash, more string) *fakeapi.Server {
	t.Helper()
	s := fakeapi.New(t)
	s.Serve("/version", "gitVersion: v1.36.3")
	s.Serve("/apis", `groups: [{name: apps, versions: [{version: v1}], preferredVersion: {version: v1}}]`)
	s.Serve("/apis/apps/v1", `resources: [{name: deployments, kind: Deployment, namespaced: true}, {name: deployments/status, kind: Deployment}]`)
	s.Serve("/api/v1/namespaces/kube-system", fmt.Sprintf(`{apiVersion: v1, kind: Namespace, metadata: {name: kube-system, uid: %q}}`, uid))
	s.Serve("/openapi/v3", fmt.Sprintf(`paths: {apis/apps/v1: {serverRelativeURL: "/openapi?hash=%s"}}`, hash))
	s.Serve("/openapi?hash="+hash, fmt.Sprintf(openAPI, more))
	return s
}

// kcp is a kcp with a controller.
type kcp struct {
	*testing.T
	*fakeapi.Server
	probe *probe.Probe
}

func newKCP(t *testing.T) *kcp {
	t.Helper()
	return &kcp{t, fakeapi.New(t), &probe.Probe{}}
}

func (k *kcp) run() {
	k.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- controller.Run(ctx, controller.Options{
			KCP: &rest.Config{Host: k.URL}, Workspace: compute, WorkspaceType: "workload", APIs: []schema.GroupResource{{Group: "apps", Resource: "deployments"}},
			Holder: "test", Connect: connect.Content, Now: time.Now, Probe: k.probe,
		})
	}()
	k.Cleanup(func() {
		cancel()
		require.NoError(k, <-done)
	})
}

// add adds a Cluster in push mode, with the kubeconfig of a server.
func (k *kcp) add(name, kubeconfig string) {
	k.Helper()
	k.Apply(k, compute, secrets, fmt.Sprintf(`
apiVersion: v1
kind: Secret
metadata: {name: %s, namespace: default}
data: {kubeconfig: %s}`, name, base64.StdEncoding.EncodeToString([]byte(kubeconfig))))
	k.Apply(k, compute, clusters, fmt.Sprintf(`
apiVersion: workloads.kcp.dev/v1alpha1
kind: Cluster
metadata: {name: %s, creationTimestamp: "2026-01-0%dT00:00:00Z"}
spec: {syncMode: Push, kubeconfigSecretRef: {namespace: default, name: %s}}`, name, len(k.Names(compute, clusters))+1, name))
}

func kubeconfig(url string) string {
	return fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u}], clusters: [{name: c, cluster: {server: %q}}]}`, url)
}

func (k *kcp) eventually(condition func() bool, what string) {
	k.Helper()
	require.Eventually(k, condition, time.Minute, 20*time.Millisecond, what)
}

// condition returns a condition of a Cluster as Status Reason: Message.
func (k *kcp) condition(name, kind string) string {
	o := k.Get(compute, clusters, "", name)
	all, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range all {
		if m := c.(map[string]any); m["type"] == kind {
			return strings.TrimSuffix(fmt.Sprint(m["status"], " ", m["reason"], ": ", m["message"]), ": ")
		}
	}
	return ""
}

func (k *kcp) apis(name string) []string {
	o := k.Get(compute, clusters, "", name)
	all, _, _ := unstructured.NestedSlice(o.Object, "status", "apis")
	var out []string
	for _, a := range all {
		m := a.(map[string]any)
		out = append(out, fmt.Sprint(m["resource"], ".", m["group"], " ", m["version"], " ", m["state"], " ", m["message"]))
	}
	return out
}

// identify gives the APIExport an identity, as kcp does.
func (k *kcp) identify() {
	k.Helper()
	k.eventually(func() bool { return k.Get(compute, exports, "", api.ExportWorkloads) != nil }, "the APIs are published")
	k.Apply(k, compute, exports, `{metadata: {name: kubernetes}, status: {identityHash: abc}}`)
}

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

	k.Apply(t, compute, slices, fmt.Sprintf(`
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
	k.eventually(func() bool {
		w := httptest.NewRecorder()
		k.probe.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
		return strings.Contains(w.Body.String(), `kcpctl_cluster_ready{cluster="c1"} 1`)
	}, "metrics")

	// A cluster that does not have a published field.
	k.add("c2", kubeconfig(c2.URL))
	k.eventually(func() bool { return k.condition("c2", "Ready") == "True Ready" && len(k.apis("c2")) == 1 }, "the second cluster is ready")
	require.Contains(t, k.apis("c2")[0], "deployments.apps v1 Incompatible")
	require.Contains(t, k.apis("c2")[0], "paused")
	k.eventually(func() bool { return strings.HasPrefix(k.condition("c2", "APIsCompatible"), "False SchemaIncompatible") }, "condition")
	require.Len(t, k.Names(compute, schemas), 1, "a published schema stays")
	bindings, _, _ := unstructured.NestedSlice(k.Get(compute, workspaceTypes, "", "workload").Object, "spec", "defaultAPIBindings")
	require.Len(t, bindings, 1, "the controller binds the APIExports of the clusters itself")

	k.Apply(t, compute, clusters, `{metadata: {name: c1}, spec: {unschedulable: true}}`)
	k.eventually(func() bool { return strings.HasPrefix(k.condition("c1", "Schedulable"), "False Cordoned") }, "cordoned")
}

func TestClustersThatCannotBeUsed(t *testing.T) {
	k := newKCP(t)
	c1 := newCluster(t, "one", "1", "")
	k.add("c1", kubeconfig(c1.URL))
	k.add("same", kubeconfig(c1.URL))
	k.add("text", "my password is swordfish")
	k.add("program", strings.Replace(kubeconfig(c1.URL), "{name: u}", "{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: touch, interactiveMode: Never}}}", 1))
	gone := newCluster(t, "gone", "1", "")
	gone.Close()
	k.add("gone", kubeconfig(gone.URL))
	k.run()
	k.identify()
	k.eventually(func() bool { return k.condition("c1", "Ready") == "True Ready" }, "the first one is ready")
	for name, want := range map[string]string{
		"same":    "False DuplicateCluster: Cluster c1 is the same physical cluster: delete one of them",
		"text":    "False KubeconfigInvalid: the kubeconfig cannot be used: the content of Secret default/text is not a kubeconfig with a current context",
		"program": "False KubeconfigInvalid: the kubeconfig cannot be used",
		"gone":    "False Unreachable: read namespace kube-system: Get",
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
	k.eventually(func() bool { return k.Get(compute, exports, "", api.ExportCluster("c2")) != nil }, "the cluster has an APIExport")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- controller.RunSyncer(ctx, member) }()
	k.eventually(func() bool { return k.condition("c2", "Ready") == "True Ready" }, "the cluster is ready")
	k.eventually(func() bool { return len(k.apis("c2")) == 1 }, "the syncer reports the APIs")
	require.Contains(t, k.apis("c2")[0], "deployments.apps v1 Compatible not published: ")
	cancel()
	require.NoError(t, <-done)
}

func TestDividesReplicas(t *testing.T) {
	k := newKCP(t)
	servers := map[string]*fakeapi.Server{"c1": newCluster(t, "one", "1", ""), "c2": newCluster(t, "two", "2", "")}
	for _, name := range []string{"c1", "c2"} {
		k.add(name, kubeconfig(servers[name].URL))
	}
	for _, name := range []string{api.ExportWorkloads, api.ExportCluster("c1"), api.ExportCluster("c2")} {
		k.Apply(t, compute, slices, fmt.Sprintf(`
apiVersion: apis.kcp.io/v1alpha1
kind: APIExportEndpointSlice
metadata: {name: %s}
status: {endpoints: [{url: "%s/services/apiexport/xyz/%s"}]}`, name, k.URL, name))
	}
	k.run()
	k.identify()
	k.eventually(func() bool {
		return k.condition("c1", "Ready") == "True Ready" && k.condition("c2", "Ready") == "True Ready"
	}, "the clusters are ready")
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

// runOne starts a kcp with two clusters and a Deployment that runs in one of them. It returns where it runs, and the other cluster.
func runOne(t *testing.T) (k *kcp, below func(cluster, name string) bool, at, other string) {
	t.Helper()
	k = newKCP(t)
	servers := map[string]*fakeapi.Server{"c1": newCluster(t, "one", "1", ""), "c2": newCluster(t, "two", "2", "")}
	for _, name := range []string{"c1", "c2"} {
		k.add(name, kubeconfig(servers[name].URL))
	}
	for _, name := range []string{api.ExportWorkloads, api.ExportCluster("c1"), api.ExportCluster("c2")} {
		k.Apply(t, compute, slices, fmt.Sprintf(`
apiVersion: apis.kcp.io/v1alpha1
kind: APIExportEndpointSlice
metadata: {name: %s}
status: {endpoints: [{url: "%s/services/apiexport/xyz/%s"}]}`, name, k.URL, name))
	}
	k.run()
	k.identify()
	k.eventually(func() bool {
		return k.condition("c1", "Ready") == "True Ready" && k.condition("c2", "Ready") == "True Ready"
	}, "the clusters are ready")
	k.Apply(t, "1a", deployments, `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop, annotations: {workloads.kcp.dev/spread: Single}}
spec: {replicas: 1}`)
	below = func(cluster, name string) bool {
		return servers[cluster].Get("", deployments, api.DownstreamNamespace(compute, "1a", "shop"), name) != nil
	}
	k.eventually(func() bool { return below("c1", "web") || below("c2", "web") }, "it runs")
	if below("c2", "web") {
		return k, below, "c2", "c1"
	}
	return k, below, "c1", "c2"
}

func TestAClusterIsDrained(t *testing.T) {
	k, below, drained, other := runOne(t)
	k.Apply(t, compute, clusters, fmt.Sprintf(`{metadata: {name: %s, annotations: {workloads.kcp.dev/drain: "true"}}}`, drained))
	k.Apply(t, compute, clusters, fmt.Sprintf(`{metadata: {name: %s}, spec: {unschedulable: true}}`, drained))
	k.eventually(func() bool { return below(other, "web") && !below(drained, "web") }, "it moves")
	k.eventually(func() bool {
		return k.condition(drained, "Schedulable") == "False Drained: nothing is scheduled to the cluster"
	}, "nothing is left")
	k.Apply(t, "1a", deployments, fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: mine, namespace: shop, labels: {workloads.kcp.dev/cluster: %s}}
spec: {replicas: 1}`, drained))
	k.eventually(func() bool {
		return strings.Contains(k.condition(drained, "Schedulable"), "False Draining: 1 objects in workspaces are still in it")
	}, "that of a user does not move")
	k.Apply(t, compute, clusters, fmt.Sprintf(`{metadata: {name: %s}, spec: {unschedulable: false}}`, drained))
	k.eventually(func() bool { return k.condition(drained, "Schedulable") == "True Ready" }, "the annotation alone does not drain it")
	k.eventually(func() bool {
		n, _, _ := unstructured.NestedFieldNoCopy(k.Get(compute, clusters, "", drained).Object, "status", "leaves")
		return fmt.Sprint(n) == "1"
	}, "the objects are counted")
}

func TestAClusterIsRemovedWhenNothingIsThere(t *testing.T) {
	k, below, gone, stays := runOne(t)
	k.eventually(func() bool { return len(k.Get(compute, clusters, "", gone).GetFinalizers()) == 1 }, "it is kept until nothing is there")
	k.Apply(t, "1a", deployments, fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: mine, namespace: shop, labels: {workloads.kcp.dev/cluster: %s}}
spec: {replicas: 1}`, gone))
	k.eventually(func() bool { return below(gone, "mine") }, "that of the user runs")
	k.Delete(compute, clusters, "", gone)
	k.eventually(func() bool { return below(stays, "web") && !below(gone, "web") }, "it moves")
	k.eventually(func() bool {
		return strings.Contains(k.condition(gone, "Schedulable"), "False Removing: the Cluster is deleted: 1 objects")
	}, "one is left")
	k.Apply(t, compute, clusters, fmt.Sprintf(`{metadata: {name: %s, annotations: {workloads.kcp.dev/force-removal: "true"}}}`, gone))
	k.eventually(func() bool { return k.Get(compute, clusters, "", gone) == nil }, "the Cluster is gone")
	require.Nil(t, k.Get(compute, exports, "", api.ExportCluster(gone)))
	require.NotNil(t, k.Get(compute, exports, "", api.ExportCluster(stays)))
	require.Nil(t, k.Get("1a", deployments, "shop", "mine"))
}
