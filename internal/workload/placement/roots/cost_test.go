package roots

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeapi"
	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

// known is a scheduler that knows many objects, and does not run: 400 roots and leaves, and a namespace with one root.
func known(t *testing.T) *Scheduler {
	t.Helper()
	server := fakeapi.New(t)
	add := func(namespace, name, label string) {
		server.Apply(t, "1a", "apis/apps/v1/deployments", fmt.Sprintf(
			`{apiVersion: apps/v1, kind: Deployment, metadata: {name: %s, namespace: %s, labels: {%s}}}`, name, namespace, label))
	}
	for i := range 200 {
		add("shop", fmt.Sprint("web-", i), "")
		add("shop", fmt.Sprint("web-", i, "--c1"), api.LabelCluster+": c1")
	}
	add("small", "web", "")
	s := New(Options{KCP: &rest.Config{Host: server.URL}, Workspace: "compute", Now: time.Now})
	deployments := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	clusters := []*api.Cluster{{}, {}}
	clusters[0].Name, clusters[1].Name = "c1", "c2"
	v := s.view
	v.update(State{Clusters: clusters, Published: &Published{Scheduled: []schema.GroupVersionResource{deployments}}})
	set, err := watch.New(t.Context(), watch.Options{Config: v.KCP, Path: watch.AllClusters, Now: v.Now, Class: v.classOf})
	require.NoError(t, err)
	t.Cleanup(set.Stop)
	v.change(func(f *facts) { f.set, f.endpoints = set, []string{server.URL} })
	s.watch(t.Context())
	require.Eventually(t, set.Complete, time.Minute, 5*time.Millisecond)
	return s
}

// allocs returns how often a function allocates. The watches of the scheduler allocate at times, too, so the least of
// several measurements is taken.
func allocs(once func()) float64 {
	least := testing.AllocsPerRun(10, once)
	for range 4 {
		least = min(least, testing.AllocsPerRun(10, once))
	}
	return least
}

// What an event of a namespace costs depends on what is in it, and not on what is in others.
func TestANamespaceCostsWhatIsInIt(t *testing.T) {
	s := known(t)
	ns := item{api.Namespaces(), watch.Key{Cluster: "1a", Name: "small"}}
	once := func() {
		_, err := s.handle(t.Context(), ns)
		require.NoError(t, err)
	}
	once()
	require.Equal(t, 1, s.queue.Len())
	require.Less(t, allocs(once), 100.0, "the other namespace has 400 objects. The race detector allocates, too")
}

// Leaves are counted by their classes, without unpacking one.
func TestCountingLeavesCostsNothing(t *testing.T) {
	s := known(t)
	require.Equal(t, Leaves{Count: 200, Complete: true}, s.LeavesByCluster()["c1"])
	require.Equal(t, map[string]Leaves{"c1": {Count: 200, Complete: true}, "c2": {Complete: true}}, s.LeavesByCluster())
	require.Less(t, allocs(func() { s.LeavesByCluster() }), 50.0)
	s.view.change(func(f *facts) { f.Published = &Published{Removed: f.Published.Scheduled} })
	require.Equal(t, Leaves{Count: 200, Removed: 200, Complete: true}, s.LeavesByCluster()["c1"])
}

// The event of a root needs no more than its class.
func TestAnEventOfARootDoesNotUnpackIt(t *testing.T) {
	s := known(t)
	r := s.view.facts().Published.Scheduled[0]
	root, leaf := watch.Key{Cluster: "1a", Namespace: "shop", Name: "web-0"}, watch.Key{Cluster: "1a", Namespace: "shop", Name: "web-0--c1"}
	s.changed(r, root)
	s.changed(r, leaf)
	require.Less(t, allocs(func() { s.changed(r, root) }), 5.0)
	require.Greater(t, allocs(func() { s.changed(r, leaf) }), 5.0, "its annotation has the name of its root")
}

// A namespace can have hundreds of objects. It is looked at when a workload needs something else, or is selected by
// something else, and not with each change of it.
func TestMostChangesOfAWorkloadDoNotCostItsNamespace(t *testing.T) {
	s := known(t)
	i := item{s.view.facts().Published.Scheduled[0], watch.Key{Cluster: "1a", Namespace: "small", Name: "web"}}
	root, ok := s.view.set().Get(i.GroupVersionResource, i.Key)
	require.True(t, ok)
	for n, step := range []struct {
		spec string
		want bool
	}{
		{"", true},
		{"", false},
		{"image: web:v2, env: [{name: A, value: b}]", false},
		{"image: web:v2, envFrom: [{configMapRef: {name: settings}}]", true},
		{"image: web:v3, envFrom: [{configMapRef: {name: settings}}]", false},
		{"image: web:v3", true},
	} {
		container := fakeapi.Object("{name: web, " + step.spec + "}")
		require.NoError(t, unstructured.SetNestedSlice(root.Object, []any{container}, "spec", "template", "spec", "containers"))
		root.SetGeneration(int64(n))
		_, affects := s.decider.decide(s.view.subject(i, root))
		require.Equal(t, step.want, affects, step.spec)
	}
	require.NoError(t, unstructured.SetNestedField(root.Object, "shop", "spec", "template", "metadata", "labels", "app"))
	_, affects := s.decider.decide(s.view.subject(i, root))
	require.True(t, affects, "a Service can select its pods")
}
