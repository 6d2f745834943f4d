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
)

var workloads = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}

// sweeper returns a syncer that is not run, but watches.
func (s *sides) sweeper(endpoints ...string) *syncer {
	s.Helper()
	now := time.Now
	if s.now != nil {
		now = s.now
	}
	out := newSyncer(Options{
		KCP: &rest.Config{}, Physical: &rest.Config{Host: s.physical.URL}, Cluster: "c1", Setup: "demo-x", Now: now,
		Report: func(next State) { s.reported.Store(&next) },
	})
	require.NoError(s, out.connect(s.Context()))
	s.Cleanup(func() { out.up.Stop(); out.bound.Stop(); out.down.Stop() })
	out.update(s.Context(), endpoints, append(api.Dependencies(), claims, workloads), nil)
	s.eventually(func() bool { return out.down.Complete() }, "the physical cluster is listed")
	return out
}

// listed returns a sweeper that has listed everything, for a workspace that has bound the APIExport of the cluster.
func (s *sides) listed(more ...schema.GroupVersionResource) *syncer {
	s.Helper()
	s.bind("1a")
	k := s.sweeper(s.kcp.URL)
	k.update(s.Context(), nil, append(k.resources, more...), nil)
	s.eventually(func() bool { return k.up.Complete() && k.bound.Complete() && k.down.Complete() }, "both sides are listed")
	require.NoError(s, k.Identity.read(s.Context()))
	k.cluster.Store(s.cluster())
	return k
}

// cluster returns the Cluster.
func (s *sides) cluster() *api.Cluster {
	s.Helper()
	c, err := api.ClusterOf(s.kcp.Get(compute, clusters, "", "c1"))
	require.NoError(s, err)
	return c
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

// released is the Cluster of a user who releases orphans.
func (s *sides) released(token string) *api.Cluster {
	s.Helper()
	c := s.cluster()
	c.Annotations = map[string]string{api.AnnotationRemoveOrphans: token}
	return c
}

// An object without a leaf stays, whatever it is, and however long nothing brings its leaf back.
func TestOrphansStay(t *testing.T) {
	for name, tc := range map[string]struct{ path, resource, manifest, want string }{
		"a ConfigMap": {configMaps, "configmaps", "{kind: ConfigMap, apiVersion: v1}", ""},
		"a volume":    {volumes, "persistentvolumeclaims", "{kind: PersistentVolumeClaim, apiVersion: v1}", ", 1 of them have data"},
		"a custom resource": {"apis/postgresql.cnpg.io/v1/clusters", "clusters.postgresql.cnpg.io",
			"{kind: Cluster, apiVersion: postgresql.cnpg.io/v1}", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSides(t)
			var days atomic.Int64
			s.now = func() time.Time { return time.Now().Add(time.Duration(days.Load()) * 24 * time.Hour) }
			s.space("1a", tc.resource)
			s.physical.Apply(s, "", tc.path, tc.manifest[:len(tc.manifest)-1]+fmt.Sprintf(`,
metadata: {name: db, namespace: %s, labels: {workloads.kcp.dev/setup: demo-x}, annotations: {workloads.kcp.dev/leaf: "1a|shop/db"}}}`, namespaceOf("1a")))
			k := s.listed(schema.GroupVersionResource{Group: "postgresql.cnpg.io", Version: "v1", Resource: "clusters"})
			for range 3 {
				k.sweep(t.Context())
				days.Add(1)
			}
			require.NotNil(t, s.below("1a", tc.path, "db"))
			require.Nil(t, s.below("1a", tc.path, "db").GetDeletionTimestamp())
			require.Empty(t, s.physical.Writes(), "nothing is written to it either")
			require.Equal(t, 2, s.reported.Load().Orphans)
			require.Contains(t, s.reported.Load().OrphanMessage,
				"2 objects in cluster c1 have no object in kcp"+tc.want+", 1 of them are namespaces, which would be removed with everything in them: they are not removed")
		})
	}
}

// operated is the owner of what an operator makes for an object of a user. Operators copy the labels and annotations of
// that object.
const operated = ", ownerReferences: [{apiVersion: example.com/v1, kind: Prometheus, name: main, uid: u1, controller: true}]"

