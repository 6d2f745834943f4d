package syncer

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/kcpctl/kcpctl/internal/testutil/fakeapi"
	"github.com/kcpctl/kcpctl/internal/workload/api"
)

// sweeper returns a syncer that is not run, but watches.
func (s *sides) sweeper(endpoints ...string) *syncer {
	s.Helper()
	out := &syncer{
		Options: Options{KCP: &rest.Config{}, Physical: &rest.Config{Host: s.physical.URL}, Cluster: "c1", Setup: "demo-x", Now: time.Now,
			Report: func(next State) { s.reported.Store(&next) }},
		queue: newQueue(), latency: newLatency(), released: map[types.UID]bool{},
	}
	require.NoError(s, out.connect(s.Context()))
	s.Cleanup(func() { out.up.Stop(); out.bound.Stop(); out.down.Stop() })
	out.update(s.Context(), endpoints, api.Dependencies())
	s.eventually(func() bool { return out.down.Complete() }, "the physical cluster is listed")
	return out
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
metadata: {name: %s, labels: {workloads.kcp.dev/setup: demo-x, workloads.kcp.dev/cluster: c1, workloads.kcp.dev/workspace: %s, workloads.kcp.dev/namespace: shop},
  annotations: {has.workloads.kcp.dev/%s: "true"}}`, namespaceOf(cluster), cluster, resource))
}

// orphans creates ConfigMaps without leaves.
func (s *sides) orphans(n int) {
	s.Helper()
	s.space("1a", "configmaps")
	for i := range n {
		s.physical.Apply(s, "", configMaps, fmt.Sprintf(`
metadata: {name: o%d, namespace: %s, labels: {workloads.kcp.dev/setup: demo-x, workloads.kcp.dev/cluster: c1}, annotations: {workloads.kcp.dev/leaf: "1a|shop/o%d"}}`,
			i, namespaceOf("1a"), i))
	}
	s.physical.Apply(s, "", configMaps, fmt.Sprintf(`{metadata: {name: foreign, namespace: %s}}`, namespaceOf("1a")))
}

func TestOrphans(t *testing.T) {
	s := newSides(t)
	s.orphans(4)
	k := s.listed()
	k.sweep(t.Context())
	require.Len(t, s.physical.Names("", configMaps), 5, "the first look removes nothing")
	k.sweep(t.Context())
	require.Equal(t, []string{namespaceOf("1a") + "/foreign"}, s.physical.Names("", configMaps))
	s.eventually(func() bool { return len(k.down.List(api.Dependencies()[0])) == 0 }, "the watch sees it")
	k.sweep(t.Context())
	require.Len(t, s.physical.Names("", spaces), 1)
	k.sweep(t.Context())
	require.Empty(t, s.physical.Names("", spaces), "a namespace without objects is removed last")
}

func TestOrphansAreKeptIfKcpCannotBeListed(t *testing.T) {
	s := newSides(t)
	s.orphans(4)
	broken := fakeapi.New(t)
	broken.Refuse(func(*http.Request) (int, string) { return http.StatusInternalServerError, "the disk is full" })
	k := s.sweeper(s.kcp.URL, broken.URL)
	s.eventually(func() bool { return len(k.up.Failures()) == len(api.Dependencies()) }, "one shard fails")
	for range 3 {
		k.sweep(t.Context())
	}
	require.Len(t, s.physical.Names("", configMaps), 5)

	k = s.sweeper()
	for range 3 {
		k.sweep(t.Context())
	}
	require.Len(t, s.physical.Names("", configMaps), 5, "no shard is known")
}

func TestManyOrphansAreKept(t *testing.T) {
	s := newSides(t)
	s.orphans(manyOrphans)
	k := s.listed()
	for range 3 {
		k.sweep(t.Context())
	}
	require.Len(t, s.physical.Names("", configMaps), manyOrphans+1)
	require.Contains(t, s.reported.Load().Orphans, "5 of 5 objects in cluster c1 have no object in kcp")
	s.kcp.Apply(t, "1a", configMaps, `{metadata: {name: o0, namespace: shop, labels: {workloads.kcp.dev/cluster: c1}}}`)
	s.eventually(func() bool { return k.up.Count(api.Dependencies()[0], nil) == 1 }, "a leaf is back")
	for range 2 {
		k.sweep(t.Context())
	}
	require.Len(t, s.physical.Names("", configMaps), 2, "below the brake the rest is removed")
	require.Empty(t, s.reported.Load().Orphans)
}

func TestReleasedOrphansAreRemoved(t *testing.T) {
	s := newSides(t)
	s.orphans(manyOrphans)
	k := s.listed()
	k.sweep(t.Context())
	message := s.reported.Load().Orphans
	k.release = message[strings.LastIndex(message, "=")+1:]
	s.physical.Apply(t, "", configMaps, fmt.Sprintf(`
metadata: {name: late, namespace: %s, labels: {workloads.kcp.dev/setup: demo-x, workloads.kcp.dev/cluster: c1}, annotations: {workloads.kcp.dev/leaf: "1a|shop/late"}}`,
		namespaceOf("1a")))
	s.eventually(func() bool { return k.down.Count(api.Dependencies()[0], nil) == manyOrphans+1 }, "another orphan comes")
	k.sweep(t.Context())
	k.sweep(t.Context())
	require.Len(t, s.physical.Names("", configMaps), manyOrphans+2, "only those that the user has seen are released")
	s.physical.Delete("", configMaps, namespaceOf("1a"), "late")
	s.eventually(func() bool { return k.down.Count(api.Dependencies()[0], nil) == manyOrphans }, "it is gone")
	k.sweep(t.Context())
	require.Equal(t, []string{namespaceOf("1a") + "/foreign"}, s.physical.Names("", configMaps))
	require.Empty(t, s.reported.Load().Orphans)
}

// A leaf is not visible either when its workspace has lost the APIBinding.
func TestOrphansAreKeptWithoutABinding(t *testing.T) {
	s := newSides(t)
	s.orphans(1)
	k := s.listed()
	s.kcp.Delete("1a", bindings, "", "cluster-c1")
	s.eventually(func() bool { return len(k.boundClusters()) == 0 }, "the binding is gone")
	for range 3 {
		k.sweep(t.Context())
	}
	require.Len(t, s.physical.Names("", configMaps), 2)
	require.Contains(t, s.reported.Load().Orphans, "1 of 1 objects in cluster c1 have no object in kcp, 1 of them in workspaces that do not exist or have no APIBinding")
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
	for range 2 {
		k.sweep(t.Context())
	}
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
	s.physical.Apply(t, "", spaces, fmt.Sprintf(`{metadata: {name: %s, annotations: {has.workloads.kcp.dev/deployments.apps: "true"}}}`, namespaceOf("1a")))
	s.eventually(func() bool { return !removable(k.down.List(namespaces)[0].Unstructured, k.resources) }, "the namespace has had Deployments")
	for range 3 {
		k.sweep(t.Context())
	}
	require.Len(t, s.physical.Names("", spaces), 1)
}
