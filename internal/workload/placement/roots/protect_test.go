package roots_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/placement/roots"
)

const (
	policies    = "apis/networking.k8s.io/v1/networkpolicies"
	budgets     = "apis/policy/v1/poddisruptionbudgets"
	autoscalers = "apis/autoscaling/v2/horizontalpodautoscalers"
	widgets     = "apis/example.com/v1/widgets"
)

// publish publishes more APIs than clusters does.
func (s *scheduler) publish(all ...*api.Cluster) {
	for _, c := range all {
		c.Status.APIs = append(c.Status.APIs, api.APIStatus{Group: "example.com", Resource: "widgets", Version: "v1", State: api.APIPublished})
	}
	s.roots.Update(s.Context(), roots.State{Clusters: all, Published: &roots.Published{Scheduled: []schema.GroupVersionResource{
		{Group: "apps", Version: "v1", Resource: "deployments"}, {Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"},
		{Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"}, {Group: "autoscaling", Version: "v2", Resource: "horizontalpodautoscalers"},
		{Group: "example.com", Version: "v1", Resource: "widgets"},
	}}})
}

func policy(name, selector string) string {
	return "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: " + name + ", namespace: shop}, spec: {podSelector: " + selector + "}}"
}

const labelled = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec: {replicas: 4, template: {metadata: {labels: {app: web}}, spec: {}}}`

// The leaf of a policy is in kcp before that of the first workload that it selects, also if it selects no pod yet: the
// syncer applies them in this order. The controller neither waits for the syncer nor lists the policies again.
func TestPoliciesAreWrittenBeforeTheFirstWorkload(t *testing.T) {
	for name, selector := range map[string]string{
		"all": "{}", "some": "{matchExpressions: [{key: app, operator: In, values: [web, db]}]}", "none yet": "{matchLabels: {app: later}}",
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			s.publish(cluster("c1", true, 0), cluster("c2", true, 0))
			s.object(policies, policy("deny", selector))
			s.deploy(strings.ReplaceAll(labelled, "shop", "other"))
			s.eventually(func() bool { return s.Get("1a", deployments, "other", "web--c1") != nil }, "it works")
			s.Refuse(func(r *http.Request) (int, string) {
				if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/namespaces/shop/networkpolicies") {
					return http.StatusInternalServerError, "too many lists"
				}
				return 0, ""
			})
			s.deploy(labelled)
			s.eventually(func() bool { return s.leaves() == "c1=2 c2=2" && s.scheduled() == "True Scheduled: " }, "it is scheduled")
			for _, c := range []string{"c1", "c2"} {
				s.inOrder(s.Get("1a", policies, "shop", "deny--"+c), s.Get("1a", deployments, "shop", "web--"+c))
			}
		})
	}
}

// A workload waits for a policy whose leaf kcp refuses, always with the same reason, and not for policies of other pods.
func TestAWorkloadWaitsForItsOwnPoliciesOnly(t *testing.T) {
	for name, tc := range map[string]struct{ selector, leaves, scheduled string }{
		"its own": {"{}", "", "False LeafRefused: it waits for networkpolicies.networking.k8s.io/a, which its pods need first: kcp refuses a leaf: no"},
		"others":  {"{matchLabels: {app: db}}", "c1=4", "True Scheduled: "},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			s.publish(cluster("c1", true, 0))
			s.deploy(strings.NewReplacer("name: web", "name: db", "app: web", "app: db").Replace(labelled))
			s.eventually(func() bool { return s.Get("1a", deployments, "shop", "db--c1") != nil }, "it works")
			s.Refuse(func(r *http.Request) (int, string) {
				if r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "/networkpolicies/") && strings.HasSuffix(r.URL.Path, "--c1") {
					return http.StatusForbidden, "no"
				}
				return 0, ""
			})
			for _, name := range []string{"a", "b"} {
				s.object(policies, policy(name, tc.selector))
			}
			s.eventually(func() bool {
				return s.Get("1a", policies, "shop", "b").GetAnnotations()[api.AnnotationScheduleError] != ""
			}, "refused")
			s.deploy(labelled)
			s.eventually(func() bool { return s.scheduled() == tc.scheduled && s.leaves() == tc.leaves }, tc.scheduled)
		})
	}
}

// A workload waits for the leaf of its policy, and not for the annotations and the status of the policy. These have a
// limit, and a reason that names all workloads would reach it.
func TestAWorkloadDoesNotWaitForTheStatusOfItsPolicy(t *testing.T) {
	s := start(t)
	s.publish(cluster("c1", true, 0))
	s.Refuse(func(r *http.Request) (int, string) {
		if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/networkpolicies/deny") {
			return http.StatusUnprocessableEntity, "annotations: Too long: may not be more than 262144 bytes"
		}
		return 0, ""
	})
	s.object(policies, policy("deny", "{}"))
	s.deploy(labelled)
	s.eventually(func() bool { return s.leaves() == "c1=4" }, "it starts")
	s.inOrder(s.Get("1a", policies, "shop", "deny--c1"), s.Get("1a", deployments, "shop", "web--c1"))
	s.Refuse(nil)
	for i := range 5 {
		s.deploy(strings.Replace(labelled, "name: web", fmt.Sprint("name: web", i), 1))
	}
	s.eventually(func() bool {
		explain := s.Get("1a", policies, "shop", "deny").GetAnnotations()[api.AnnotationExplain]
		return strings.Contains(explain, `"needed by deployments.apps/web, deployments.apps/web0, deployments.apps/web1, 3 others"`)
	}, "few names")
}

// inOrder checks that the first object was created before the second one.
func (s *scheduler) inOrder(first, second *unstructured.Unstructured) {
	s.Helper()
	number := func(o *unstructured.Unstructured) int {
		require.NotNil(s, o)
		n, err := strconv.Atoi(strings.TrimPrefix(string(o.GetUID()), "uid-"))
		require.NoError(s, err)
		return n
	}
	require.Less(s, number(first), number(second))
}

// A controller that starts has not listed the policies yet.
func TestNoWorkloadIsScheduledBeforePoliciesAreListed(t *testing.T) {
	s := start(t)
	s.object(policies, policy("deny", "{}"))
	s.deploy(labelled)
	gate, listed := make(chan struct{}), make(chan struct{})
	once := sync.Once{}
	s.Refuse(func(r *http.Request) (int, string) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/clusters/*/"+policies):
			select {
			case <-gate:
			case <-r.Context().Done():
			}
		case strings.HasSuffix(r.URL.Path, "/clusters/*/"+deployments) && r.URL.Query().Has("watch"):
			once.Do(func() { close(listed) })
		}
		return 0, ""
	})
	s.publish(cluster("c1", true, 0))
	<-listed
	close(gate)
	s.eventually(func() bool { return s.leaves() == "c1=4" }, "it is scheduled")
	s.inOrder(s.Get("1a", policies, "shop", "deny--c1"), s.Get("1a", deployments, "shop", "web--c1"))
}

// What the policy of another workload selects delays nothing.
func TestAPolicyOfAnotherWorkload(t *testing.T) {
	s := start(t)
	s.publish(cluster("c1", true, 0))
	s.deploy(strings.ReplaceAll(labelled, "web", "db"))
	s.eventually(func() bool { return s.on(deployments, "db") == "c1" }, "no policy")
	s.object(policies, policy("db", "{matchLabels: {app: db}}"))
	s.eventually(func() bool { return s.on(policies, "db") == "c1" }, "it follows")
	s.deploy(labelled)
	s.eventually(func() bool { return s.on(deployments, "web") == "c1" }, "it need not wait")
	s.object(policies, `{metadata: {name: db, namespace: shop}, spec: {podSelector: {matchLabels: {app: web}}}}`)
	s.eventually(func() bool {
		return s.Get("1a", policies, "shop", "db--c1").GetAnnotations()[api.AnnotationNeededBy] == "deployments.apps/db,deployments.apps/web"
	}, "the pods of another revision are still selected")
}

// Pods of an earlier revision, and a rollback, need what the template no longer names.
func TestWhatRunningPodsNeedStays(t *testing.T) {
	s := start(t)
	s.clusters(cluster("c1", true, 0), cluster("c2", false, 0))
	for _, name := range []string{"files", "files2"} {
		s.object(configMaps, `{apiVersion: v1, kind: ConfigMap, metadata: {name: `+name+`, namespace: shop}}`)
	}
	s.deploy(shop)
	s.eventually(func() bool { return s.on(configMaps, "files") == "c1" && s.leaves() == "c1=2" }, "there")
	first := s.Get("1a", configMaps, "shop", "files--c1").GetUID()
	s.deploy(strings.ReplaceAll(shop, "name: files", "name: files2"))
	s.eventually(func() bool {
		return s.on(configMaps, "files2") == "c1" && strings.Contains(fmt.Sprint(s.Get("1a", deployments, "shop", "web--c1")), "files2")
	}, "the next revision")
	there := func() {
		t.Helper()
		leaf := s.Get("1a", configMaps, "shop", "files--c1")
		require.NotNil(t, leaf)
		require.Equal(t, first, leaf.GetUID())
		require.Nil(t, leaf.GetDeletionTimestamp())
		require.Equal(t, "deployments.apps/web", leaf.GetAnnotations()[api.AnnotationNeededBy])
	}
	there()
	s.restart()
	s.clusters(cluster("c1", false, 0), cluster("c2", false, 0)) // what it runs is not known now
	s.object(configMaps, `{metadata: {name: files2, namespace: shop}, data: {a: changed}}`)
	s.eventually(func() bool { return s.Get("1a", configMaps, "shop", "files2--c1").Object["data"] != nil }, "the next controller looks")
	there()
	// The leaf is being deleted: its pods end.
	s.deploy(`{metadata: {name: web--c1, namespace: shop, finalizers: [stays]}}`)
	s.Delete("1a", deployments, "shop", "web")
	s.Delete("1a", deployments, "shop", "web--c1")
	s.object(configMaps, `{metadata: {name: files2, namespace: shop}, data: {a: again}}`)
	s.eventually(func() bool {
		return fmt.Sprint(s.Get("1a", configMaps, "shop", "files2--c1").Object["data"]) == "map[a:again]"
	}, "looked at")
	there()
	s.deploy(`{metadata: {name: web--c1, namespace: shop, finalizers: []}}`)
	s.eventually(func() bool { return s.on(configMaps, "files")+s.on(configMaps, "files2") == "" }, "nothing can need them")
}

func TestPullSecretsOfTheDefaultServiceAccount(t *testing.T) {
	s := start(t)
	s.clusters(cluster("c1", true, 0))
	s.object(secrets, `{apiVersion: v1, kind: Secret, metadata: {name: pull, namespace: shop}}`)
	s.object(serviceAccounts, `{apiVersion: v1, kind: ServiceAccount, metadata: {name: default, namespace: shop}, imagePullSecrets: [{name: pull}]}`)
	s.deploy(strings.Replace(web, "name: web", "name: first", 1)) // the account is known when it has followed this one
	s.eventually(func() bool { return s.on(serviceAccounts, "default") == "c1" && s.on(secrets, "pull") == "c1" }, "they follow")
	s.deploy(web)
	s.eventually(func() bool { return s.leaves() == "c1=4" }, "a pod gets them when it is created")
	s.inOrder(s.Get("1a", serviceAccounts, "shop", "default--c1"), s.Get("1a", deployments, "shop", "web--c1"))

	s.object(secrets, `{apiVersion: v1, kind: Secret, metadata: {name: other, namespace: shop}}`)
	s.object(serviceAccounts, `{apiVersion: v1, kind: ServiceAccount, metadata: {name: chosen, namespace: shop, annotations: {workloads.kcp.dev/spread: Duplicate}},
		imagePullSecrets: [{name: other}]}`)
	s.eventually(func() bool { return s.on(serviceAccounts, "chosen") == "c1" && s.on(secrets, "other") == "c1" }, "as the user says")
}

// What a user sets in the account default is in force when a pod is created.
func TestTheDefaultServiceAccountIsAsItsUserSaysIt(t *testing.T) {
	for name, set := range map[string]string{
		"no tokens":      "}, automountServiceAccountToken: false",
		"a cloud's role": ", annotations: {eks.amazonaws.com/role-arn: r}}",
		"nothing":        ", annotations: {kcp.io/cluster: 1a}}",
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			s.clusters(cluster("c1", true, 0))
			s.object(serviceAccounts, `{apiVersion: v1, kind: ServiceAccount, metadata: {name: default, namespace: shop`+set+`}`)
			s.deploy(strings.Replace(web, "name: web", "name: first", 1)) // the account is known when it has followed this one
			if name == "nothing" {
				s.eventually(func() bool { return s.Get("1a", deployments, "shop", "first--c1") != nil }, "it runs")
				require.Empty(t, s.on(serviceAccounts, "default"))
				return
			}
			s.eventually(func() bool { return s.on(serviceAccounts, "default") == "c1" }, "it follows")
			s.deploy(web)
			s.eventually(func() bool { return s.leaves() == "c1=4" }, "a pod gets it when it is created")
			s.inOrder(s.Get("1a", serviceAccounts, "shop", "default--c1"), s.Get("1a", deployments, "shop", "web--c1"))
		})
	}
}

func TestAKindThatIsNotInTheTable(t *testing.T) {
	s := start(t)
	s.publish(cluster("c1", true, 0), cluster("c2", true, 0))
	s.object(widgets, `{apiVersion: example.com/v1, kind: Widget, metadata: {name: w, namespace: shop}, spec: {}}`)
	condition := func() string {
		c := api.ConditionIn(s.Get("1a", widgets, "shop", "w"), api.ConditionScheduled)
		if c == nil {
			return ""
		}
		return fmt.Sprint(c.Status, " ", c.Reason, ": ", c.Message)
	}
	s.eventually(func() bool {
		return condition() == "False SpreadNotSet: kcpctl does not know widgets.example.com: annotate the object or its namespace with "+
			"workloads.kcp.dev/spread=Single (on one cluster) or workloads.kcp.dev/spread=Duplicate (on each cluster)"
	}, "it says what to do")
	require.Empty(t, s.on(widgets, "w"))
	s.object(widgets, `{metadata: {name: w, namespace: shop, annotations: {workloads.kcp.dev/spread: Duplicate}}}`)
	s.eventually(func() bool { return s.on(widgets, "w") == "c1 c2" && condition() == "True Scheduled: " }, "as the user says")
	s.object(widgets, `{metadata: {name: w, namespace: shop, annotations: {workloads.kcp.dev/spread: null}}}`)
	s.eventually(func() bool { return strings.HasPrefix(condition(), "False SpreadNotSet") }, "the user says nothing")
	require.Equal(t, "c1 c2", s.on(widgets, "w"), "what runs stays")
}

// An autoscaler is divided as its workload is, and has the replicas in each cluster.
func TestAnAutoscaler(t *testing.T) {
	s := start(t)
	s.publish(cluster("c1", true, 0), cluster("c2", true, 0))
	s.object(autoscalers, `{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: web, namespace: shop},
		spec: {scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}, minReplicas: 6, maxReplicas: 11}}`)
	s.object(budgets, `{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: web, namespace: shop}, spec: {selector: {matchLabels: {app: web}}}}`)
	s.deploy(strings.Replace(strings.Replace(labelled, "replicas: 4, ", "", 1), "shop}", `shop, annotations: {workloads.kcp.dev/weights: "c1=2,c2=1"}}`, 1))
	s.eventually(func() bool { return s.leaves() == "c1=4 c2=2" }, "the autoscaler says how many")
	s.eventually(func() bool { return s.bounds() == "c1=4-7 c2=2-4" && s.on(budgets, "web") == "c1 c2" }, "divided")
	scaled := func() string {
		return s.Get("1a", deployments, "shop", "web--c1").GetAnnotations()[api.AnnotationScaled]
	}
	s.eventually(func() bool { return scaled() == "true" }, "nothing corrects the replicas")
	s.object(autoscalers, `{metadata: {name: web, namespace: shop}, spec: {maxReplicas: 20}}`)
	s.eventually(func() bool { return s.bounds() == "c1=4-13 c2=2-7" }, "changes follow")
	s.object(deployments, `{metadata: {name: web--c1, namespace: shop}, status: {replicas: 3, availableReplicas: 3}}`)
	s.object(deployments, `{metadata: {name: web--c2, namespace: shop}, status: {replicas: 9, availableReplicas: 9}}`)
	s.eventually(func() bool {
		n, _, _ := unstructured.NestedFieldNoCopy(s.Get("1a", deployments, "shop", "web").Object, "status", "replicas")
		return fmt.Sprint(n) == "12"
	}, "the root has the sum")
}

// rewrite lets a function change the bodies of writes to the leaf web--c1, as an API server does that merges lists, or
// a webhook.
func (s *scheduler) rewrite(change func(apply bool, containers []any) []any) (writes *atomic.Int64) {
	writes = &atomic.Int64{}
	s.Refuse(func(r *http.Request) (int, string) {
		if r.Method != http.MethodPatch || !strings.HasSuffix(r.URL.Path, "/web--c1") {
			return 0, ""
		}
		writes.Add(1)
		raw, err := io.ReadAll(r.Body)
		body := map[string]any{}
		if err != nil || json.Unmarshal(raw, &body) != nil {
			return http.StatusBadRequest, "not JSON"
		}
		if list, ok, _ := unstructured.NestedSlice(body, "spec", "template", "spec", "containers"); ok {
			list = change(strings.Contains(r.Header.Get("Content-Type"), "apply"), list)
			_ = unstructured.SetNestedSlice(body, list, "spec", "template", "spec", "containers")
			raw, _ = json.Marshal(body)
		}
		r.Body = io.NopCloser(bytes.NewReader(raw))
		return 0, ""
	})
	return writes
}

const two = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec: {replicas: 2, template: {spec: {containers: [{name: c, image: i}]}}}`

