package roots_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/placement/roots"
)

func TestALostClusterIsReplacedAfterItsTime(t *testing.T) {
	s := start(t)
	s.clusters(cluster("c1", true, 0), cluster("c2", true, 0))
	s.deploy(web)
	s.eventually(func() bool { return s.leaves() == "c1=2 c2=2" }, "divided")
	s.clusters(cluster("c1", true, 0), cluster("c2", false, 30*time.Second))
	s.deploy(`{metadata: {name: web, namespace: shop, labels: {changed: "true"}}}`)
	s.eventually(func() bool {
		return s.Get("1a", deployments, "shop", "web--c1").GetLabels()["changed"] == "true"
	}, "the root was scheduled")
	require.Equal(t, "c1=2 c2=2", s.leaves(), "the cluster may come back")
	before := s.Get("1a", deployments, "shop", "web--c2")
	lost := cluster("c2", false, 61*time.Second)
	lost.Status.Conditions[0].Reason = api.ReasonUnreachable
	s.clusters(cluster("c1", true, 0), lost)
	s.eventually(func() bool { return s.leaves() == "c1=4 c2=2" }, "other clusters run its share, too")
	s.eventually(func() bool {
		return strings.Contains(s.Get("1a", deployments, "shop", "web").GetAnnotations()[api.AnnotationExplain], "it is not ready (Unreachable) for longer than evictAfter: other clusters run its share, too")
	}, "the reason of the condition")
	s.object(deployments, `{metadata: {name: web--c1, namespace: shop}, status: {replicas: 4, availableReplicas: 2}}`)
	s.object(deployments, `{metadata: {name: web--c2, namespace: shop}, status: {replicas: 2, availableReplicas: 2}}`)
	s.running(2)

	// It is back: its pods have served all the time, and half of the others do not yet.
	s.clusters(cluster("c1", true, 0), cluster("c2", true, 0))
	s.eventually(func() bool { return s.leaves() == "c1=2 c2=2" }, "those that do not run are not needed")
	require.Equal(t, before.GetUID(), s.Get("1a", deployments, "shop", "web--c2").GetUID())
	require.Nil(t, s.Get("1a", deployments, "shop", "web--c2").GetDeletionTimestamp())
}

// However long clusters are not ready: what is scheduled to them stays if nothing replaces it.
func TestNothingIsDeletedForASignalThatIsMissing(t *testing.T) {
	s := start(t)
	s.clusters(cluster("c1", true, 0), cluster("c2", true, 0))
	s.deploy(web)
	s.deploy(strings.Replace(web, "name: web, namespace: shop", "name: all, namespace: shop, annotations: {workloads.kcp.dev/spread: Duplicate}", 1))
	s.deploy(strings.Replace(web, "name: web, namespace: shop", "name: one, namespace: shop, annotations: {workloads.kcp.dev/spread: Single}", 1))
	s.eventually(func() bool {
		return s.leaves() == "c1=2 c2=2" && s.on(deployments, "all") == "c1 c2" && s.on(deployments, "one") != ""
	}, "scheduled")
	one := s.on(deployments, "one")
	s.clusters(cluster("c1", false, time.Hour), cluster("c2", false, time.Hour))
	for _, name := range []string{"web", "all", "one"} {
		s.deploy(fmt.Sprintf(`{metadata: {name: %s, namespace: shop, labels: {changed: "true"}}}`, name))
		s.eventually(func() bool {
			on := strings.Fields(s.on(deployments, name))
			return len(on) > 0 && s.Get("1a", deployments, "shop", name+"--"+on[0]).GetLabels()["changed"] == "true"
		}, "the root was scheduled")
	}
	require.Equal(t, "c1=2 c2=2", s.leaves())
	require.Equal(t, "c1 c2", s.on(deployments, "all"))
	require.Equal(t, one, s.on(deployments, "one"))
	for _, name := range s.Names("1a", deployments) {
		require.Nil(t, s.Get("1a", deployments, "shop", strings.TrimPrefix(name, "shop/")).GetDeletionTimestamp(), name)
	}
}

