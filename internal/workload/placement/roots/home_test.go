package roots

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeapi"
	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

// Workloads with the same claim are decided at once, before a leaf of any of them is there. A decision of one counts
// for the next one, and does not when it is forgotten.
func TestWorkloadsWithTheSameClaimGoToOneCluster(t *testing.T) {
	server := fakeapi.New(t)
	server.Apply(t, "1a", "api/v1/persistentvolumeclaims", `{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, namespace: shop}}`)
	for _, name := range []string{"web", "backup"} {
		server.Apply(t, "1a", "apis/apps/v1/deployments", fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: %s, namespace: shop}
spec:
  replicas: 2
  template: {spec: {containers: [{name: c, resources: {requests: {cpu: "1"}}}], volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]}}`, name))
	}
	published := &Published{Scheduled: []schema.GroupVersionResource{
		{Group: "apps", Version: "v1", Resource: "deployments"}, {Version: "v1", Resource: "persistentvolumeclaims"},
	}}
	s := New(Options{KCP: &rest.Config{Host: server.URL}, Workspace: "compute", Now: time.Now})
	var clusters []*api.Cluster
	for name, cpu := range map[string]int64{"c1": 4000, "c2": 3000} {
		c := &api.Cluster{}
		c.Name, c.Status.Capacity = name, &api.Capacity{Allocatable: cpus(cpu)}
		c.Status.Conditions = []metav1.Condition{{Type: api.ConditionReady, Status: metav1.ConditionTrue}}
		c.Status.APIs = []api.APIStatus{{Group: "apps", Resource: "deployments", Version: "v1", State: api.APIPublished}}
		clusters = append(clusters, c)
	}
	v := s.view
	v.update(State{Clusters: clusters, Published: published})
	set, err := watch.New(t.Context(), watch.Options{Config: v.KCP, Path: watch.AllClusters, Now: v.Now, Class: v.classOf})
	require.NoError(t, err)
	t.Cleanup(set.Stop)
	v.change(func(f *facts) { f.set, f.endpoints = set, []string{server.URL} })
	s.watch(t.Context())
	require.Eventually(t, set.Complete, time.Minute, 5*time.Millisecond)

	subjectOf := func(name string) *subject {
		i := workload("1a", name)
		root, ok := set.Get(i.GroupVersionResource, i.Key)
		require.True(t, ok)
		return v.subject(i, root)
	}
	web, backup := subjectOf("web"), subjectOf("backup")
	for _, sub := range []*subject{web, backup} {
		d, _ := s.decider.decide(sub)
		require.Equal(t, map[string]int64{"c1": 2}, d.Goal, "the other one has more room for the second")
	}
	s.decider.forget(backup.item)
	require.Len(t, s.decider.decisions.users, 1)
	s.decider.forget(web.item)
	require.Empty(t, s.decider.decisions.users)
}
