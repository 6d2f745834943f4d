package roots_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kcpctl/kcpctl/internal/testutil/fakeapi"
	"github.com/kcpctl/kcpctl/internal/workload/api"
	"github.com/kcpctl/kcpctl/internal/workload/roots"
)

const deployments = "apis/apps/v1/deployments"

// cluster returns a Cluster that serves Deployments, and became ready, or not ready, a time ago.
func cluster(name string, ready bool, ago time.Duration) *api.Cluster {
	status := metav1.ConditionFalse
	if ready {
		status = metav1.ConditionTrue
	}
	return &api.Cluster{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: api.ClusterStatus{
			Conditions: []metav1.Condition{{Type: api.ConditionReady, Status: status, LastTransitionTime: metav1.NewTime(time.Now().Add(-ago))}},
			APIs:       []api.APIStatus{{Group: "apps", Resource: "deployments", Version: "v1", State: api.APIPublished}},
		},
	}
}

// scheduler is a kcp with a running Scheduler.
type scheduler struct {
	*testing.T
	*fakeapi.Server
	roots *roots.Scheduler
}

func start(t *testing.T) *scheduler {
	t.Helper()
	s := &scheduler{T: t, Server: fakeapi.New(t)}
	s.roots = roots.New(roots.Options{KCP: &rest.Config{Host: s.URL}, Workspace: "compute", Now: time.Now})
	s.Server.Apply(t, "compute", "apis/apis.kcp.io/v1alpha1/apiexportendpointslices", fmt.Sprintf(`
apiVersion: apis.kcp.io/v1alpha1
kind: APIExportEndpointSlice
metadata: {name: kubernetes}
status: {endpoints: [{url: "%s/services/apiexport/xyz/kubernetes"}]}`, s.URL))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.roots.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	return s
}

func (s *scheduler) clusters(all ...*api.Cluster) {
	s.roots.Update(s.Context(), all, []schema.GroupVersionResource{{Group: "apps", Version: "v1", Resource: "deployments"}})
}

func (s *scheduler) deploy(text string) {
	s.Helper()
	s.Server.Apply(s, "1a", deployments, text)
}

// leaves returns the replicas of the leaves, such as c1=2.
func (s *scheduler) leaves() string {
	var out []string
	for _, name := range s.Names("1a", deployments) {
		if _, cluster, ok := strings.Cut(name, "--"); ok {
			n, _, _ := unstructured.NestedFieldNoCopy(s.Get("1a", deployments, "shop", "web--"+cluster).Object, "spec", "replicas")
			out = append(out, fmt.Sprint(cluster, "=", n))
		}
	}
	return strings.Join(out, " ")
}

func (s *scheduler) scheduled() string {
	all, _, _ := unstructured.NestedSlice(s.Get("1a", deployments, "shop", "web").Object, "status", "conditions")
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
	s.clusters(cluster("c1", true, 0), cluster("c2", false, 61*time.Second))
	s.eventually(func() bool { return strings.Contains(s.leaves(), "c1=4") }, "its share runs elsewhere")
}

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