func (s *scheduler) containers() string {
	list, _, _ := unstructured.NestedSlice(s.Get("1a", deployments, "shop", "web--c1").Object, "spec", "template", "spec", "containers")
	return fmt.Sprint(list)
}

var proxy = map[string]any{"name": "proxy", "image": "p"}

const injected = `{metadata: {name: web--c1, namespace: shop}, spec: {template: {spec: {containers: [{name: c, image: i}, {name: proxy, image: p}]}}}}`

// Server-side apply keeps the items of others. The container is removed, nevertheless.
func TestAContainerThatIsInjectedIntoALeafIsRemoved(t *testing.T) {
	s := start(t)
	s.clusters(cluster("c1", true, 0))
	s.deploy(two)
	s.eventually(func() bool { return s.leaves() == "c1=2" }, "there")
	s.rewrite(func(apply bool, containers []any) []any {
		if apply && strings.Contains(s.containers(), "proxy") {
			return append(containers, proxy)
		}
		return containers
	})
	s.object(deployments, injected)
	s.eventually(func() bool { return s.containers() == "[map[image:i name:c]]" }, "removed")
}

// A webhook adds the container again, each time. The controller does not write in a loop.
func TestAContainerThatAWebhookInjects(t *testing.T) {
	s := start(t)
	s.clusters(cluster("c1", true, 0))
	s.deploy(two)
	s.eventually(func() bool { return s.leaves() == "c1=2" }, "there")
	writes := s.rewrite(func(_ bool, containers []any) []any { return append(containers, proxy) })
	s.object(deployments, injected)
	s.eventually(func() bool { return writes.Load() >= 2 }, "tried")
	const events = 10
	for n := range events {
		s.object(deployments, fmt.Sprintf("{metadata: {name: web--c1, namespace: shop}, status: {availableReplicas: %d}}", n+1))
		s.running(n + 1)
	}
	require.Less(t, writes.Load(), int64(events), "an event alone causes no write")
	require.Contains(t, s.containers(), "proxy")
}

