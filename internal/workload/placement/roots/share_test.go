package roots_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/placement/roots"
	"github.com/kcpctl/kcpctl/internal/workload/placement/schedule"
)

// capable returns a ready cluster with free CPUs.
func capable(name, cpu string) *api.Cluster {
	c := cluster(name, true, 0)
	c.Status.Capacity = &api.Capacity{Allocatable: corev1.ResourceList{"cpu": resource.MustParse(cpu), "pods": resource.MustParse("110")}}
	return c
}

// Decisions shortly after each other know what each one takes, though no pods are there yet.
func TestDecisionsReserveWhatTheyTake(t *testing.T) {
	s := start(t)
	s.clusters(capable("c1", "4"), capable("c2", "2"))
	on := map[string]int{}
	for i := range 6 {
		name := fmt.Sprint("one", i)
		s.deploy(fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: %s, namespace: shop}
spec: {replicas: 1, template: {spec: {containers: [{name: c, resources: {requests: {cpu: "1"}}}]}}}`, name))
		s.eventually(func() bool { return s.on(deployments, name) != "" }, name)
		on[s.on(deployments, name)]++
	}
	require.Equal(t, map[string]int{"c1": 4, "c2": 2}, on)
}

func TestNamespacesHaveHintsAndWorkloadsKeepTogether(t *testing.T) {
	s := start(t)
	s.object("api/v1/namespaces", `{apiVersion: v1, kind: Namespace, metadata: {name: shop, annotations: {workloads.kcp.dev/weights: "c2=1"}}}`)
	s.clusters(cluster("c1", true, 0), cluster("c2", true, 0), cluster("c3", true, 0))
	s.deploy(web)
	s.eventually(func() bool { return s.leaves() == "c2=4" }, "those of the namespace")
	s.object("api/v1/namespaces", `{metadata: {name: shop, annotations: {workloads.kcp.dev/weights: null}}}`)
	deploy := func(name, hint string) {
		s.deploy(fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: %s, namespace: shop, labels: {app: %s}, annotations: {%s}}
spec: {replicas: 3}`, name, name, hint))
	}
	deploy("near", `workloads.kcp.dev/affinity: app=cache`)
	s.eventually(func() bool {
		return strings.Contains(fmt.Sprint(s.Get("1a", deployments, "shop", "near").Object["status"]), "none of 3 clusters can run it")
	}, "there is nothing to be near to")
	deploy("cache", `workloads.kcp.dev/weights: "c1=1,c3=1"`)
	s.eventually(func() bool { return s.on(deployments, "near") == "c1 c3" }, "it follows")
	deploy("far", `workloads.kcp.dev/anti-affinity: "app in (cache, near)"`)
	s.eventually(func() bool { return s.on(deployments, "far") == "c2" }, "away from them")
}

// A controller that starts again continues a move.
func TestMovesSurviveARestart(t *testing.T) {
	s := start(t)
	s.clusters(cluster("c1", true, 0), cluster("c2", true, 0))
	s.deploy(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop, annotations: {workloads.kcp.dev/weights: c1=1}}
spec: {replicas: 50}`)
	s.eventually(func() bool { return s.leaves() == "c1=50" }, "on one")
	s.object(deployments, `{metadata: {name: web--c1, namespace: shop}, status: {availableReplicas: 50}}`)
	s.deploy(`{metadata: {name: web, namespace: shop, annotations: {workloads.kcp.dev/weights: "c1=1,c2=1"}}}`)
	s.eventually(func() bool { return s.leaves() == "c1=50 c2=5" }, "a tenth moves")
	require.Regexp(t, "Z=5$", s.Get("1a", deployments, "shop", "web").GetAnnotations()[api.AnnotationMoves])

	s.restart()
	s.clusters(cluster("c1", true, 0), cluster("c2", true, 0))
	s.deploy(`{metadata: {name: web, namespace: shop, labels: {seen: "true"}}}`)
	s.eventually(func() bool { return s.Get("1a", deployments, "shop", "web--c1").GetLabels()["seen"] == "true" }, "scheduled")
	require.Equal(t, "c1=50 c2=5", s.leaves(), "those that replace others are not available yet")
	s.object(deployments, `{metadata: {name: web--c2, namespace: shop}, status: {availableReplicas: 5}}`)
	s.eventually(func() bool { return s.leaves() == "c1=45 c2=5" }, "now they are")
	s.deploy(`{metadata: {name: web, namespace: shop, labels: {seen: again}}}`)
	s.eventually(func() bool { return s.Get("1a", deployments, "shop", "web--c1").GetLabels()["seen"] == "again" }, "scheduled")
	s.eventually(func() bool { return s.Get("1a", deployments, "shop", "web--c2").GetLabels()["seen"] == "again" }, "scheduled")
	require.Equal(t, "c1=45 c2=5", s.leaves(), "no more in this minute")
}

// A user can write anything into the annotation. It is read once, after the controller has started.
func TestAUserDoesNotUseUpTheMoves(t *testing.T) {
	s := start(t)
	s.clusters(cluster("c1", true, 0), cluster("c2", true, 0))
	s.deploy(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop, annotations: {workloads.kcp.dev/weights: c1=1}}
spec: {replicas: 4}`)
	s.eventually(func() bool { return s.leaves() == "c1=4" }, "on one")
	s.object(deployments, `{metadata: {name: web--c1, namespace: shop}, status: {availableReplicas: 4}}`)
	s.running(4)
	s.eventually(func() bool {
		used := api.AnnotationMoves + `: "` + time.Now().UTC().Format(time.RFC3339) + `=999999999"`
		s.deploy(`{metadata: {name: web, namespace: shop, annotations: {workloads.kcp.dev/weights: c2=1, ` + used + `}}}`)
		return s.leaves() == "c1=4 c2=1"
	}, "one moves")
}

