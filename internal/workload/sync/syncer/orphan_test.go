package syncer

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeapi"
	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

var workloads = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}

// sweeper returns a syncer that is not run, but watches.
func (s *sides) sweeper(endpoints ...string) *syncer {
	s.Helper()
	out := newSyncer(Options{
		KCP: &rest.Config{}, Physical: &rest.Config{Host: s.physical.URL}, Cluster: "c1", Setup: "demo-x", Now: s.later,
		Report: func(next State) { s.reported.Store(&next) },
	})
	require.NoError(s, out.connect(s.Context()))
	s.Cleanup(func() { out.up.Stop(); out.bound.Stop(); out.ending.Stop(); out.down.Stop() })
	out.update(s.Context(), endpoints, append(api.Dependencies(), claims, workloads))
	s.eventually(func() bool { return out.down.Complete() }, "the physical cluster is listed")
	return out
}

// later is the time of a sweeper.
func (s *sides) later() time.Time { return time.Now().Add(time.Duration(s.ahead.Load())) }

// pass lets time pass between two looks of a sweeper, a few minutes at a time.
func (s *sides) pass(k *syncer, d time.Duration) {
	s.Helper()
	const step = 5 * time.Minute
	for ; d > 0; d -= step {
		k.sweep(s.Context())
		s.ahead.Add(int64(min(d, step)))
	}
	k.sweep(s.Context())
}

// listed returns a sweeper that has listed everything, for a workspace that has bound the APIExport of the cluster.
func (s *sides) listed() *syncer {
	s.Helper()
	s.bind("1a")
	k := s.sweeper(s.kcp.URL)
	s.eventually(func() bool { return k.up.Complete() && k.bound.Complete() }, "kcp is listed")
	return k
}

// space creates the namespace of a workspace that has had objects of a resource.
func (s *sides) space(cluster, resource string) {
	s.Helper()
	s.physical.Apply(s, "", spaces, fmt.Sprintf(`
kind: Namespace
apiVersion: v1
metadata: {name: %s, labels: {workloads.kcp.dev/setup: demo-x, workloads.kcp.dev/cluster: c1, workloads.kcp.dev/workspace: %s, workloads.kcp.dev/namespace: shop},
  annotations: {has.workloads.kcp.dev/%s: "true"}}`, namespaceOf(cluster), cluster, resource))
}

// orphans creates ConfigMaps without leaves.
func (s *sides) orphans(n int) {
	s.Helper()
	s.space("1a", "configmaps")
	for i := range n {
		s.physical.Apply(s, "", configMaps, fmt.Sprintf(`
kind: ConfigMap
apiVersion: v1
metadata: {name: o%d, namespace: %s, labels: {workloads.kcp.dev/setup: demo-x, workloads.kcp.dev/cluster: c1}, annotations: {workloads.kcp.dev/leaf: "1a|shop/o%d"}}`,
			i, namespaceOf("1a"), i))
	}
	s.physical.Apply(s, "", configMaps, fmt.Sprintf(`{kind: ConfigMap, apiVersion: v1, metadata: {name: foreign, namespace: %s}}`, namespaceOf("1a")))
}

// An object without a leaf is removed after an hour, and never one with data.
func TestOrphans(t *testing.T) {
	s := newSides(t)
	s.orphans(4)
	s.volume("data")
	k := s.listed()
	s.pass(k, 59*time.Minute)
	require.Len(t, s.physical.Names("", configMaps), 5, "its time is not over")
	require.Contains(t, s.reported.Load().Orphans, "5 objects in cluster c1 have no object in kcp, 1 of them have data")
	s.pass(k, 2*time.Minute)
	require.Equal(t, []string{namespaceOf("1a") + "/foreign"}, s.physical.Names("", configMaps))
	s.eventually(func() bool { return len(k.down.List(api.Dependencies()[0])) == 0 }, "the watch sees it")
	s.pass(k, 24*time.Hour)
	require.Equal(t, []string{namespaceOf("1a") + "/data"}, s.physical.Names("", volumes))
	require.Len(t, s.physical.Names("", spaces), 1, "it has a volume")
}