// A budget over all replicas has a part in each cluster. With an autoscaler, what it needs in a cluster changes at any
// time.
func TestABudgetIsDividedAsItsWorkload(t *testing.T) {
	s := start(t)
	s.publish(cluster("c1", true, 0), cluster("c2", true, 0))
	budget := func(name, spec string) {
		s.object(budgets, `{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: `+name+`, namespace: shop}, spec: {`+spec+`, selector: {matchLabels: {app: web}}}}`)
	}
	parts := func(name, field string) string {
		var out []string
		for _, c := range strings.Fields(s.on(budgets, name)) {
			spec, _, _ := unstructured.NestedMap(s.Get("1a", budgets, "shop", name+"--"+c).Object, "spec")
			out = append(out, fmt.Sprintf("%s=%v", c, spec[field]))
		}
		return strings.Join(out, " ")
	}
	budget("keep", "minAvailable: 3")
	budget("lose", "maxUnavailable: 1")
	s.deploy(labelled)
	s.eventually(func() bool { return s.leaves() == "c1=2 c2=2" && parts("keep", "minAvailable") == "c1=2 c2=1" }, "divided")
	s.eventually(func() bool { return parts("lose", "maxUnavailable") == "c1=1 c2=1" }, "a node of each cluster can be drained")
	budget("keep", "minAvailable: 6")
	s.deploy(strings.Replace(labelled, "replicas: 4", "replicas: 8", 1))
	s.eventually(func() bool { return s.leaves() == "c1=4 c2=4" && parts("keep", "minAvailable") == "c1=3 c2=3" }, "more of them")
	s.autoscale(40)
	s.eventually(func() bool { return parts("keep", "minAvailable") == "c1=6 c2=6" }, "whole on each cluster")
}