func TestWhatAnOperatorMakesIsNoOrphan(t *testing.T) {
	s := newSides(t)
	s.space("1a", "deployments.apps")
	s.leaf("1a", "other", "{}")
	s.physical.Apply(s, "", deployments, fmt.Sprintf(`
{kind: Deployment, apiVersion: apps/v1, metadata: {name: prometheus-main, namespace: %s, labels: {workloads.kcp.dev/setup: demo-x, workloads.kcp.dev/cluster: c1},
  annotations: {workloads.kcp.dev/leaf: "1a|shop/main--c1"}%s}}`, namespaceOf("1a"), operated))
	k := s.listed()
	k.sweep(t.Context())
	require.Zero(t, s.reported.Load().Orphans, s.reported.Load().OrphanMessage)
}

const volumes = "api/v1/persistentvolumeclaims"

// volume creates a PersistentVolumeClaim without a leaf.
func (s *sides) volume(name string) {
	s.Helper()
	s.physical.Apply(s, "", volumes, fmt.Sprintf(`
{kind: PersistentVolumeClaim, apiVersion: v1, metadata: {name: %s, namespace: %s, labels: {workloads.kcp.dev/setup: demo-x}, annotations: {workloads.kcp.dev/leaf: "1a|shop/%s"}}}`,
		name, namespaceOf("1a"), name))
}

// The leaf of an orphan is there again.
func TestAnOrphanIsNoneAnyLonger(t *testing.T) {
	s := newSides(t)
	s.orphans(1)
	k := s.listed()
	k.sweep(t.Context())
	require.NotEmpty(t, s.reported.Load().OrphanMessage)
	s.kcp.Apply(t, "1a", configMaps, `{kind: ConfigMap, apiVersion: v1, metadata: {name: o0, namespace: shop, labels: {workloads.kcp.dev/cluster: c1}}}`)
	s.eventually(func() bool { return k.up.Classes(api.Dependencies()[0])[""] == 1 }, "a leaf is back")
	k.sweep(t.Context())
	require.Empty(t, s.reported.Load().OrphanMessage)
	require.Zero(t, s.reported.Load().Orphans)
}

// What is an orphan is not known if kcp cannot be listed: nothing is shown, and no token removes anything.
func TestOrphansAreNotFoundIfKcpCannotBeListed(t *testing.T) {
	s := newSides(t)
	s.orphans(4)
	s.bind("1a")
	broken := fakeapi.New(t)
	broken.Refuse(func(*http.Request) (int, string) { return http.StatusInternalServerError, "the disk is full" })
	for name, endpoints := range map[string][]string{"one shard fails": {s.kcp.URL, broken.URL}, "no shard is known": nil} {
		t.Run(name, func(t *testing.T) {
			k := s.sweeper(endpoints...)
			s.eventually(func() bool {
				return len(endpoints) == 0 || len(k.up.Failures()) == len(k.resources) && len(k.boundClaims()) > 0
			}, name)
			k.cluster.Store(s.released(tokenOf(k.orphans.find(k.resources))))
			k.sweep(t.Context())
			require.Len(t, s.physical.Names("", configMaps), 5)
			require.Empty(t, s.reported.Load().OrphanMessage)
		})
	}
}