// A workload says itself whether others run its share, and when.
func TestFailoverIsChosen(t *testing.T) {
	for name, tc := range map[string]struct {
		annotations string
		ago         time.Duration
		want        string
	}{
		"by default":               {"", 2 * time.Minute, "c1=4 c2=2"},
		"never":                    {"workloads.kcp.dev/failover: Never", time.Hour, "c1=2 c2=2"},
		"later":                    {"workloads.kcp.dev/failover: 5m", 2 * time.Minute, "c1=2 c2=2"},
		"later, and it is time":    {"workloads.kcp.dev/failover: 5m", 6 * time.Minute, "c1=4 c2=2"},
		"earlier than the cluster": {"workloads.kcp.dev/failover: 10s", 20 * time.Second, "c1=4 c2=2"},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			s.clusters(cluster("c1", true, 0), cluster("c2", true, 0))
			s.deploy(strings.Replace(web, "name: web, namespace: shop", "name: web, namespace: shop, annotations: {"+tc.annotations+"}", 1))
			s.eventually(func() bool { return s.leaves() == "c1=2 c2=2" }, "divided")
			s.clusters(cluster("c1", true, 0), cluster("c2", false, tc.ago))
			s.deploy(`{metadata: {name: web, namespace: shop, labels: {changed: "true"}}}`)
			s.eventually(func() bool { return s.Get("1a", deployments, "shop", "web--c1").GetLabels()["changed"] == "true" }, "scheduled")
			require.Equal(t, tc.want, s.leaves())
		})
	}
}

// A workload of which one instance may run ends in its cluster before it starts in another one.
func TestOneInstanceAtATime(t *testing.T) {
	for name, text := range map[string]string{
		"single":   strings.Replace(web, "name: web, namespace: shop", "name: web, namespace: shop, annotations: {workloads.kcp.dev/spread: Single}", 1),
		"recreate": strings.Replace(web, "replicas: 4", "replicas: 4, strategy: {type: Recreate}", 1),
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			s.clusters(cluster("c1", true, 0), cluster("c2", true, 0))
			s.deploy(text)
			s.eventually(func() bool { return s.on(deployments, "web") != "" }, "scheduled")
			first := s.on(deployments, "web")
			second := map[string]string{"c1": "c2", "c2": "c1"}[first]
			s.object(deployments, fmt.Sprintf(`{metadata: {name: web--%s, namespace: shop, finalizers: [stays]}, status: {replicas: 4, availableReplicas: 4}}`, first))
			drained := cluster(first, true, 0)
			drained.Spec.Unschedulable, drained.Annotations = true, map[string]string{api.AnnotationDrain: ""}
			s.clusters(drained, cluster(second, true, 0))
			s.eventually(func() bool { return s.Get("1a", deployments, "shop", "web--"+first).GetDeletionTimestamp() != nil }, "it ends")
			s.deploy(`{metadata: {name: web, namespace: shop, labels: {changed: "true"}}}`)
			s.eventually(func() bool {
				return s.Get("1a", deployments, "shop", "web").GetAnnotations()[api.AnnotationExplain] == "[{\"cluster\":\""+second+"\",\"chosen\":true,\"reason\":\"is a candidate\",\"goal\":4,\"replicas\":0}]"
			}, "the next one waits")
			require.Equal(t, first, s.on(deployments, "web"))
			s.object(deployments, fmt.Sprintf(`{metadata: {name: web--%s, namespace: shop, finalizers: []}}`, first))
			s.eventually(func() bool { return s.on(deployments, "web") == second }, "it has ended")
		})
	}
}