const volumes = "api/v1/persistentvolumeclaims"

// volume creates a PersistentVolumeClaim without a leaf.
func (s *sides) volume(name string) {
	s.Helper()
	s.physical.Apply(s, "", volumes, fmt.Sprintf(`
{kind: PersistentVolumeClaim, apiVersion: v1, metadata: {name: %s, namespace: %s, labels: {workloads.kcp.dev/setup: demo-x}, annotations: {workloads.kcp.dev/leaf: "1a|shop/%s"}}}`,
		name, namespaceOf("1a"), name))
}

// What is found is shown before it is removed.
func TestOrphansAreReportedFirst(t *testing.T) {
	s := newSides(t)
	s.orphans(2)
	k := s.listed()
	k.sweep(t.Context())
	require.Contains(t, s.reported.Load().OrphansFound, "2 objects in cluster c1 have no object in kcp: they are removed after 1h0m0s")
	require.Empty(t, s.reported.Load().Orphans)
}

// What pods can need stays as long as there are workloads, also one that has a leaf: its rollout from the revision that
// needs it may not have ended.
func TestWhatPodsNeedStaysWithThem(t *testing.T) {
	for name, orphaned := range map[string]bool{"of an orphan": true, "of a workload with a leaf": false} {
		t.Run(name, func(t *testing.T) {
			s := newSides(t)
			s.orphans(1)
			s.physical.Apply(s, "", deployments, fmt.Sprintf(`
{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: %s, labels: {workloads.kcp.dev/setup: demo-x, workloads.kcp.dev/cluster: c1},
  annotations: {workloads.kcp.dev/leaf: "1a|shop/web--c1"}, finalizers: [pods]}}`, namespaceOf("1a")))
			if !orphaned {
				s.leaf("1a", "web", "{replicas: 1}")
			}
			k := s.listed()
			s.pass(k, 2*time.Hour)
			require.Len(t, s.physical.Names("", configMaps), 2)
			require.Equal(t, orphaned, s.below("1a", deployments, "web").GetDeletionTimestamp() != nil)
			s.physical.Apply(s, "", deployments, fmt.Sprintf(`{metadata: {name: web, namespace: %s, finalizers: []}}`, namespaceOf("1a")))
			s.physical.Delete("", deployments, namespaceOf("1a"), "web")
			s.eventually(func() bool { return len(k.down.List(workloads)) == 0 }, "the watch sees it")
			s.pass(k, time.Minute)
			require.Len(t, s.physical.Names("", configMaps), 1)
		})
	}
}

// A syncer that starts again continues to count, and one whose clock is ahead does not count faster.
func TestTheGraceOfOrphansSurvivesRestarts(t *testing.T) {
	s := newSides(t)
	s.orphans(1)
	s.pass(s.listed(), 25*time.Minute)
	s.ahead.Add(int64(24 * time.Hour))
	k := s.listed()
	s.pass(k, 30*time.Minute)
	require.Len(t, s.physical.Names("", configMaps), 2, "it counts what was recorded: 20 minutes")
	s.pass(k, 15*time.Minute)
	require.Len(t, s.physical.Names("", configMaps), 1)
}

// Many orphans of one workspace stay, and do not hold what others have lost.
func TestManyOrphansHoldThoseOfTheirWorkspace(t *testing.T) {
	for name, tc := range map[string]struct{ of1a, of2b, want int }{
		"one has many":  {6, 2, 6},
		"few of each":   {3, 2, 0},
		"many of all":   {4, 2, 6},
		"each has many": {6, 6, 12},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSides(t)
			s.bind("2b")
			for workspace, n := range map[string]int{"1a": tc.of1a, "2b": tc.of2b} {
				s.space(workspace, "configmaps")
				for i := range n {
					s.physical.Apply(s, "", configMaps, fmt.Sprintf(`
{kind: ConfigMap, apiVersion: v1, metadata: {name: o%d, namespace: %s, labels: {workloads.kcp.dev/setup: demo-x}, annotations: {workloads.kcp.dev/leaf: "%s|shop/o%d"}}}`,
						i, namespaceOf(workspace), workspace, i))
				}
			}
			s.pass(s.listed(), 61*time.Minute)
			require.Len(t, s.physical.Names("", configMaps), tc.want)
		})
	}
}

