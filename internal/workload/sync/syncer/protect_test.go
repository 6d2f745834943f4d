package syncer

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

// withPolicies publishes NetworkPolicies, too, and creates one for the cluster.
func (s *sides) withPolicies() {
	s.Helper()
	s.kcp.Apply(s, compute, clusters, `
metadata: {name: c1}
status: {apis: [{group: apps, resource: deployments, version: v1, state: Published},
  {group: networking.k8s.io, resource: networkpolicies, version: v1, state: Published}]}`)
	s.denyAll("{}")
}

func (s *sides) denyAll(selector string) {
	s.Helper()
	s.kcp.Apply(s, "1a", policies, `
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: deny-all--c1, namespace: shop, labels: {workloads.kcp.dev/cluster: c1},
  annotations: {workloads.kcp.dev/name: deny-all}}, spec: {podSelector: `+selector+`}}`)
}

// The leaves of workloads and of what restricts their connections are there together, such as in a restored backup.
func TestPoliciesAreAppliedBeforePods(t *testing.T) {
	s := newSides(t)
	const n = 10
	for i := range n {
		s.leaf("1a", fmt.Sprint("web-", i), "{replicas: 1}")
	}
	s.withPolicies()
	s.start()
	s.eventually(func() bool { return len(s.physical.Names("", deployments)) == n }, "synced")
	writes := s.physical.Writes()
	of := func(resource string) int {
		return slices.IndexFunc(writes, func(w string) bool { return strings.HasPrefix(w, "PATCH "+resource) })
	}
	require.Less(t, of(policies+" "+namespaceOf("1a")+"/deny-all"), of(deployments))
}

// A cluster that refuses a policy gets no pods, and the condition of the workload has the reason.
func TestPodsWaitForAPolicyThatTheClusterRefuses(t *testing.T) {
	s := newSides(t)
	s.leaf("1a", "web", "{replicas: 1}")
	s.withPolicies()
	closed := atomic.Bool{}
	closed.Store(true)
	s.physical.Refuse(func(r *http.Request) (int, string) {
		if closed.Load() && r.Method != http.MethodGet && strings.Contains(r.URL.Path, "/networkpolicies/deny-all") {
			return http.StatusForbidden, "no policies here"
		}
		return 0, ""
	})
	s.start()
	s.eventually(func() bool {
		return strings.HasPrefix(s.condition("1a", "web"), "False Unprotected: it waits for networkpolicies.networking.k8s.io deny-all, "+
			"which protects its pods and is not in cluster c1: Denied: ")
	}, "it waits")
	require.Nil(t, s.below("1a", deployments, "web"))
	closed.Store(false)
	s.denyAll("{matchExpressions: [{key: app, operator: NotIn, values: [db]}]}")
	s.eventually(func() bool { return s.condition("1a", "web") == "True Synced: " }, "it has the policy")
	require.NotNil(t, s.below("1a", policies, "deny-all"))
}

// A policy that the cluster refuses keeps the pods waiting that it selects, and no others. The account default is for
// pods that name no account.
func TestPodsWaitOnlyForWhatProtectsThem(t *testing.T) {
	const other, own = "{matchLabels: {app: db}}", "{matchLabels: {app: web}}"
	for name, tc := range map[string]struct {
		selector, account string
		waits             bool
	}{
		"a policy of other pods":              {other, "web", false},
		"a policy of its pods":                {own, "web", true},
		"a policy that is not understood":     {"{matchExpressions: [{key: a, operator: Like}]}", "web", true},
		"a policy of others, and its account": {other, "default", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSides(t)
			s.physical.Refuse(func(r *http.Request) (int, string) {
				if r.Method != http.MethodGet && (strings.Contains(r.URL.Path, "/deny-all") || strings.HasSuffix(r.URL.Path, "/serviceaccounts/default")) {
					return http.StatusForbidden, "not here"
				}
				return 0, ""
			})
			s.withPolicies()
			s.denyAll(tc.selector)
			s.kcp.Apply(s, "1a", "api/v1/serviceaccounts", `
{apiVersion: v1, kind: ServiceAccount, metadata: {name: default--c1, namespace: shop, labels: {workloads.kcp.dev/cluster: c1},
  annotations: {workloads.kcp.dev/name: default}}, imagePullSecrets: [{name: pull}]}`)
			s.leaf("1a", "web", "{replicas: 1, template: {metadata: {labels: {app: web}}, spec: {serviceAccountName: "+tc.account+"}}}")
			s.start()
			s.eventually(func() bool {
				return s.condition("1a", "web") == "True Synced: " || strings.HasPrefix(s.condition("1a", "web"), "False Unprotected: ")
			}, "decided")
			require.Equal(t, tc.waits, s.below("1a", deployments, "web") == nil, s.condition("1a", "web"))
		})
	}
}