// The Deployments are listed again, which takes long, and the cluster is cordoned meanwhile. The leaf that was written
// is known, however long ago that was.
func TestAWorkloadDoesNotStartTwiceWhileItIsListedAgain(t *testing.T) {
	for name, text := range map[string]string{
		"single":   strings.Replace(web, "namespace: shop", "namespace: shop, annotations: {workloads.kcp.dev/spread: Single}", 1),
		"recreate": strings.Replace(web, "replicas: 4", "replicas: 4, strategy: {type: Recreate}", 1),
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			s.clusters()
			s.deploy(text)
			s.eventually(func() bool { return strings.Contains(s.scheduled(), "there are no clusters") }, "seen")
			s.Blind(deployments) // until the test ends
			s.clusters(cluster("c1", true, 0))
			s.eventually(func() bool { return s.on(deployments, "web") == "c1" }, "it starts")
			s.ahead.Store(int64(time.Minute))
			cordoned := cluster("c1", true, 0)
			cordoned.Spec.Unschedulable = true
			s.clusters(cordoned, cluster("c2", true, 0))
			s.eventually(func() bool {
				placed := s.Get("1a", deployments, "shop", "web").GetAnnotations()[api.AnnotationPlacement]
				return strings.Contains(placed, "c1") || s.on(deployments, "web") != "c1"
			}, "decided again")
			require.Equal(t, "c1", s.on(deployments, "web"))
		})
	}
}

// A leaf that kcp refuses is a problem of the user, who learns the reason.
func TestALeafThatKCPRefuses(t *testing.T) {
	for code, kind := range map[int]string{http.StatusForbidden: "quota", http.StatusRequestEntityTooLarge: "size"} {
		t.Run(kind, func(t *testing.T) {
			s := start(t)
			s.object(configMaps, `{apiVersion: v1, kind: ConfigMap, metadata: {name: files, namespace: shop}, data: {a: b}}`)
			s.Refuse(func(r *http.Request) (int, string) {
				if r.Method == http.MethodPatch && (strings.HasSuffix(r.URL.Path, "/web--c1") || strings.HasSuffix(r.URL.Path, "/files--c2")) {
					return code, "the " + kind + " is exceeded"
				}
				return 0, ""
			})
			s.clusters(cluster("c1", true, 0), cluster("c2", true, 0))
			s.deploy(shop)
			s.eventually(func() bool { return s.scheduled() == "False LeafRefused: kcp refuses a leaf: the "+kind+" is exceeded" }, "the workload")
			require.Equal(t, "c2", s.on(deployments, "web"), "the other leaf is written")
			s.eventually(func() bool {
				return s.Get("1a", configMaps, "shop", "files").GetAnnotations()[api.AnnotationScheduleError] ==
					"LeafRefused: kcp refuses a leaf: the "+kind+" is exceeded"
			}, "what it needs")
			s.Refuse(nil)
			s.deploy(`{metadata: {name: web, namespace: shop, labels: {changed: "true"}}}`)
			s.eventually(func() bool { return s.on(deployments, "web") == "c1 c2" && s.on(configMaps, "files") == "c1 c2" }, "written")
		})
	}
}

// A leaf that kcp refuses neither delays the next attempt to write another one, nor keeps one from being deleted.
func TestALeafThatKCPRefusesDelaysNoOther(t *testing.T) {
	s := start(t)
	s.clusters(cluster("c3", true, 0))
	s.deploy(strings.Replace(web, "namespace: shop", "namespace: shop, annotations: {workloads.kcp.dev/spread: Duplicate}", 1))
	s.eventually(func() bool { return s.leaves() == "c3=4" }, "there")
	failures := &atomic.Int64{}
	s.Refuse(func(r *http.Request) (int, string) {
		switch {
		case r.Method != http.MethodPatch:
		case strings.HasSuffix(r.URL.Path, "/web--c1"):
			return http.StatusForbidden, "the quota is exceeded"
		case strings.HasSuffix(r.URL.Path, "/web--c2") && failures.Add(1) <= 3:
			return http.StatusInternalServerError, "try again"
		}
		return 0, ""
	})
	drained := cluster("c3", true, 0)
	drained.Spec.Unschedulable, drained.Annotations = true, map[string]string{api.AnnotationDrain: ""}
	s.clusters(cluster("c1", true, 0), cluster("c2", true, 0), drained)
	s.eventually(func() bool { return s.leaves() == "c2=4" }, "one is written, and one is deleted")
	s.eventually(func() bool { return strings.HasPrefix(s.scheduled(), "False LeafRefused: ") }, "the reason")
}