// The leaf of an orphan is there again.
func TestAnOrphanIsNoneAnyLonger(t *testing.T) {
	s := newSides(t)
	s.orphans(1)
	k := s.listed()
	s.pass(k, 30*time.Minute)
	annotation := func() string {
		return s.physical.Get("", configMaps, namespaceOf("1a"), "o0").GetAnnotations()["workloads.kcp.dev/orphan-for"]
	}
	s.eventually(func() bool { return annotation() != "" }, "recorded")
	s.kcp.Apply(t, "1a", configMaps, `{kind: ConfigMap, apiVersion: v1, metadata: {name: o0, namespace: shop, labels: {workloads.kcp.dev/cluster: c1}}}`)
	s.eventually(func() bool { return k.up.Count(api.Dependencies()[0], nil) == 1 }, "a leaf is back")
	s.eventually(func() bool {
		return k.down.List(api.Dependencies()[0])[0].GetAnnotations()["workloads.kcp.dev/orphan-for"] != ""
	}, "seen")
	k.sweep(t.Context())
	require.Empty(t, annotation())
	require.Empty(t, s.reported.Load().OrphansFound)
}

// Between two sweeps, the leaf of an orphan is there again, and is lost again: another hour begins.
func TestALeafBetweenTwoSweepsIsNotForgotten(t *testing.T) {
	s := newSides(t)
	s.orphans(1)
	k := s.listed()
	s.pass(k, 55*time.Minute)
	leaf := item{api.Dependencies()[0], watch.Key{Cluster: "1a", Namespace: "shop", Name: "o0"}}
	s.kcp.Apply(t, "1a", configMaps, `
{kind: ConfigMap, apiVersion: v1, metadata: {name: o0, namespace: shop, labels: {workloads.kcp.dev/cluster: c1}, finalizers: [workloads.kcp.dev/syncer]}}`)
	s.eventually(func() bool { return k.up.Count(leaf.GroupVersionResource, nil) == 1 }, "a leaf is back")
	s.eventually(func() bool { return k.sync(t.Context(), leaf) == nil }, "synced")
	require.Empty(t, s.physical.Get("", configMaps, namespaceOf("1a"), "o0").GetAnnotations()["workloads.kcp.dev/orphan-for"])
	s.kcp.Patch("1a", configMaps, "shop", "o0", map[string]any{"metadata": map[string]any{"finalizers": nil}})
	s.kcp.Delete("1a", configMaps, "shop", "o0")
	s.eventually(func() bool { return k.up.Count(leaf.GroupVersionResource, nil) == 0 }, "the leaf is lost")
	s.pass(k, 55*time.Minute)
	require.Len(t, s.physical.Names("", configMaps), 2, "its time is not over")
	s.pass(k, 10*time.Minute)
	require.Len(t, s.physical.Names("", configMaps), 1)
}

// A namespace in which a user has deleted the last object goes soon.
func TestEmptiedNamespaces(t *testing.T) {
	s := newSides(t)
	s.space("1a", "configmaps")
	s.space("2b", "configmaps")
	k := s.listed()
	require.NoError(t, k.noteRemoval(t.Context(), namespaceOf("1a")))
	s.eventually(func() bool {
		ns, _ := k.down.Get(namespaces, watch.Key{Name: namespaceOf("1a")})
		return isEmptied(ns.Unstructured)
	}, "recorded")
	k.sweep(t.Context())
	s.ahead.Add(int64(15 * time.Second))
	k.sweep(t.Context())
	require.Equal(t, []string{"/" + namespaceOf("2b")}, s.physical.Names("", spaces), "it is not known why the other one is empty")
	s.pass(k, 65*time.Minute)
	require.Empty(t, s.physical.Names("", spaces))
}