// running waits until the controller has seen that replicas of web run: those that do not run move at once.
func (s *scheduler) running(n int) {
	s.Helper()
	s.eventually(func() bool {
		is, _, _ := unstructured.NestedFieldNoCopy(s.Get("1a", deployments, "shop", "web").Object, "status", "availableReplicas")
		return fmt.Sprint(is) == fmt.Sprint(n)
	}, "the replicas run")
}

// A small workload moves one replica at a time, but several in a minute.
func TestASmallWorkloadMovesOneReplicaAfterAnother(t *testing.T) {
	s := start(t)
	s.clusters(cluster("c1", true, 0), cluster("c2", true, 0))
	s.deploy(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop, annotations: {workloads.kcp.dev/weights: c1=1}}
spec: {replicas: 9}`)
	s.eventually(func() bool { return s.leaves() == "c1=9" }, "on one")
	available := func(cluster string, n int) {
		s.object(deployments, fmt.Sprintf(`{metadata: {name: web--%s, namespace: shop}, status: {availableReplicas: %d}}`, cluster, n))
	}
	available("c1", 9)
	s.running(9)
	s.deploy(`{metadata: {name: web, namespace: shop, annotations: {workloads.kcp.dev/weights: "c2=1"}}}`)
	for moved := 1; moved <= 5; moved++ {
		s.eventually(func() bool { return s.leaves() == fmt.Sprintf("c1=%d c2=%d", 10-moved, moved) }, "one more, beside those that it replaces")
		available("c2", moved)
	}
	s.eventually(func() bool { return s.leaves() == "c1=4 c2=5" }, "five")
	s.deploy(`{metadata: {name: web, namespace: shop, labels: {seen: "true"}}}`)
	s.eventually(func() bool { return s.Get("1a", deployments, "shop", "web--c2").GetLabels()["seen"] == "true" }, "scheduled")
	require.Equal(t, "c1=4 c2=5", s.leaves(), "no more in this minute")
}

// A cluster that joins gets nothing of what runs, until a user asks for it. Then it gets its whole share: the move goes
// on, though free capacity alone would not begin it for the last two replicas.
func TestAClusterJoins(t *testing.T) {
	s := start(t)
	s.clusters(capable("c1", "4"), capable("c2", "4"))
	s.deploy("{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop}, spec: {replicas: 10}}")
	s.eventually(func() bool { return s.leaves() == "c1=5 c2=5" }, "half each")
	available := func(cluster string, n int) {
		s.object(deployments, fmt.Sprintf(`{metadata: {name: web--%s, namespace: shop}, status: {availableReplicas: %d}}`, cluster, n))
	}
	available("c1", 5)
	available("c2", 5)
	s.running(10)
	s.clusters(capable("c1", "4"), capable("c2", "4"), capable("c3", "4"))
	s.deploy(`{metadata: {name: web, namespace: shop, labels: {changed: "true"}}}`)
	s.eventually(func() bool { return s.Get("1a", deployments, "shop", "web--c1").GetLabels()["changed"] == "true" }, "scheduled")
	require.Equal(t, "c1=5 c2=5", s.leaves())
	s.rebalance = "now"
	s.clusters(capable("c1", "4"), capable("c2", "4"), capable("c3", "4"))
	for moved := 1; moved <= 3; moved++ {
		s.eventually(func() bool { return strings.Contains(s.leaves(), fmt.Sprint("c3=", moved)) }, "one more")
		s.eventually(func() bool {
			return strings.Contains(s.Get("1a", deployments, "shop", "web").GetAnnotations()[api.AnnotationExplain], fmt.Sprintf(`"goal":3,"replicas":%d}]`, moved))
		}, "the goal is known")
		available("c3", moved)
	}
	s.eventually(func() bool { return s.leaves() == "c1=3 c2=4 c3=3" || s.leaves() == "c1=4 c2=3 c3=3" }, "it has as many as the others")
	s.eventually(func() bool {
		return s.Get("1a", deployments, "shop", "web").GetAnnotations()[api.AnnotationRebalanced] == "now"
	}, "the request is carried out")
}

// A leaf that another client changes is corrected, as a Deployment corrects its ReplicaSets.
func TestALeafThatIsChangedIsCorrected(t *testing.T) {
	s := start(t)
	s.clusters(cluster("c1", true, 0))
	s.deploy("{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop}, spec: {replicas: 2}}")
	s.eventually(func() bool { return s.leaves() == "c1=2" }, "scheduled")
	for range 2 {
		s.object(deployments, "{metadata: {name: web--c1, namespace: shop}, spec: {replicas: 50}}")
		s.eventually(func() bool { return s.leaves() == "c1=2" }, "corrected")
	}
	s.object(deployments, "{metadata: {name: web--c1, namespace: shop}, status: {availableReplicas: 2}}")
	s.running(2)
}

// A leaf that comes and goes while a shard is not watched is made again.
func TestALeafThatWasNeverSeen(t *testing.T) {
	s := start(t)
	s.clusters(cluster("c1", true, 0))
	s.deploy("{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop, annotations: {workloads.kcp.dev/spread: Duplicate}}, spec: {replicas: 2}}")
	s.eventually(func() bool { return s.leaves() == "c1=2" }, "on one")
	see := s.Blind(deployments)
	s.clusters(cluster("c1", true, 0), cluster("c2", true, 0))
	s.eventually(func() bool { return s.Get("1a", deployments, "shop", "web--c2") != nil }, "the controller writes a leaf")
	s.Delete("1a", deployments, "shop", "web--c2")
	s.eventually(func() bool { return s.Get("1a", deployments, "shop", "web--c2") == nil }, "another client removes it")
	see()
	s.eventually(func() bool { return s.Get("1a", deployments, "shop", "web--c2") != nil }, "the controller writes it again")
}

const apiBindings = "apis/apis.kcp.io/v1alpha2/apibindings"

// Every workspace that uses the APIs gets a binding for each cluster, which shows the objects with its label and no
// others.
func TestBindsTheExportsOfClusters(t *testing.T) {
	s := start(t)
	s.object(apiBindings, `
