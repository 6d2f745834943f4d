package roots_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeapi"
	"github.com/kcpctl/kcpctl/internal/workload/placement/roots"
)

// The paths of resources.
const (
	deployments     = "apis/apps/v1/deployments"
	configMaps      = "api/v1/configmaps"
	secrets         = "api/v1/secrets"
	serviceAccounts = "api/v1/serviceaccounts"
	services        = "api/v1/services"
	claims          = "api/v1/persistentvolumeclaims"
	ingresses       = "apis/networking.k8s.io/v1/ingresses"
)

// cluster returns a Cluster that serves Deployments, and became ready, or not ready, a time ago.
func cluster(name string, ready bool, ago time.Duration) *api.Cluster {
	status, evicted, reason := metav1.ConditionFalse, metav1.ConditionFalse, api.ReasonEvictAfter
	switch {
	case ready:
		status, reason, ago = metav1.ConditionTrue, api.ReasonReady, ago+time.Hour
	case ago >= api.DefaultEvictAfter:
		evicted, reason = metav1.ConditionTrue, api.ReasonEvicted
	}
	return &api.Cluster{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
		Status: api.ClusterStatus{
			Conditions: []metav1.Condition{
				{Type: api.ConditionReady, Status: status, LastTransitionTime: metav1.NewTime(time.Now().Add(-ago))},
				{Type: api.ConditionEvicted, Status: evicted, Reason: reason},
			},
			APIs: []api.APIStatus{{Group: "apps", Resource: "deployments", Version: "v1", State: api.APIPublished}},
		},
	}
}

// scheduler is a kcp with a running Scheduler.
type scheduler struct {
	*testing.T
	*fakeapi.Server
	roots *roots.Scheduler
	stop  func()
	// claims are those of the APIExports of clusters.
	claims map[string][]any
	// rebalance is the last request to rebalance all roots.
	rebalance string
	// ahead is how far the clock of the Scheduler is ahead.
	ahead atomic.Int64
}

func (s *scheduler) now() time.Time { return time.Now().Add(time.Duration(s.ahead.Load())) }

func start(t *testing.T) *scheduler {
	t.Helper()
	s := &scheduler{T: t, Server: fakeapi.New(t)}
	s.Server.Apply(t, "compute", "apis/apis.kcp.io/v1alpha1/apiexportendpointslices", fmt.Sprintf(`
apiVersion: apis.kcp.io/v1alpha1
kind: APIExportEndpointSlice
metadata: {name: kubernetes}
status: {endpoints: [{url: "%s/services/apiexport/xyz/kubernetes"}]}`, s.URL))
	s.run()
	t.Cleanup(func() { s.stop() })
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	go s.syncers(ctx)
	return s
}

// syncers plays the syncers: it lets leaves go that are deleted.
func (s *scheduler) syncers(ctx context.Context) {
	for ; ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
		for _, path := range []string{deployments, configMaps, secrets, services, ingresses, claims} {
			for _, at := range s.Names("1a", path) {
				namespace, name, _ := strings.Cut(at, "/")
				if o := s.Get("1a", path, namespace, name); o != nil && o.GetDeletionTimestamp() != nil && !slices.Contains(o.GetFinalizers(), "stays") {
					s.Server.Apply(s, "1a", path, fmt.Sprintf(`{metadata: {name: %s, namespace: %s, finalizers: []}}`, name, namespace))
				}
			}
		}
	}
}

func (s *scheduler) run() {
	s.roots = roots.New(roots.Options{KCP: &rest.Config{Host: s.URL}, Workspace: "compute", Now: s.now})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.roots.Run(ctx) }()
	s.stop = func() {
		cancel()
		require.NoError(s, <-done)
	}
}

// restart replaces the Scheduler by one that knows nothing.
func (s *scheduler) restart() {
	s.stop()
	s.run()
}