func TestOrphansAreKeptIfKcpCannotBeListed(t *testing.T) {
	s := newSides(t)
	s.orphans(4)
	s.bind("1a")
	broken := fakeapi.New(t)
	broken.Refuse(func(*http.Request) (int, string) { return http.StatusInternalServerError, "the disk is full" })
	k := s.sweeper(s.kcp.URL, broken.URL)
	s.eventually(func() bool { return len(k.up.Failures()) == len(k.resources) && len(k.boundClaims()) > 0 }, "one shard fails")
	s.pass(k, 2*time.Hour)
	require.Len(t, s.physical.Names("", configMaps), 5)

	k = s.sweeper()
	s.pass(k, 2*time.Hour)
	require.Len(t, s.physical.Names("", configMaps), 5, "no shard is known")
}

func TestManyOrphansAreKept(t *testing.T) {
	s := newSides(t)
	s.orphans(manyOrphans + 1)
	k := s.listed()
	s.pass(k, 2*time.Hour)
	require.Len(t, s.physical.Names("", configMaps), manyOrphans+2)
	require.Contains(t, s.reported.Load().Orphans, "6 objects in cluster c1 have no object in kcp: they are not removed, because that may be a mistake")
	s.kcp.Apply(t, "1a", configMaps, `{kind: ConfigMap, apiVersion: v1, metadata: {name: o0, namespace: shop, labels: {workloads.kcp.dev/cluster: c1}}}`)
	s.eventually(func() bool { return k.up.Count(api.Dependencies()[0], nil) == 1 }, "a leaf is back")
	k.sweep(t.Context())
	require.Len(t, s.physical.Names("", configMaps), 2, "below the brake the rest is removed")
	k.sweep(t.Context())
}

func TestReleasedOrphansAreRemoved(t *testing.T) {
	s := newSides(t)
	s.orphans(manyOrphans)
	s.volume("data")
	k := s.listed()
	k.sweep(t.Context())
	message := s.reported.Load().Orphans
	k.release = message[strings.LastIndex(message, "=")+1:]
	s.physical.Apply(t, "", configMaps, fmt.Sprintf(`
kind: ConfigMap
apiVersion: v1
metadata: {name: late, namespace: %s, labels: {workloads.kcp.dev/setup: demo-x, workloads.kcp.dev/cluster: c1}, annotations: {workloads.kcp.dev/leaf: "1a|shop/late"}}`,
		namespaceOf("1a")))
	s.eventually(func() bool { return k.down.Count(api.Dependencies()[0], nil) == manyOrphans+1 }, "another orphan comes")
	k.sweep(t.Context())
	require.Len(t, s.physical.Names("", configMaps), manyOrphans+2, "only those that the user has seen are released")
	s.physical.Delete("", configMaps, namespaceOf("1a"), "late")
	s.eventually(func() bool { return k.down.Count(api.Dependencies()[0], nil) == manyOrphans }, "it is gone")
	k.sweep(t.Context())
	require.Equal(t, []string{namespaceOf("1a") + "/foreign"}, s.physical.Names("", configMaps))
	require.Empty(t, s.physical.Names("", volumes), "with the data that the message names")
	require.Empty(t, s.reported.Load().Orphans)
}

// A leaf is not visible under the identity of another APIExport.
func TestOrphansAreKeptUnderAnotherIdentity(t *testing.T) {
	s := newSides(t)
	s.orphans(1)
	s.physical.Apply(t, "", spaces, fmt.Sprintf(`{metadata: {name: %s, annotations: {has.workloads.kcp.dev/configmaps: id-of-before}}}`, namespaceOf("1a")))
	k := s.listed()
	s.pass(k, 2*time.Hour)
	require.Len(t, s.physical.Names("", configMaps), 2)
	require.Contains(t, s.reported.Load().Orphans, "1 of them are in workspaces that do not exist or have no APIBinding")
}

// A leaf is not visible either when its workspace has lost the APIBinding.
func TestOrphansAreKeptWithoutABinding(t *testing.T) {
	s := newSides(t)
	s.orphans(1)
	k := s.listed()
	s.kcp.Delete("1a", bindings, "", "cluster-c1")
	s.eventually(func() bool { return len(k.boundClaims()) == 0 }, "the binding is gone")
	s.pass(k, 2*time.Hour)
	require.Len(t, s.physical.Names("", configMaps), 2)
	require.Contains(t, s.reported.Load().Orphans, "1 objects in cluster c1 have no object in kcp, 1 of them are in workspaces that do not exist or have no APIBinding")
}