// A cluster is given up while its syncer still runs: the syncer sees no deletion, so that nothing is removed in the
// cluster.
func TestAbandonedLeavesAreNotSeenAsDeleted(t *testing.T) {
	s := start(t)
	s.clusters(cluster("c1", true, 0))
	s.deploy(web)
	s.eventually(func() bool { return s.leaves() == "c1=4" }, "scheduled")
	s.eventually(func() bool { return s.roots.LeavesByCluster()["c1"].Count == 1 }, "seen")
	require.Contains(t, s.Get("1a", deployments, "shop", "web--c1").GetFinalizers(), api.FinalizerSyncer)
	s.Writes()
	s.roots.Update(t.Context(), roots.State{Published: &roots.Published{Removed: []schema.GroupVersionResource{{Group: "apps", Version: "v1", Resource: "deployments"}}}})
	s.eventually(func() bool { return s.roots.LeavesByCluster()["c1"].Count == 1 }, "seen")
	require.NoError(t, s.roots.Abandon(t.Context(), "c1"))
	require.Nil(t, s.Get("1a", deployments, "shop", "web--c1"))
	all := slices.DeleteFunc(s.Writes(), func(w string) bool { return !strings.HasSuffix(w, "shop/web--c1") })
	require.Equal(t, []string{"PATCH apis/apps/v1/deployments shop/web--c1", "DELETE apis/apps/v1/deployments shop/web--c1"}, all, "the finalizer goes first")
}

// givenUp returns a cluster that is removed by force.
func givenUp(name string) *api.Cluster {
	c := cluster(name, true, 0)
	c.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	c.Annotations = map[string]string{api.AnnotationForceRemoval: "true"}
	return c
}

// What the scheduler deletes or writes of a cluster that is given up would end, or come back, while its syncer still
// runs.
func TestTheSchedulerLeavesWhatIsGivenUp(t *testing.T) {
	s := start(t)
	s.clusters(cluster("c1", true, 0), cluster("c2", true, 0))
	s.deploy(web)
	s.eventually(func() bool { return s.leaves() == "c1=2 c2=2" }, "divided")
	s.clusters(givenUp("c1"), cluster("c2", true, 0))
	s.eventually(func() bool { return s.leaves() == "c1=2 c2=4" }, "others run its share at once")
	require.Nil(t, s.Get("1a", deployments, "shop", "web--c1").GetDeletionTimestamp(), "its syncer would see a deletion")

	require.NoError(t, s.roots.Abandon(t.Context(), "c1"))
	require.Nil(t, s.Get("1a", deployments, "shop", "web--c1"))
	s.deploy(`{metadata: {name: web, namespace: shop, labels: {changed: "true"}}}`)
	s.eventually(func() bool {
		return s.Get("1a", deployments, "shop", "web--c2").GetLabels()["changed"] == "true"
	}, "the root was scheduled")
	require.Equal(t, "c2=4", s.leaves(), "it is not written again")
}

func TestWhatAWorkloadNeedsIsGivenUpWithIt(t *testing.T) {
	s := start(t)
	s.clusters(cluster("c1", true, 0), cluster("c2", true, 0))
	s.object(configMaps, `{apiVersion: v1, kind: ConfigMap, metadata: {name: files, namespace: shop}, data: {a: b}}`)
	s.deploy(shop)
	s.eventually(func() bool { return s.on(configMaps, "files") == "c1 c2" }, "it follows")
	s.clusters(givenUp("c1"), cluster("c2", true, 0))
	data := func(name string) any { return s.Get("1a", configMaps, "shop", name).Object["data"] }
	change := func(value string) {
		s.object(configMaps, `{metadata: {name: files, namespace: shop}, data: {a: `+value+`}}`)
		s.eventually(func() bool { return fmt.Sprint(data("files--c2")) == "map[a:"+value+"]" }, "it was written again")
	}
	change("b2") // what was decided before has been written then
	before := data("files--c1")
	s.object(configMaps, `{metadata: {name: files--c1, namespace: shop, finalizers: []}}`)
	change("c")
	require.Equal(t, before, data("files--c1"))
	require.Empty(t, s.Get("1a", configMaps, "shop", "files--c1").GetFinalizers(), "its syncer would see a deletion")
}