func (s *scheduler) clusters(all ...*api.Cluster) {
	s.roots.Update(s.Context(), roots.State{Clusters: all, Exports: s.claims, Rebalance: s.rebalance, Published: &roots.Published{Scheduled: []schema.GroupVersionResource{
		{Group: "apps", Version: "v1", Resource: "deployments"}, {Version: "v1", Resource: "services"}, {Version: "v1", Resource: "persistentvolumeclaims"},
		{Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"},
	}}})
}

func (s *scheduler) deploy(text string) {
	s.Helper()
	s.Server.Apply(s, "1a", deployments, text)
}

// leaves returns the replicas of the leaves of web, such as c1=2.
func (s *scheduler) leaves() string {
	var out []string
	for _, name := range s.Names("1a", deployments) {
		cluster, ok := strings.CutPrefix(name, "shop/web--")
		if leaf := s.Get("1a", deployments, "shop", "web--"+cluster); ok && leaf != nil {
			n, _, _ := unstructured.NestedFieldNoCopy(leaf.Object, "spec", "replicas")
			out = append(out, fmt.Sprint(cluster, "=", n))
		}
	}
	return strings.Join(out, " ")
}

func (s *scheduler) scheduled() string { return s.scheduledOf("web") }

func (s *scheduler) scheduledOf(name string) string {
	all, _, _ := unstructured.NestedSlice(s.Get("1a", deployments, "shop", name).Object, "status", "conditions")
	for _, c := range all {
		if m := c.(map[string]any); m["type"] == api.ConditionScheduled {
			return fmt.Sprint(m["status"], " ", m["reason"], ": ", m["message"])
		}
	}
	return ""
}

func (s *scheduler) eventually(condition func() bool, what string) {
	s.Helper()
	require.Eventually(s, condition, time.Minute, 10*time.Millisecond, what)
}

const web = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec: {replicas: 4}`

func TestWithoutClusters(t *testing.T) {
	s := start(t)
	s.clusters(cluster("c1", false, 0))
	s.deploy(web)
	s.eventually(func() bool { return strings.HasPrefix(s.scheduled(), "False NoCluster: none of 1 clusters can run it") }, "condition")
	require.Empty(t, s.leaves())
	s.clusters(cluster("c1", true, 0))
	s.eventually(func() bool { return s.leaves() == "c1=4" && strings.HasPrefix(s.scheduled(), "True Scheduled") }, "scheduled")
}

func TestObjectsOfUsersAreKept(t *testing.T) {
	s := start(t)
	s.deploy(strings.Replace(web, "name: web", "name: web--c1", 1))
	s.clusters(cluster("c1", true, 0))
	s.deploy(web)
	s.eventually(func() bool {
		return strings.HasPrefix(s.scheduled(), "False NameCollision: Deployment web--c1 has the name of a leaf")
	}, "condition")
	require.Empty(t, s.Get("1a", deployments, "shop", "web--c1").GetLabels())
}

// shop is a Deployment that needs other objects.
const shop = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 2
  template:
    metadata: {labels: {app: web}}
    spec:
      serviceAccountName: web
      volumes: [{name: v, configMap: {name: files}}, {name: o, configMap: {name: absent, optional: true}}]
      containers: [{name: c, envFrom: [{secretRef: {name: keys}}]}]`

func (s *scheduler) object(path, text string) {
	s.Helper()
	s.Server.Apply(s, "1a", path, text)
}

// on returns the clusters that have a leaf of an object in the namespace shop.
func (s *scheduler) on(path, name string) string {
	var out []string
	for _, n := range s.Names("1a", path) {
		if cluster, ok := strings.CutPrefix(n, "shop/"+name+"--"); ok {
			out = append(out, cluster)
		}
	}
	return strings.Join(out, " ")
}

func TestWhatAWorkloadNeedsFollowsIt(t *testing.T) {
	s := start(t)
	s.clusters(cluster("c1", true, 0), cluster("c2", true, 0))
	s.object(configMaps, `{apiVersion: v1, kind: ConfigMap, metadata: {name: files, namespace: shop}, data: {a: b}}`)
	s.object(configMaps, `{apiVersion: v1, kind: ConfigMap, metadata: {name: unused, namespace: shop}}`)
	s.object(configMaps, `{apiVersion: v1, kind: ConfigMap, metadata: {name: files, namespace: elsewhere}}`)
	s.object(serviceAccounts, `{apiVersion: v1, kind: ServiceAccount, metadata: {name: web, namespace: shop}, imagePullSecrets: [{name: pull}]}`)
	s.object(secrets, `{apiVersion: v1, kind: Secret, metadata: {name: pull, namespace: shop}, data: {a: Yg==}}`)
	s.object(services, `{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {selector: {app: web}}}`)
	s.object(services, `{apiVersion: v1, kind: Service, metadata: {name: other, namespace: shop}, spec: {selector: {app: other}}}`)
	s.object(ingresses, `{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: web, namespace: shop}, spec: {defaultBackend: {service: {name: web}}}}`)
	s.deploy(shop)
	s.eventually(func() bool { return s.leaves() == "c1=1 c2=1" }, "divided")
	for path, name := range map[string]string{configMaps: "files", serviceAccounts: "web", secrets: "pull", services: "web", ingresses: "web"} {
		s.eventually(func() bool { return s.on(path, name) == "c1 c2" }, path)
	}
	s.eventually(func() bool {
		return s.scheduled() == "False DependencyMissing: secrets/keys does not exist: create it in this namespace"
	}, "missing")
	leaf := s.Get("1a", configMaps, "shop", "files--c1")
	require.Equal(t, "deployments.apps/web", leaf.GetAnnotations()[api.AnnotationNeededBy])
	require.Equal(t, "files", leaf.GetAnnotations()[api.AnnotationName])
	require.Equal(t, "b", leaf.Object["data"].(map[string]any)["a"])
	require.Empty(t, s.on(configMaps, "unused"))
	require.NotContains(t, s.Get("1a", configMaps, "shop", "unused").GetAnnotations(), api.AnnotationPlacement, "it is not touched")
	require.Equal(t, `{"c1":{},"c2":{}}`, s.Get("1a", configMaps, "shop", "files").GetAnnotations()[api.AnnotationPlacement])
	s.eventually(func() bool {
		return strings.Contains(fmt.Sprint(s.Get("1a", services, "shop", "other").Object["status"]), "no workload needs it")
	}, "a Service that selects nothing has a condition")

	s.object(secrets, `{apiVersion: v1, kind: Secret, metadata: {name: keys, namespace: shop}}`)
	s.eventually(func() bool {
		return strings.HasPrefix(s.scheduled(), "True Scheduled") && s.on(secrets, "keys") == "c1 c2"
	}, "it exists now")

	s.object(secrets, `{metadata: {name: keys--c2, namespace: shop, annotations: {workloads.kcp.dev/sync-error: "Denied: not here"}}}`)
	s.eventually(func() bool {
		return s.scheduled() == "False DependencyMissing: cluster c2 does not have secrets/keys: Denied: not here"
	}, "a cluster refuses it")
	s.object(secrets, `{metadata: {name: keys--c2, namespace: shop, annotations: {workloads.kcp.dev/sync-error: null}}}`)
	s.eventually(func() bool { return strings.HasPrefix(s.scheduled(), "True Scheduled") }, "the cluster has it now")

	s.object(configMaps, `{metadata: {name: files, namespace: shop}, data: {a: changed}}`)
	s.eventually(func() bool {
		return s.Get("1a", configMaps, "shop", "files--c2").Object["data"].(map[string]any)["a"] == "changed"
	}, "changes reach the leaves")

	s.deploy(`{metadata: {name: web, namespace: shop, annotations: {workloads.kcp.dev/weights: "c2=1"}}}`)
	s.eventually(func() bool { return s.leaves() == "c2=2" || strings.Contains(s.leaves(), "c2=2") }, "it moves")
	s.object(deployments, `{metadata: {name: web--c2, namespace: shop}, status: {availableReplicas: 2}}`)
	s.eventually(func() bool {
		return s.leaves() == "c2=2" && s.on(configMaps, "files") == "c2" && s.on(services, "web") == "c2" && s.on(ingresses, "web") == "c2"
	}, "what it needs follows")

	s.Delete("1a", deployments, "shop", "web")
	time.Sleep(50 * time.Millisecond) // for the leaf, kcp's garbage collector needs a moment
	s.Delete("1a", deployments, "shop", "web--c2")
	s.eventually(func() bool {
		return s.on(configMaps, "files")+s.on(services, "web")+s.on(secrets, "keys") == ""
	}, "nothing is needed any longer")
}

func TestALeafThatAUserMakesHasWhatItNeeds(t *testing.T) {
	s := start(t)
	s.clusters(cluster("c1", true, 0), cluster("c2", true, 0))
	s.object(configMaps, `{apiVersion: v1, kind: ConfigMap, metadata: {name: files, namespace: shop}}`)
	s.deploy(strings.Replace(shop, "namespace: shop", "namespace: shop, labels: {workloads.kcp.dev/cluster: c2}", 1))
	s.eventually(func() bool { return s.on(configMaps, "files") == "c2" }, "there")
	s.object(configMaps, `{apiVersion: v1, kind: ConfigMap, metadata: {name: files, namespace: shop, annotations: {workloads.kcp.dev/spread: Duplicate}}}`)
	s.eventually(func() bool { return s.on(configMaps, "files") == "c1 c2" }, "as the user says")
}

func TestVolumesStayAndWorkloadsComeToThem(t *testing.T) {
	s := start(t)
	s.clusters(cluster("c1", true, 0), cluster("c2", true, 0))
	s.object(claims, `{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, namespace: shop}}`)
	text := `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec: {replicas: 2, template: {spec: {volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]}}}`
	s.deploy(text)
	s.eventually(func() bool { return s.on(claims, "data") != "" }, "the volume is where the workload is")
	first := s.on(claims, "data")
	s.eventually(func() bool { return s.leaves() == first+"=2" }, "on one cluster")
	s.Delete("1a", deployments, "shop", "web")
	s.Delete("1a", deployments, "shop", "web--"+first)
	s.deploy(strings.ReplaceAll(text, "{name: web", "{name: other"))
	s.eventually(func() bool { return s.on(deployments, "other") != "" }, "another one needs it")
	require.Equal(t, first, s.on(deployments, "other"))
	require.Equal(t, first, s.on(claims, "data"))
}

// A StatefulSet is deleted and created again. Its claims, and perhaps its pods, are in the cluster where it was, also if
// another one has more room.
func TestAStatefulSetThatIsReplacedFindsItsVolumes(t *testing.T) {
	const statefulSets, end = "apis/apps/v1/statefulsets", `{metadata: {name: db--c1, namespace: shop, finalizers: []}}`
	for name, tc := range map[string]struct {
		before, after func(s *scheduler) // the next one is created
		adopted       bool
	}{
		"kubectl replace --force": {
			func(s *scheduler) { s.Delete("1a", statefulSets, "shop", "db--c1") },
			func(s *scheduler) { s.object(statefulSets, end) }, false,
		},
		"before its leaf is deleted": {
			func(*scheduler) {},
			func(s *scheduler) { s.Delete("1a", statefulSets, "shop", "db--c1"); s.object(statefulSets, end) }, false,
		},
		"kubectl delete --cascade=orphan": {
			func(s *scheduler) {
				s.object(statefulSets, `{metadata: {name: db--c1, namespace: shop, ownerReferences: []}}`)
			},
			func(*scheduler) {}, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			update := func(names ...string) {
				state := roots.State{Published: &roots.Published{Scheduled: []schema.GroupVersionResource{{Group: "apps", Version: "v1", Resource: "statefulsets"}}}}
				for _, name := range names {
					c := cluster(name, true, 0)
					c.Status.APIs[0].Resource = "statefulsets"
					c.Status.Capacity = &api.Capacity{Allocatable: corev1.ResourceList{"pods": resource.MustParse(map[string]string{"c1": "100", "c2": "1000"}[name])}}
					state.Clusters = append(state.Clusters, c)
				}
				s.roots.Update(t.Context(), state)
			}
			create := func() {
				s.object(statefulSets, `{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: db, namespace: shop}, spec: {replicas: 1, volumeClaimTemplates: [{metadata: {name: data}}]}}`)
			}
			leaf := func() *unstructured.Unstructured { return s.Get("1a", statefulSets, "shop", "db--c1") }
			update("c1")
			create()
			s.eventually(func() bool { return leaf() != nil }, "it runs in the only cluster")
			s.object(statefulSets, `{metadata: {name: db--c1, namespace: shop, finalizers: [stays]}}`)
			earlier := leaf().GetUID()
			update("c1", "c2")
			s.Delete("1a", statefulSets, "shop", "db")
			tc.before(s)
			create()
			explained := func() string {
				return s.Get("1a", statefulSets, "shop", "db").GetAnnotations()[api.AnnotationExplain]
			}
			s.eventually(func() bool { return strings.Contains(explained(), `"goal":1`) }, "it is decided")
			require.Equal(t, "c1", s.on(statefulSets, "db"), "the earlier one is there")
			tc.after(s)
			owner := s.Get("1a", statefulSets, "shop", "db").GetUID()
			s.eventually(func() bool {
				is := leaf()
				return strings.Contains(s.on(statefulSets, "db"), "c2") || is != nil && len(is.GetOwnerReferences()) == 1 && is.GetOwnerReferences()[0].UID == owner
			}, "it starts")
			require.Equal(t, "c1", s.on(statefulSets, "db"))
			require.Equal(t, tc.adopted, leaf().GetUID() == earlier)
		})
	}
}

