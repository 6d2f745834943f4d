package syncer

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
)

// What has to be in the cluster before pods says that it is.
func TestAPolicySaysThatTheClusterHasIt(t *testing.T) {
	const policies = "apis/networking.k8s.io/v1/networkpolicies"
	s := newSides(t)
	s.kcp.Apply(t, compute, clusters, `{metadata: {name: c1}, status: {apis: [{group: networking.k8s.io, resource: networkpolicies, version: v1, state: Published}]}}`)
	defer s.start()()
	s.kcp.Apply(t, "1a", policies, `{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: deny--c1, namespace: shop,
		labels: {workloads.kcp.dev/cluster: c1}, annotations: {workloads.kcp.dev/name: deny}}, spec: {podSelector: {}}}`)
	says := func() string {
		return s.kcp.Get("1a", policies, "shop", "deny--c1").GetAnnotations()[api.AnnotationSynced]
	}
	s.eventually(func() bool { return says() == "1" }, "the cluster has it")
	s.kcp.Apply(t, "1a", policies, `{metadata: {name: deny--c1, namespace: shop}, spec: {podSelector: {matchLabels: {a: b}}}}`)
	s.eventually(func() bool { return says() == "2" }, "and the change")
}

// A restored backup has the leaves of a workload and of what restricts its connections.
func TestPodsWaitForPoliciesOfABackup(t *testing.T) {
	s := newSides(t)
	s.kcp.Apply(s, compute, clusters, `
metadata: {name: c1}
status: {apis: [{group: apps, resource: deployments, version: v1, state: Published},
  {group: networking.k8s.io, resource: networkpolicies, version: v1, state: Published}]}`)
	closed := atomic.Bool{}
	closed.Store(true)
	s.physical.Refuse(func(r *http.Request) (int, string) {
		if closed.Load() && r.Method != http.MethodGet && strings.Contains(r.URL.Path, "/networkpolicies/deny-all") {
			return http.StatusInternalServerError, "try again"
		}
		return 0, ""
	})
	s.leaf("1a", "web", "{replicas: 1}")
	s.kcp.Apply(s, "1a", policies, `
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: deny-all--c1, namespace: shop, labels: {workloads.kcp.dev/cluster: c1},
  annotations: {workloads.kcp.dev/name: deny-all}}, spec: {podSelector: {}}}`)
	defer s.start()()
	finalizers := func() int { return len(s.kcp.Get("1a", deployments, "shop", "web--c1").GetFinalizers()) }
	s.eventually(func() bool { return finalizers() > 0 }, "the syncer has seen the workload")
	time.Sleep(time.Second)
	require.Nil(t, s.below("1a", deployments, "web"), "the cluster does not have the NetworkPolicy")
	closed.Store(false)
	s.eventually(func() bool { return s.below("1a", deployments, "web") != nil }, "it has")
	require.NotNil(t, s.below("1a", policies, "deny-all"))
}

// The autoscaler of the cluster has the replicas.
func TestReplicasOfAnAutoscalerStay(t *testing.T) {
	s := newSides(t)
	defer s.start()()
	leaf := func(replicas int, more string) {
		s.kcp.Apply(t, "1a", deployments, fmt.Sprintf(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: web--c1, namespace: shop,
			labels: {workloads.kcp.dev/cluster: c1}, annotations: {workloads.kcp.dev/name: web, workloads.kcp.dev/scaled: "true"%s}},
			spec: {replicas: %d}}`, more, replicas))
	}
	leaf(3, "")
	namespace := api.DownstreamNamespace("demo-x", "1a", "shop")
	is := func() (replicas, change string) {
		o := s.physical.Get("", deployments, namespace, "web")
		if o == nil {
			return "", ""
		}
		n, _, _ := unstructured.NestedFieldNoCopy(o.Object, "spec", "replicas")
		return fmt.Sprint(n), o.GetAnnotations()["change"]
	}
	s.eventually(func() bool { n, _ := is(); return n == "3" && s.condition("1a", "web") == "True Synced: " }, "created")
	s.physical.Apply(t, "", deployments, `{metadata: {name: web, namespace: `+namespace+`}, spec: {replicas: 8}}`)
	leaf(4, `, change: "1"`)
	s.eventually(func() bool { n, change := is(); return n == "8" && change == "1" }, "they stay")
	leaf(0, `, change: "2"`)
	s.eventually(func() bool { n, change := is(); return n == "0" && change == "2" }, "the user stops it")
}

// The watch of the cluster has not shown the object yet, and its autoscaler has already set other replicas.
func TestReplicasOfAnAutoscalerStayBeforeTheWatchShowsThem(t *testing.T) {
	s := newSides(t)
	made := false
	s.physical.Refuse(func(r *http.Request) (int, string) {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/deployments/web") && !made {
			made = true
			s.physical.Apply(t, "", deployments, fmt.Sprintf(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: %s,
				labels: {workloads.kcp.dev/setup: demo-x}, annotations: {workloads.kcp.dev/leaf: "1a|shop/web--c1"}}, spec: {replicas: 8}}`, namespaceOf("1a")))
		}
		return 0, ""
	})
	defer s.start()()
	s.kcp.Apply(t, "1a", deployments, `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web--c1, namespace: shop,
		labels: {workloads.kcp.dev/cluster: c1}, annotations: {workloads.kcp.dev/name: web, workloads.kcp.dev/scaled: "true"}}, spec: {replicas: 3}}`)
	s.eventually(func() bool { return s.condition("1a", "web") == "True Synced: " }, "synced")
	n, _, _ := unstructured.NestedFieldNoCopy(s.below("1a", deployments, "web").Object, "spec", "replicas")
	require.EqualValues(t, 8, n)
}

// What was left in a cluster without a leaf keeps the NetworkPolicies of its namespace. Beside workloads that have
// leaves, their user has deleted them.
func TestOrphansStayProtected(t *testing.T) {
	for name, orphaned := range map[string]bool{"an orphan": true, "a workload with a leaf": false} {
		t.Run(name, func(t *testing.T) {
			s := newSides(t)
			s.bind("1a")
			s.space("1a", "deployments.apps")
			s.kcp.Apply(s, compute, clusters, `
metadata: {name: c1}
status: {apis: [{group: apps, resource: deployments, version: v1, state: Published},
  {group: networking.k8s.io, resource: networkpolicies, version: v1, state: Published}]}`)
			s.physical.Apply(s, "", deployments, fmt.Sprintf(`
{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: %s, labels: {workloads.kcp.dev/setup: demo-x, workloads.kcp.dev/cluster: c1},
  annotations: {workloads.kcp.dev/leaf: "1a|shop/web--c1"}}}`, namespaceOf("1a")))
			if !orphaned {
				s.leaf("1a", "web", "{replicas: 1}")
			}
			s.kcp.Apply(s, "1a", policies, `
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: deny-all--c1, namespace: shop, labels: {workloads.kcp.dev/cluster: c1},
  annotations: {workloads.kcp.dev/name: deny-all}}, spec: {podSelector: {}}}`)
			s.start()
			s.eventually(func() bool { return s.below("1a", policies, "deny-all") != nil }, "synced")
			s.kcp.Delete("1a", policies, "shop", "deny-all--c1")
			s.eventually(func() bool { return s.kcp.Get("1a", policies, "shop", "deny-all--c1") == nil }, "its leaf is gone")
			require.Equal(t, orphaned, s.below("1a", policies, "deny-all") != nil)
			require.NotNil(t, s.below("1a", deployments, "web"))
		})
	}
}