func TestReleasedOrphansAreRemoved(t *testing.T) {
	s := newSides(t)
	const n = 6
	s.orphans(n)
	s.volume("data")
	k := s.listed()
	k.sweep(t.Context())
	message := s.reported.Load().OrphanMessage
	require.Contains(t, message, "8 objects in cluster c1 have no object in kcp, 1 of them have data, 1 of them are namespaces")
	k.cluster.Store(s.released(message[strings.LastIndex(message, "=")+1:]))
	s.physical.Apply(t, "", configMaps, fmt.Sprintf(`
kind: ConfigMap
apiVersion: v1
metadata: {name: late, namespace: %s, labels: {workloads.kcp.dev/setup: demo-x, workloads.kcp.dev/cluster: c1}, annotations: {workloads.kcp.dev/leaf: "1a|shop/late"}}`,
		namespaceOf("1a")))
	s.eventually(func() bool { return k.down.Classes(api.Dependencies()[0])[""] == n+1 }, "another orphan comes")
	k.sweep(t.Context())
	require.Len(t, s.physical.Names("", configMaps), n+2, "only those that the user has seen are released")
	s.physical.Delete("", configMaps, namespaceOf("1a"), "late")
	s.eventually(func() bool { return k.down.Classes(api.Dependencies()[0])[""] == n }, "it is gone")
	k.sweep(t.Context())
	require.Equal(t, []string{namespaceOf("1a") + "/foreign"}, s.physical.Names("", configMaps))
	require.Empty(t, s.physical.Names("", volumes), "with the data that the message names")
	require.Equal(t, []string{"/kube-system"}, s.physical.Names("", spaces))
	require.Empty(t, s.reported.Load().OrphanMessage)
}

// What cannot be removed is shown again.
func TestAReleasedOrphanThatCannotBeRemoved(t *testing.T) {
	s := newSides(t)
	s.orphans(2)
	k := s.listed()
	k.cluster.Store(s.released(tokenOf(k.orphans.find(k.resources))))
	s.physical.Refuse(func(r *http.Request) (int, string) {
		if r.Method == http.MethodDelete && strings.HasSuffix(r.URL.Path, "/o1") {
			return http.StatusForbidden, "not today"
		}
		return 0, ""
	})
	k.sweep(t.Context())
	require.Contains(t, s.reported.Load().OrphanMessage, "1 objects in cluster c1 have no object in kcp")
	c, _ := k.seen()
	require.NotContains(t, s.reported.Load().OrphanMessage, c.Annotations[api.AnnotationRemoveOrphans])
}

// A leaf is not visible when its workspace has lost the APIBinding. The message has their number, before a user releases any.
func TestOrphansWithoutABinding(t *testing.T) {
	s := newSides(t)
	s.orphans(1)
	k := s.listed()
	s.kcp.Delete("1a", bindings, "", "cluster-c1")
	s.eventually(func() bool { return len(k.boundClaims()) == 0 }, "the binding is gone")
	k.sweep(t.Context())
	require.Contains(t, s.reported.Load().OrphanMessage,
		"2 objects in cluster c1 have no object in kcp, 1 of them are in workspaces that do not exist or have no APIBinding to APIExport cluster-c1")
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

// What a namespace has of an API that is not synced may have leaves.
func TestANamespaceWithAnAPIThatIsNotSyncedIsNoOrphan(t *testing.T) {
	s := newSides(t)
	s.orphans(0)
	k := s.listed()
	s.hadStatefulSets(k)
	k.sweep(t.Context())
	require.Empty(t, s.reported.Load().OrphanMessage)
}

// Namespaces of leaves that are gone are forgotten, and so are those that never existed in the cluster.
func TestSpacesOfLeavesThatAreGoneAreForgotten(t *testing.T) {
	s := newSides(t)
	k := s.listed()
	s.leaf("1a", "web", "{}")
	s.leaf("2b", "web", "{}")
	s.eventually(func() bool { k.spaces.mu.Lock(); defer k.spaces.mu.Unlock(); return len(k.spaces.known) == 2 }, "learned")
	s.kcp.Delete("2b", deployments, "shop", "web--c1")
	s.eventually(func() bool { return k.up.Classes(workloads)[""] == 1 }, "its leaf is gone")
	k.sweep(t.Context())
	require.Equal(t, map[string]space{namespaceOf("1a"): {"1a", "shop"}}, k.spaces.known)
}

// hadStatefulSets records that the namespace has had StatefulSets, which the sweeper does not sync.
func (s *sides) hadStatefulSets(k *syncer) {
	s.Helper()
	s.physical.Apply(s, "", spaces, fmt.Sprintf(
		`{metadata: {name: %s, annotations: {has.workloads.kcp.dev/statefulsets.apps: "true"}}}`, namespaceOf("1a")))
	s.eventually(func() bool { return !removable(k.down.List(namespaces)[0].Unstructured, k.resources) }, "the watch shows it")
}