// No other cluster has the data, and no syncer reports whether the pods run.
func TestTheClusterOfAVolumeIsGone(t *testing.T) {
	s := start(t)
	s.clusters(cluster("c1", true, 0))
	s.object(claims, `{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, namespace: shop}}`)
	s.deploy(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec: {replicas: 2, template: {spec: {volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]}}}`)
	s.eventually(func() bool { return s.leaves() == "c1=2" && s.scheduled() == "True Scheduled: " }, "it is scheduled")
	s.eventually(func() bool { return s.on(claims, "data") == "c1" }, "it has the volume")
	s.clusters(cluster("c2", true, 0))
	s.eventually(func() bool { return strings.HasPrefix(s.scheduled(), "False ClusterGone: there is no Cluster c1, ") }, "reported")
	require.Equal(t, "c1=2", s.leaves())

	const backup = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: backup, namespace: shop}
spec: {replicas: 1, template: {spec: {volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]}}}`
	s.deploy(backup)
	s.eventually(func() bool {
		return strings.HasPrefix(s.scheduledOf("backup"), "False ClusterGone: there is no Cluster c1, ")
	}, "another one waits, too")
	require.Equal(t, "c1", s.on(claims, "data"))
	s.clusters(cluster("c1", true, 0), cluster("c2", true, 0))
	s.eventually(func() bool { return s.scheduled() == "True Scheduled: " }, "it is back")
	s.eventually(func() bool { return s.on(deployments, "backup") == "c1" }, "it finds the volume")

	// The user gives the data up.
	s.clusters(cluster("c2", true, 0))
	for _, name := range []string{"web", "web--c1", "backup", "backup--c1"} {
		s.Delete("1a", deployments, "shop", name)
	}
	s.eventually(func() bool { return s.on(deployments, "web")+s.on(deployments, "backup") == "" }, "they are gone")
	s.deploy(backup)
	s.eventually(func() bool { return strings.HasPrefix(s.scheduledOf("backup"), "False ClusterGone: ") }, "only its claim is left")
	time.Sleep(100 * time.Millisecond) // nothing is decided any more
	s.object(claims, `{metadata: {name: data--c1, namespace: shop, finalizers: [stays]}}`)
	for _, name := range []string{"data", "data--c1"} {
		s.Delete("1a", claims, "shop", name)
	}
	s.eventually(func() bool { return s.on(deployments, "backup") == "c2" }, "it starts without the data")
}