// The cluster does not serve the API of the policy as it is published.
func TestPodsWaitForAPolicyWhoseAPIIsNotSynced(t *testing.T) {
	s := newSides(t)
	s.leaf("1a", "web", "{replicas: 1}")
	s.withPolicies()
	s.kcp.Apply(s, compute, clusters, `
metadata: {name: c1}
status: {apis: [{group: apps, resource: deployments, version: v1, state: Published},
  {group: networking.k8s.io, resource: networkpolicies, version: v1, state: Incompatible}]}`)
	s.start()
	s.eventually(func() bool {
		return strings.HasSuffix(s.condition("1a", "web"), "deny-all, which protects its pods and is not in cluster c1: its API is not synced to the cluster, see kcpctl workloads apis")
	}, "it waits")
	require.Nil(t, s.below("1a", deployments, "web"))
	s.withPolicies()
	s.eventually(func() bool { return s.below("1a", policies, "deny-all") != nil }, "it is synced")
}

// A user deletes the policy that the cluster refuses. What already runs does not wait for one either.
func TestPodsDoNotWaitForAPolicyThatIsDeleted(t *testing.T) {
	s := newSides(t)
	s.start()
	s.leaf("1a", "first", "{replicas: 1}")
	s.eventually(func() bool { return s.condition("1a", "first") == "True Synced: " }, "synced")
	s.physical.Refuse(func(r *http.Request) (int, string) {
		if r.Method != http.MethodGet && strings.Contains(r.URL.Path, "/networkpolicies/deny-all") {
			return http.StatusForbidden, "no policies here"
		}
		return 0, ""
	})
	s.withPolicies()
	s.eventually(func() bool {
		return s.kcp.Get("1a", policies, "shop", "deny-all--c1").GetAnnotations()[api.AnnotationSyncError] != ""
	}, "the policy is refused")
	s.leaf("1a", "web", "{replicas: 1}")
	s.eventually(func() bool { return strings.HasPrefix(s.condition("1a", "web"), "False Unprotected: ") }, "it waits")
	s.leaf("1a", "first", "{replicas: 2}")
	s.eventually(func() bool { return field(s.below("1a", deployments, "first"), "spec", "replicas") == "2" }, "it runs already")
	s.kcp.Delete("1a", policies, "shop", "deny-all--c1")
	s.eventually(func() bool { return s.condition("1a", "web") == "True Synced: " }, "it waits no longer")
}

