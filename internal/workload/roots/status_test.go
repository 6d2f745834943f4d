package roots_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/workload/api"
)

// The leaf of a Deployment that was deleted stays until its pods are gone.
func TestARootWaitsForTheLeafOfAnEarlierOne(t *testing.T) {
	s := start(t)
	s.Server.Apply(t, "1a", deployments, `
metadata: {name: web--c1, namespace: shop, finalizers: [stays], labels: {workloads.kcp.dev/cluster: c1}, annotations: {workloads.kcp.dev/name: web},
  ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: web, uid: earlier}]}
spec: {replicas: 7}
status: {replicas: 7, readyReplicas: 7, observedGeneration: 1}`)
	s.Server.Delete("1a", deployments, "shop", "web--c1")
	s.clusters(cluster("c1", true, 0))
	s.deploy(web)
	s.eventually(func() bool { return s.scheduled() == "True Scheduled: " }, "it is scheduled")
	status, _, _ := unstructured.NestedMap(s.Get("1a", deployments, "shop", "web").Object, "status")
	require.NotContains(t, status, "readyReplicas", "these are not its pods")
	require.Equal(t, "c1=7", s.leaves())
	s.Server.Apply(t, "1a", deployments, `{metadata: {name: web--c1, namespace: shop, finalizers: []}}`)
	s.eventually(func() bool { return s.leaves() == "c1=4" }, "it has a leaf")
}

// kcp drops fields that the schema of a kind does not have, without an error.
func TestAKindWithoutConditionsHasTheReasonInAnAnnotation(t *testing.T) {
	s := start(t)
	s.Drop(deployments, "conditions")
	s.clusters(cluster("c1", false, 0))
	s.deploy(web)
	reason := func() string {
		return s.Get("1a", deployments, "shop", "web").GetAnnotations()[api.AnnotationScheduleError]
	}
	s.eventually(func() bool { return strings.HasPrefix(reason(), "NoCluster: none of 1 clusters can run it") }, "the reason")
	s.clusters(cluster("c1", true, 0))
	s.eventually(func() bool { return s.leaves() == "c1=4" && reason() == "" }, "scheduled")
}