// The claim is the place of the data, so its leaf is there before anything uses it.
func TestAWorkloadWaitsForTheLeafOfItsClaim(t *testing.T) {
	s := start(t)
	s.Refuse(func(r *http.Request) (int, string) {
		if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/data--c1") {
			return http.StatusForbidden, "no more claims"
		}
		return 0, ""
	})
	s.clusters(cluster("c1", true, 0))
	s.object(claims, `{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, namespace: shop}}`)
	s.deploy(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec: {replicas: 2, template: {spec: {volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]}}}`)
	s.eventually(func() bool {
		return s.scheduled() == "False LeafRefused: it waits for persistentvolumeclaims/data, which its pods need first: kcp refuses a leaf: no more claims"
	}, "it waits")
	require.Empty(t, s.leaves())
	s.Refuse(nil)
	s.deploy(`{metadata: {name: web, namespace: shop, labels: {changed: "true"}}}`)
	s.eventually(func() bool { return s.leaves() == "c1=2" && s.on(claims, "data") == "c1" }, "both are there")
}

// What runs in a cluster stays, with what it needs.
func TestAnAPIThatTheSetupNoLongerHas(t *testing.T) {
	s := start(t)
	c1 := cluster("c1", true, 0)
	s.clusters(c1)
	s.object(configMaps, `{apiVersion: v1, kind: ConfigMap, metadata: {name: files, namespace: shop}}`)
	s.deploy(shop)
	s.eventually(func() bool { return s.on(configMaps, "files") == "c1" && s.leaves() == "c1=2" }, "there")
	apps := []schema.GroupVersionResource{{Group: "apps", Version: "v1", Resource: "deployments"}}
	s.restart()
	require.False(t, s.roots.LeavesByCluster()["c1"].Complete, "the published APIs are not known")
	s.roots.Update(t.Context(), roots.State{Clusters: []*api.Cluster{c1}, Published: &roots.Published{Removed: apps}})
	s.eventually(func() bool { return s.roots.LeavesByCluster()["c1"].Complete }, "everything is listed")
	n := s.roots.LeavesByCluster()["c1"]
	require.Equal(t, 1, n.Removed)
	require.Greater(t, n.Count, 1, "with what it needs")
	s.deploy(strings.ReplaceAll(shop, "replicas: 2", "replicas: 3"))
	s.object(configMaps, `{metadata: {name: files, namespace: shop}, data: {a: changed}}`)
	s.eventually(func() bool {
		d, _, _ := unstructured.NestedString(s.Get("1a", configMaps, "shop", "files--c1").Object, "data", "a")
		return d == "changed"
	}, "what it needs is kept up to date")
	require.Equal(t, "c1=2", s.leaves(), "it is not scheduled")
	s.clusters(c1)
	s.eventually(func() bool { return s.leaves() == "c1=3" }, "the API is added again")
}

func TestNothingIsRemovedIfSomethingCannotBeListed(t *testing.T) {
	s := start(t)
	s.clusters(cluster("c1", true, 0))
	s.object(configMaps, `{apiVersion: v1, kind: ConfigMap, metadata: {name: files, namespace: shop}}`)
	s.deploy(shop)
	s.eventually(func() bool { return s.on(configMaps, "files") == "c1" }, "there")
	// The published APIs are not known: the workloads are not seen any longer.
	s.roots.Update(t.Context(), roots.State{
		Clusters: []*api.Cluster{cluster("c1", true, 0)}, Published: &roots.Published{Scheduled: []schema.GroupVersionResource{{Version: "v1", Resource: "services"}}},
	})
	s.object(configMaps, `{metadata: {name: files, namespace: shop}, data: {a: changed}}`)
	s.eventually(func() bool {
		d, _, _ := unstructured.NestedString(s.Get("1a", configMaps, "shop", "files--c1").Object, "data", "a")
		return d == "changed"
	}, "it is still kept up to date")
}

// The name of a long leaf does not contain the name of its root.
func TestALeafWithALongNameIsMadeAgain(t *testing.T) {
	s := start(t)
	s.clusters(cluster("c1", true, 0))
	name := strings.Repeat("long", 15) + "-end"
	s.deploy(strings.ReplaceAll(web, "name: web", "name: "+name))
	leaf := api.LeafName(name, "c1")
	s.eventually(func() bool { return s.Get("1a", deployments, "shop", leaf) != nil }, "there")
	first := s.Get("1a", deployments, "shop", leaf).GetUID()
	s.Delete("1a", deployments, "shop", leaf)
	s.eventually(func() bool {
		o := s.Get("1a", deployments, "shop", leaf)
		return o != nil && o.GetUID() != first
	}, "there again")
}

func TestWhatIsNoNameOfACluster(t *testing.T) {
	s := start(t)
	s.clusters(cluster("c1", true, 0))
	long := strings.Repeat("f", 64)
	for _, name := range []string{"a", "a--" + long} {
		s.object(configMaps, `{apiVersion: v1, kind: ConfigMap, metadata: {name: `+name+`, namespace: shop}}`)
	}
	s.object(configMaps, `{apiVersion: v1, kind: ConfigMap, metadata: {name: files, namespace: shop}}`)
	s.deploy(strings.Replace(shop, "name: web,", `name: web, annotations: {workloads.kcp.dev/placement: '{"`+long+`":{},"a/b":{}}'},`, 1))
	s.eventually(func() bool { return s.leaves() == "c1=2" && s.on(configMaps, "files") == "c1" }, "scheduled")
	s.Delete("1a", configMaps, "shop", "a--"+long)
	s.deploy(`{metadata: {name: web, namespace: shop}, spec: {replicas: 3}}`)
	s.eventually(func() bool { return s.leaves() == "c1=3" }, "the scheduler runs on")
	s.eventually(func() bool {
		return s.Get("1a", deployments, "shop", "web").GetAnnotations()[api.AnnotationPlacement] == `{"c1":{"replicas":3}}`
	}, "the annotation is replaced")
}

// Such as when a backup of the compute workspace is restored that is older than the Cluster.
func TestLeavesOfAClusterThatWasLostStay(t *testing.T) {
	s := start(t)
	s.clusters(cluster("c1", true, 0), cluster("c2", true, 0))
	s.object(configMaps, `{apiVersion: v1, kind: ConfigMap, metadata: {name: files, namespace: shop}}`)
	s.deploy(shop)
	s.eventually(func() bool { return s.on(configMaps, "files") == "c1 c2" }, "there")
	s.clusters(cluster("c1", true, 0))
	s.eventually(func() bool { return s.leaves() == "c1=2 c2=1" }, "the other cluster")
	before := s.Get("1a", deployments, "shop", "web--c2")
	s.object(configMaps, `{metadata: {name: files, namespace: shop}, data: {a: changed}}`)
	s.eventually(func() bool {
		d, _, _ := unstructured.NestedString(s.Get("1a", configMaps, "shop", "files--c1").Object, "data", "a")
		return d == "changed"
	}, "the ConfigMap was looked at")
	require.Equal(t, "c1 c2", s.on(configMaps, "files"))
	require.Equal(t, before.GetUID(), s.Get("1a", deployments, "shop", "web--c2").GetUID())
	require.Nil(t, s.Get("1a", deployments, "shop", "web--c2").GetDeletionTimestamp())
}

// A container names a Service with its namespace. The cluster has another one.
func TestNamesWithANamespace(t *testing.T) {
	s := start(t)
	s.clusters(cluster("c1", true, 0))
	for _, namespace := range []string{"shop", "backend"} {
		s.object(services, `{apiVersion: v1, kind: Service, metadata: {name: db, namespace: `+namespace+`}, spec: {selector: {app: db}}}`)
	}
	named := func(value string) string {
		return `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec: {replicas: 1, template: {spec: {containers: [{name: c, env: [{name: DB, value: "` + value + `"}]}]}}}`
	}
	for _, tc := range [][2]string{
		{"https://user:hidden@db.shop:5432", "as db.shop, and clusters do not have this name, because namespace shop has another name there: use db"},
		{"db.backend.svc.cluster.local", "use db.backend-"},
	} {
		s.deploy(named(tc[0]))
		s.eventually(func() bool { return strings.Contains(s.scheduled(), tc[1]) }, tc[0])
		require.NotContains(t, s.scheduled(), "hidden")
		require.Equal(t, "c1=1", s.leaves(), "it runs")
	}
	for _, other := range []string{"db", "db.example.com", "other.shop"} {
		s.deploy(named(other))
		s.eventually(func() bool { return strings.HasPrefix(s.scheduled(), "True Scheduled") }, other)
	}
}

// The syncer of a cluster writes its leaves. It does not get other Secrets by naming them there, neither in the leaf of
// a root, nor in one that it makes look like an object of a user.
func TestALeafDoesNotGetWhatItsRootDoesNotName(t *testing.T) {
	for name, change := range map[string]string{
		"a leaf":                  "",
		"a leaf without its root": ", annotations: {workloads.kcp.dev/name: web--c1}, ownerReferences: []",
		"a leaf of another root":  ", annotations: {workloads.kcp.dev/name: other}",
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			s.clusters(cluster("c1", true, 0))
			s.object(configMaps, `{apiVersion: v1, kind: ConfigMap, metadata: {name: files, namespace: shop}}`)
			s.object(secrets, `{apiVersion: v1, kind: Secret, metadata: {name: keys, namespace: shop}}`)
			for _, n := range []string{"stolen", "later"} {
				s.object(secrets, `{apiVersion: v1, kind: Secret, metadata: {name: `+n+`, namespace: shop}, data: {a: Yg==}}`)
			}
			s.deploy(shop)
			s.eventually(func() bool { return s.on(secrets, "keys")+s.on(deployments, "web") == "c1c1" }, "what it names is there")

			s.object(deployments, `{metadata: {name: web--c1, namespace: shop`+change+`}, spec: {template: {spec: {volumes: [{name: s, secret: {secretName: stolen}}]}}}}`)
			s.object(configMaps, `{apiVersion: v1, kind: ConfigMap, metadata: {name: more, namespace: shop}}`)
			s.object(deployments, `{apiVersion: apps/v1, kind: Deployment, metadata: {name: next, namespace: shop}, spec: {replicas: 1, template: {spec: {volumes: [{name: s, secret: {secretName: later}}]}}}}`)
			s.eventually(func() bool { return s.on(secrets, "later") == "c1" }, "the namespace was looked at since")
			require.Empty(t, s.on(secrets, "stolen"))
		})
	}
}