// A syncer that starts has listed the workloads, and not yet what protects their pods.
func TestPodsWaitUntilPoliciesAreListed(t *testing.T) {
	s := newSides(t)
	s.leaf("1a", "web", "{replicas: 1}")
	s.withPolicies()
	gate := make(chan struct{})
	s.kcp.Refuse(func(r *http.Request) (int, string) {
		if strings.HasSuffix(r.URL.Path, "/clusters/*/"+policies) {
			select {
			case <-gate:
			case <-r.Context().Done():
			}
		}
		return 0, ""
	})
	networkPolicies := schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"}
	k := s.sweeper(s.kcp.URL)
	k.update(t.Context(), nil, append(k.resources, networkPolicies), nil)
	i := item{workloads, watch.Key{Cluster: "1a", Namespace: "shop", Name: "web--c1"}}
	s.eventually(func() bool { return k.up.Has(workloads, i.Key) && k.down.Complete() }, "the workload is listed")
	leaf, _ := k.up.Get(workloads, i.Key)
	waits, err := k.unprotected(i, leaf)
	require.True(t, waits)
	require.NoError(t, err)
	close(gate)
	s.eventually(k.up.Complete, "the policy is listed")
	waits, err = k.unprotected(i, leaf)
	require.True(t, waits, "the cluster does not have it")
	require.NoError(t, err)
	policy, _ := k.up.Get(networkPolicies, watch.Key{Cluster: "1a", Namespace: "shop", Name: "deny-all--c1"})
	s.physical.Apply(t, "", policies, fmt.Sprintf(`
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: deny-all, namespace: %s, labels: {workloads.kcp.dev/setup: demo-x},
  annotations: {workloads.kcp.dev/leaf: "1a|shop/deny-all--c1", workloads.kcp.dev/leaf-generation: "%d"}}}`, namespaceOf("1a"), policy.GetGeneration()))
	s.eventually(func() bool { waits, err = k.unprotected(i, leaf); return !waits && err == nil }, "it has")
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

// A watch that has failed shows workloads that are gone: they need nothing.
func TestWorkloadsThatAreGoneKeepNothing(t *testing.T) {
	s := newSides(t)
	s.bind("1a")
	s.space("1a", "deployments.apps")
	s.withPolicies()
	s.leaf("1a", "web", "{replicas: 1}")
	s.start()
	s.eventually(func() bool {
		return s.below("1a", policies, "deny-all") != nil && s.below("1a", deployments, "web") != nil
	}, "synced")
	s.physical.Refuse(func(r *http.Request) (int, string) {
		if strings.HasSuffix(r.URL.Path, "/apis/apps/v1/deployments") {
			return http.StatusServiceUnavailable, "no"
		}
		return 0, ""
	})
	s.physical.Delete("", deployments, namespaceOf("1a"), "web")
	s.kcp.Delete("1a", deployments, "shop", "web--c1")
	s.eventually(func() bool { return s.kcp.Get("1a", deployments, "shop", "web--c1") == nil }, "the workload is gone")
	s.kcp.Delete("1a", policies, "shop", "deny-all--c1")
	s.eventually(func() bool { return s.kcp.Get("1a", policies, "shop", "deny-all--c1") == nil }, "its leaf is gone")
	require.Nil(t, s.below("1a", policies, "deny-all"))
}

// What was left in a cluster without a leaf keeps the NetworkPolicies of its namespace. Beside workloads that have
// leaves, their user has deleted them.
func TestOrphansStayProtected(t *testing.T) {
	for name, tc := range map[string]struct {
		owner      string
		leaf, stay bool
	}{
		"an orphan":                  {stay: true},
		"a workload with a leaf":     {leaf: true},
		"what a controller has made": {owner: operated},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSides(t)
			s.bind("1a")
			s.space("1a", "deployments.apps")
			s.withPolicies()
			s.physical.Apply(s, "", deployments, fmt.Sprintf(`
{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: %s, labels: {workloads.kcp.dev/setup: demo-x, workloads.kcp.dev/cluster: c1},
  annotations: {workloads.kcp.dev/leaf: "1a|shop/web--c1"}%s}}`, namespaceOf("1a"), tc.owner))
			if tc.leaf {
				s.leaf("1a", "web", "{replicas: 1}")
			}
			s.start()
			s.eventually(func() bool { return s.below("1a", policies, "deny-all") != nil }, "synced")
			s.kcp.Delete("1a", policies, "shop", "deny-all--c1")
			s.eventually(func() bool { return s.kcp.Get("1a", policies, "shop", "deny-all--c1") == nil }, "its leaf is gone")
			require.Equal(t, tc.stay, s.below("1a", policies, "deny-all") != nil)
			require.NotNil(t, s.below("1a", deployments, "web"))
		})
	}
}