apiVersion: apis.kcp.io/v1alpha2
kind: APIBinding
metadata: {name: mine}
spec: {reference: {export: {path: compute, name: kubernetes}}}`)
	s.object(apiBindings, `
apiVersion: apis.kcp.io/v1alpha2
kind: APIBinding
metadata: {name: of-a-cluster-that-is-gone, labels: {app.kubernetes.io/managed-by: kcpctl-workloads}}
spec: {reference: {export: {path: compute, name: cluster-gone}}}`)
	claim := func(cluster string) []any {
		return []any{map[string]any{
			"group": "", "resource": "secrets", "verbs": []any{"get"},
			"defaultSelector": map[string]any{"matchLabels": map[string]any{api.LabelCluster: cluster}},
		}}
	}
	s.claims = map[string][]any{"cluster-c1": claim("c1"), "cluster-c2": claim("c2")}
	s.clusters(cluster("c1", true, 0), cluster("c2", true, 0))
	s.eventually(func() bool {
		return slices.Equal(s.Names("1a", apiBindings), []string{"/cluster-c1", "/cluster-c2", "/mine"})
	}, "bound")
	claims, _, _ := unstructured.NestedSlice(s.Get("1a", apiBindings, "", "cluster-c1").Object, "spec", "permissionClaims")
	require.Equal(t, []any{map[string]any{
		"group": "", "resource": "secrets", "verbs": []any{"get"}, "state": "Accepted",
		"selector": map[string]any{"matchLabels": map[string]any{api.LabelCluster: "c1"}},
	}}, claims)
	s.eventually(func() bool {
		return s.Get("1a", apiBindings, "", "cluster-c1").GetAnnotations()["workloads.kcp.dev/retried"] != ""
	}, "kcp is asked again to apply the claims")
	s.object(apiBindings, `{metadata: {name: cluster-c1}, spec: {permissionClaims: []}}`)
	s.eventually(func() bool {
		claims, _, _ := unstructured.NestedSlice(s.Get("1a", apiBindings, "", "cluster-c1").Object, "spec", "permissionClaims")
		return len(claims) == 1
	}, "it is repaired")
}

// claimsOf returns the claims of the APIExports of clusters.
func claimsOf(names ...string) map[string][]any {
	out := map[string][]any{}
	for _, n := range names {
		out["cluster-"+n] = []any{map[string]any{"group": "", "resource": "secrets", "verbs": []any{"get"}}}
	}
	return out
}

// With many clusters, a workspace has bindings for those that it prefers, and for those that it uses: of its decisions,
// and of objects to which its users have given the label.
func TestBindsTheClustersThatAWorkspaceUses(t *testing.T) {
	s := start(t)
	s.object(apiBindings, `