// A policy selects the namespaces of the workspace by their labels there, also by those that they get later.
func TestAPolicySelectsNamespacesOfTheWorkspace(t *testing.T) {
	s := start(t)
	s.publish(cluster("c1", true, 0))
	space := func(name, tier string) {
		s.object("api/v1/namespaces", `{apiVersion: v1, kind: Namespace, metadata: {name: `+name+`, labels: {tier: `+tier+`}}}`)
	}
	space("shop", "back")
	space("frontend", "front")
	s.object(policies, `{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: web, namespace: shop}, spec: {podSelector: {},
		ingress: [{from: [{namespaceSelector: {matchLabels: {tier: front}}}]}]}}`)
	s.deploy(labelled)
	selected := func() string {
		leaf := s.Get("1a", policies, "shop", "web--c1")
		if leaf == nil {
			return ""
		}
		rules, _, _ := unstructured.NestedSlice(leaf.Object, "spec", "ingress")
		return fmt.Sprint(rules)
	}
	const of = "map[key:workloads.kcp.dev/namespace operator:In values:"
	s.eventually(func() bool { return strings.Contains(selected(), of+"[frontend]") }, "by label")
	space("other", "front")
	s.eventually(func() bool { return strings.Contains(selected(), of+"[frontend other]") }, "another one")
	space("frontend", "back")
	s.eventually(func() bool { return strings.Contains(selected(), of+"[other]") }, "it has another label now")
}