func TestEmptyNamespacesAreRemovedHoweverManyThereAre(t *testing.T) {
	s := newSides(t)
	for i := range 2 * manyOrphans {
		s.space(fmt.Sprintf("%da", i), "configmaps")
	}
	s.space("volumes", "configmaps")
	s.physical.Apply(t, "", "api/v1/persistentvolumeclaims", fmt.Sprintf(`
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data-web-0, namespace: %s}}`, namespaceOf("volumes")))
	k := s.listed()
	s.pass(k, 65*time.Minute)
	require.Equal(t, []string{"/" + namespaceOf("volumes")}, s.physical.Names("", spaces), "volumes of StatefulSets have data")
	require.Empty(t, s.reported.Load().Orphans)
}

// Watches of objects and of namespaces are independent: the end of a namespace can be seen first.
func TestObjectsComeBackAfterTheirNamespace(t *testing.T) {
	s := newSides(t)
	s.start()
	s.leaf("1a", "web", "{replicas: 1}")
	s.eventually(func() bool { return s.condition("1a", "web") == "True Synced: " }, "synced")
	s.physical.Delete("", spaces, "", namespaceOf("1a"))
	s.physical.Delete("", deployments, namespaceOf("1a"), "web")
	s.eventually(func() bool { return s.below("1a", deployments, "web") != nil }, "it is back")
}

func TestNamespacesAreKeptIfAnAPIIsNotSynced(t *testing.T) {
	s := newSides(t)
	s.orphans(0)
	k := s.listed()
	s.hadStatefulSets(k)
	s.pass(k, 2*time.Hour)
	require.Len(t, s.physical.Names("", spaces), 1)
}

// Pods of a resource that is not synced are not seen.
func TestWhatPodsNeedStaysIfTheyAreNotSeen(t *testing.T) {
	s := newSides(t)
	s.orphans(1)
	k := s.listed()
	s.hadStatefulSets(k)
	s.pass(k, 2*time.Hour)
	require.Len(t, s.physical.Names("", configMaps), 2)
}

// The API of the workloads is no longer synced while a sweep writes to the cluster: what it has seen before counts.
func TestWhatPodsNeedStaysIfTheyAreNoLongerSeen(t *testing.T) {
	s := newSides(t)
	s.orphans(1)
	s.physical.Apply(s, "", deployments, fmt.Sprintf(`
{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: %s, labels: {workloads.kcp.dev/setup: demo-x, workloads.kcp.dev/cluster: c1},
  annotations: {workloads.kcp.dev/leaf: "1a|shop/web--c1"}}}`, namespaceOf("1a")))
	s.leaf("1a", "web", "{replicas: 1}")
	k := s.listed()
	s.pass(k, 55*time.Minute)
	ended := atomic.Bool{}
	s.physical.Refuse(func(r *http.Request) (int, string) {
		if r.Method == http.MethodPatch && !ended.Swap(true) { // how long it has had no leaf is recorded
			k.update(t.Context(), nil, append(api.Dependencies(), claims))
		}
		return 0, ""
	})
	s.eventually(func() bool { return k.down.Complete() }, "the physical cluster is watched again")
	s.pass(k, 5*time.Minute)
	require.True(t, ended.Load())
	require.Len(t, s.physical.Names("", configMaps), 2)
}

// hadStatefulSets records that the namespace has had StatefulSets, which the sweeper does not sync.
func (s *sides) hadStatefulSets(k *syncer) {
	s.Helper()
	s.physical.Apply(s, "", spaces, fmt.Sprintf(
		`{metadata: {name: %s, annotations: {has.workloads.kcp.dev/statefulsets.apps: "true"}}}`, namespaceOf("1a")))
	s.eventually(func() bool { return !removable(k.down.List(namespaces)[0].Unstructured, k.resources) }, "the watch shows it")
}
