package syncer

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/workload/api"
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