apiVersion: apis.kcp.io/v1alpha2
kind: APIBinding
metadata: {name: mine}
spec: {reference: {export: {path: compute, name: kubernetes}}}`)
	var names []string
	for i := range 2 * schedule.NearClusters {
		names = append(names, fmt.Sprintf("c%02d", i))
	}
	near := schedule.Near("1a", names)
	others := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(near, name) })
	decided, labelled := others[0], others[1]
	var all []*api.Cluster
	for _, name := range names {
		all = append(all, cluster(name, name == decided, 0))
	}
	s.claims = claimsOf(names...)
	s.clusters(all...)
	s.deploy(web)
	bound := func(clusters ...string) {
		s.Helper()
		want := []string{"/mine"}
		for _, c := range append(clusters, near...) {
			want = append(want, "/cluster-"+c)
		}
		slices.Sort(want)
		s.eventually(func() bool { return slices.Equal(s.Names("1a", apiBindings), want) }, "bound")
	}
	bound(decided)
	began := time.Now()
	object := fmt.Sprintf(`{apiVersion: v1, kind: ConfigMap, metadata: {name: files, namespace: shop, labels: {workloads.kcp.dev/cluster: %s}}}`, labelled)
	s.object(configMaps, object)
	bound(decided, labelled)
	writes := 0
	for _, w := range s.Server.Writes() {
		if strings.HasPrefix(w, "PATCH "+apiBindings+" /cluster-"+labelled) {
			writes++
		}
	}
	seconds := int(time.Since(began) / time.Second)
	require.LessOrEqual(t, writes, 2+seconds, "it is written once, and kcp is asked again after a second, or later")
	s.Server.Delete("1a", apiBindings, "", "cluster-"+decided)
	bound(decided, labelled)
}

// A binding stays until its cluster is removed by command: until kcp says that the APIExport does not exist, and no
// leaf is left.
func TestABindingStaysUntilItsClusterIsRemoved(t *testing.T) {
	s := start(t)
	s.object(apiBindings, `