// A divided workload with the strategy Recreate moves one replica after another. Each starts when the one that it
// replaces has ended: decisions follow each other faster than pods end.
func TestADividedReplicaEndsBeforeItStartsElsewhere(t *testing.T) {
	s := start(t)
	s.clusters(cluster("c1", true, 0))
	s.deploy(strings.NewReplacer("replicas: 4", "replicas: 3, strategy: {type: Recreate}",
		"namespace: shop", "namespace: shop, annotations: {workloads.kcp.dev/spread: Divide}").Replace(web))
	s.eventually(func() bool { return s.leaves() == "c1=3" }, "scheduled")
	s.object(deployments, `{metadata: {name: web--c1, namespace: shop}, status: {replicas: 3, availableReplicas: 3}}`)
	s.running(3)
	drained := cluster("c1", true, 0)
	drained.Spec.Unschedulable, drained.Annotations = true, map[string]string{api.AnnotationDrain: ""}
	s.clusters(drained, cluster("c2", true, 0))
	s.eventually(func() bool { return s.leaves() == "c1=2 c2=0" }, "one ends")
	s.object(deployments, `{metadata: {name: web--c1, namespace: shop}, status: {replicas: 2, availableReplicas: 2, terminatingReplicas: 1}}`)
	s.running(2)
	require.Equal(t, "c1=2 c2=0", s.leaves())
	s.object(deployments, `{metadata: {name: web--c1, namespace: shop}, status: {terminatingReplicas: 0}}`)
	s.eventually(func() bool { return s.leaves() == "c1=1 c2=1" }, "it has ended, and the next one ends")
}

// A backup of kcp was restored that does not have a root which the watch still shows. A leaf of it would be deleted
// with what runs in the cluster.
func TestARootThatIsGoneGetsNoLeaves(t *testing.T) {
	s := start(t)
	s.clusters()
	s.deploy(web)
	s.eventually(func() bool { return strings.Contains(s.scheduled(), "there are no clusters") }, "seen")
	reads := &atomic.Int64{}
	s.Refuse(func(r *http.Request) (int, string) {
		if r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, "/deployments/web") {
			return 0, ""
		}
		reads.Add(1)
		return http.StatusNotFound, "it is not in the backup"
	})
	s.clusters(cluster("c1", true, 0))
	s.eventually(func() bool { return reads.Load() > 1 }, "looked for")
	require.Empty(t, s.leaves())
	s.Refuse(nil)
	s.eventually(func() bool { return s.leaves() == "c1=4" }, "there")
}

// A backup of kcp was restored that does not have a leaf which the watch still shows. It is not created: its root may
// not be there either.
func TestALeafThatIsGoneIsNotUpdated(t *testing.T) {
	s := start(t)
	s.clusters(cluster("c1", true, 0), cluster("c2", true, 0))
	s.deploy(web)
	s.eventually(func() bool { return s.leaves() == "c1=2 c2=2" }, "divided")
	for _, leaf := range []string{"web--c1", "web--c2"} {
		s.object(deployments, fmt.Sprintf(`{metadata: {name: %s, namespace: shop}, status: {replicas: 2, availableReplicas: 2}}`, leaf))
	}
	s.running(4) // the watch has shown both
	writes := &atomic.Int64{}
	s.Refuse(func(r *http.Request) (int, string) {
		if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/deployments/web--c1") {
			writes.Add(1)
		}
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/deployments") {
			return http.StatusServiceUnavailable, "the watch shows what was before"
		}
		return 0, ""
	})
	s.object(deployments, `{metadata: {name: web--c1, namespace: shop, finalizers: []}}`)
	s.Delete("1a", deployments, "shop", "web--c1")
	s.clusters(cluster("c1", true, 0), cluster("c2", false, time.Hour))
	s.eventually(func() bool { return writes.Load() > 1 }, "it is to run what c2 has")
	require.Equal(t, "c2=2", s.leaves())
	s.Refuse(nil)
	s.eventually(func() bool { return s.leaves() == "c1=4 c2=2" }, "there")
}
