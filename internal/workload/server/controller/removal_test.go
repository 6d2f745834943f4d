package controller_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
)

// runOne starts a kcp with two clusters and a Deployment that runs in one of them. It returns where it runs, and the
// other cluster.
func runOne(t *testing.T) (k *kcp, below func(cluster, name string) bool, at, other string) {
	t.Helper()
	k, servers := newFleet(t)
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
		return strings.Contains(k.condition(drained, "Schedulable"), "False Draining: objects in workspaces that are still in it: 1")
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
		return strings.Contains(k.condition(gone, "Schedulable"), "False Removing: the Cluster is deleted; objects in workspaces that are still in it: 1")
	}, "one is left")
	k.Apply(t, compute, clusters, fmt.Sprintf(`{metadata: {name: %s, annotations: {workloads.kcp.dev/force-removal: "true"}}}`, gone))
	k.eventually(func() bool { return k.Get(compute, clusters, "", gone) == nil }, "the Cluster is gone")
	require.Nil(t, k.Get(compute, exports, "", api.ExportCluster(gone)))
	require.NotNil(t, k.Get(compute, exports, "", api.ExportCluster(stays)))
	require.Nil(t, k.Get("1a", deployments, "shop", "mine"))
}

// Objects of an API that the setup no longer has still run in the cluster.
func TestAClusterWaitsForTheObjectsOfARemovedAPI(t *testing.T) {
	k, below, drained, other := runOne(t)
	k.start(schema.GroupResource{Resource: "services"})
	k.Apply(t, compute, clusters, fmt.Sprintf(`{metadata: {name: %s, annotations: {workloads.kcp.dev/drain: "true"}}, spec: {unschedulable: true}}`, drained))
	k.eventually(func() bool {
		return strings.Contains(k.condition(drained, "Schedulable"), "still in it: 1. They move if another cluster can run them, and if its syncer runs. "+
			"1 of them cannot: the setup no longer has their API. Add it to spec.workloads.apis again")
	}, "it is counted")
	k.eventually(func() bool { return len(k.Get(compute, clusters, "", drained).GetFinalizers()) == 1 }, "it is kept until nothing is there")
	require.Equal(t, "True Ready", k.condition(other, "Schedulable"), "the other cluster is not drained")
	k.Delete(compute, clusters, "", drained)
	k.eventually(func() bool { return strings.Contains(k.condition(drained, "Schedulable"), "1 of them cannot") }, "the Cluster waits")
	require.True(t, below(drained, "web"))

	k.run()
	k.eventually(func() bool { return k.Get(compute, clusters, "", drained) == nil && below(other, "web") }, "with its API, it moves")
}

// A user withdraws a removed API while the controller publishes: what it has read before does not overrule that.
func TestAnAPIIsWithdrawnMeanwhile(t *testing.T) {
	k, _, at, _ := runOne(t)
	k.start(schema.GroupResource{Resource: "services"})
	k.eventually(func() bool { return len(k.apis(at)) == 2 && strings.Contains(k.apis(at)[1], "Removed") }, "the API is removed")
	var once sync.Once
	k.Refuse(func(r *http.Request) (int, string) {
		if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/apiexports/"+api.ExportWorkloads) {
			once.Do(func() { k.Apply(t, compute, exports, `{metadata: {name: kubernetes}, spec: {resources: []}}`) })
		}
		return 0, ""
	})
	k.Apply(t, compute, clusters, fmt.Sprintf("{metadata: {name: %s, annotations: {%s: services}}}", at, api.AnnotationWidenSchema))
	k.eventually(func() bool { return len(k.apis(at)) == 1 }, "it has no state")
}

// A user withdraws a removed API, which cannot be watched from then on.
func TestAnAPIIsWithdrawn(t *testing.T) {
	k, _, at, _ := runOne(t)
	k.start(schema.GroupResource{Resource: "services"})
	k.eventually(func() bool { return len(k.apis(at)) == 2 && strings.Contains(k.apis(at)[1], "Removed") }, "the API is removed")
	k.Refuse(func(r *http.Request) (int, string) {
		if strings.HasSuffix(r.URL.Path, "/clusters/*/apis/apps/v1/deployments") {
			return http.StatusNotFound, "no"
		}
		return 0, ""
	})
	k.Apply(t, compute, exports, `{metadata: {name: kubernetes}, spec: {resources: []}}`)
	k.eventually(func() bool { return len(k.apis(at)) == 1 }, "it has no state")
	k.Apply(t, compute, clusters, fmt.Sprintf(`{metadata: {name: %s, annotations: {workloads.kcp.dev/drain: "true"}}, spec: {unschedulable: true}}`, at))
	k.eventually(func() bool { return strings.HasPrefix(k.condition(at, "Schedulable"), "False Drained") }, "nothing waits for it")
}

// Without the APIExport and a cluster that can be read, it is not known what runs: nothing ends because of that.
func TestAMissingAPIExportIsNotAnEmptyOne(t *testing.T) {
	k, servers := newFleet(t)
	k.leaf("web", "c1")
	k.eventually(func() bool { return in(servers["c1"], compute, "web") && k.field("c1", "status", "leaves") == "1" }, "it runs")
	k.stop()
	k.Delete(compute, exports, "", api.ExportWorkloads)
	for _, s := range servers {
		s.Refuse(func(*http.Request) (int, string) { return http.StatusServiceUnavailable, "no" })
	}
	k.run()
	const unknown = "waits until it is known which APIs are published"
	k.Apply(t, compute, clusters, `{metadata: {name: c2, annotations: {workloads.kcp.dev/drain: "true"}}, spec: {unschedulable: true}}`)
	k.eventually(func() bool { return strings.HasPrefix(k.condition("c2", "Schedulable"), "False Draining: "+unknown) }, "it is not drained")
	require.Equal(t, "<nil>", k.field("c1", "status", "leaves"), "the number is not known")
	require.NotContains(t, k.metrics(), "kcpctl_leaves{")
	k.Delete(compute, clusters, "", "c1")
	k.eventually(func() bool {
		return strings.HasPrefix(k.condition("c1", "Schedulable"), "False Removing: the Cluster is deleted; "+unknown)
	}, "it is not removed")
	k.Apply(t, compute, clusters, `{metadata: {name: c2}, spec: {unschedulable: false}}`)
	k.settled("c2")
	require.NotNil(t, k.Get(compute, exports, "", api.ExportCluster("c1")))
	require.Len(t, k.Get(compute, clusters, "", "c1").GetFinalizers(), 1)
}

// A cluster that could never be read, in a setup that has never published an API, has nothing to wait for.
func TestAClusterThatWasNeverReadIsRemoved(t *testing.T) {
	k := newKCP(t)
	k.add("c1", "nothing")
	k.run()
	k.eventually(func() bool { return len(k.Get(compute, clusters, "", "c1").GetFinalizers()) == 1 }, "the controller has seen it")
	k.Delete(compute, clusters, "", "c1")
	k.eventually(func() bool { return k.Get(compute, clusters, "", "c1") == nil }, "it is removed")
}