apiVersion: apis.kcp.io/v1alpha2
kind: APIBinding
metadata: {name: mine}
spec: {reference: {export: {path: compute, name: kubernetes}}}`)
	export := func(name string) {
		s.Server.Apply(s, "compute", "apis/apis.kcp.io/v1alpha2/apiexports", fmt.Sprintf(`{apiVersion: apis.kcp.io/v1alpha2, kind: APIExport, metadata: {name: %s}}`, name))
	}
	for _, name := range []string{"c1", "c2", "c3", "c4"} {
		export("cluster-" + name)
	}
	s.object(configMaps, `{apiVersion: v1, kind: ConfigMap, metadata: {name: files, namespace: shop, labels: {workloads.kcp.dev/cluster: c3}}}`)
	s.claims = claimsOf("c1", "c2", "c3", "c4")
	s.clusters(cluster("c1", true, 0))
	s.eventually(func() bool { return len(s.Names("1a", apiBindings)) == 5 }, "bound")
	for _, name := range []string{"cluster-c3", "cluster-c4"} {
		s.Server.Delete("compute", "apis/apis.kcp.io/v1alpha2/apiexports", "", name)
	}
	s.claims = claimsOf("c1")
	s.clusters(cluster("c1", true, 0))
	s.eventually(func() bool { return s.Get("1a", apiBindings, "", "cluster-c4") == nil }, "its cluster was removed")
	s.claims = claimsOf("c1", "c5")
	s.clusters(cluster("c1", true, 0))
	s.eventually(func() bool { return s.Get("1a", apiBindings, "", "cluster-c5") != nil }, "another look at all bindings")
	require.NotNil(t, s.Get("1a", apiBindings, "", "cluster-c2"), "the controller does not know its APIExport, but it exists")
	require.NotNil(t, s.Get("1a", apiBindings, "", "cluster-c3"), "something is scheduled to its cluster")
}

// kcp denies access to a workspace that it initializes. It is only logged if that lasts.
func TestDeniedBindingsAreLoggedOnce(t *testing.T) {
	gvr := func(group, resource string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: group, Version: "v1alpha2", Resource: resource}
	}
	denied := apierrors.NewForbidden(schema.GroupResource{Group: "apis.kcp.io", Resource: "apibindings"}, "cluster-c1", errors.New("access denied"))
	for name, tc := range map[string]struct {
		resource         schema.GroupVersionResource
		err              error
		failures, logged int
	}{
		"for a short time": {gvr("apis.kcp.io", "apibindings"), fmt.Errorf("bind: %w", denied), 4, 0},
		"for long":         {gvr("apis.kcp.io", "apibindings"), fmt.Errorf("bind: %w", denied), 50, 1},
		"another error":    {gvr("apis.kcp.io", "apibindings"), errors.New("no etcd"), 3, 3},
		"a workload":       {gvr("apps", "deployments"), denied, 3, 3},
	} {
		require.Equal(t, tc.logged, roots.Logged(tc.resource, tc.err, tc.failures), name)
	}
}

// The nodes of a cluster are not ready yet when its API server is back. It gets its share when they are.
func TestNodesThatComeGetReplicas(t *testing.T) {
	s := start(t)
	without := capable("c2", "4")
	without.Status.Capacity.Allocatable = corev1.ResourceList{}
	s.clusters(capable("c1", "4"), without)
	s.deploy(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec: {replicas: 4, template: {spec: {containers: [{name: c, resources: {requests: {cpu: 100m}}}]}}}`)
	s.eventually(func() bool { return s.leaves() == "c1=4" }, "only one has nodes")
	s.eventually(func() bool {
		return strings.Contains(s.Get("1a", deployments, "shop", "web").GetAnnotations()[api.AnnotationExplain], `"cluster":"c1","chosen":true,"reason":"is a candidate"`)
	}, "explained")
	s.deploy(`{metadata: {name: web, namespace: shop}, spec: {replicas: 6}}`)
	s.eventually(func() bool { return s.leaves() == "c1=6" }, "it runs")
	s.clusters(capable("c1", "4"), capable("c2", "4"))
	s.deploy(`{metadata: {name: web, namespace: shop}, spec: {replicas: 10}}`)
	s.eventually(func() bool {
		return s.leaves() == "c1=6 c2=4" || s.leaves() == "c1=5 c2=5" || strings.HasPrefix(s.leaves(), "c1=6 c2=")
	}, "the other has nodes, too")
}

// A leaf that is still being deleted does not make each decision about the next one reserve its replicas again.
func TestTheSameDecisionReservesOnce(t *testing.T) {
	s := start(t)
	s.clusters(capable("c1", "4"))
	deploy := func(name string, more string) {
		s.deploy(fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: %s, namespace: shop%s}
spec: {replicas: 1, template: {spec: {containers: [{name: c, resources: {requests: {cpu: "1"}}}]}}}`, name, more))
	}
	deploy("web", "")
	s.eventually(func() bool { return s.leaves() == "c1=1" }, "there")
	s.deploy(`{metadata: {name: web--c1, namespace: shop, finalizers: [stays]}}`)
	s.Delete("1a", deployments, "shop", "web")
	s.Delete("1a", deployments, "shop", "web--c1")
	s.eventually(func() bool { return s.Get("1a", deployments, "shop", "web") == nil }, "deleted")
	for i := range 10 {
		deploy("web", fmt.Sprintf(", annotations: {workloads.kcp.dev/weights: c1=%d}", i+1))
		s.eventually(func() bool {
			return s.Get("1a", deployments, "shop", "web").GetAnnotations()[api.AnnotationExplain] != ""
		}, "decided")
	}
	// Room for three more, without the one that is awaited.
	for i := range 3 {
		deploy(fmt.Sprint("other", i), "")
		s.eventually(func() bool { return s.on(deployments, fmt.Sprint("other", i)) == "c1" }, "the room is there")
	}
	require.NotContains(t, s.scheduled(), "no room")
}
