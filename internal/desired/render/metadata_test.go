package render_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/testutil"
	"github.com/kcpctl/kcpctl/internal/testutil/pkitest"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// All objects on the clusters have the common labels and annotations. Pods and claims do not, because they would start
// again, and cannot be changed.
func TestCommonMetadata(t *testing.T) {
	top := topologytest.Build(t, `spec:
  commonMetadata: {labels: {team: platform, cost: "1"}, annotations: {example.com/owner: me}}
  cacheServer: {}
  frontProxies: [{name: main, autoscaling: {maxReplicas: 2}, service: {metadata: {labels: {cost: "2"}}}}]
`)
	objects, err := render.Objects(top, pkitest.Issue(t, top, testutil.Start()))
	require.NoError(t, err)
	kinds := map[string]bool{}
	for _, o := range objects {
		kinds[o.GetKind()] = true
		cost := "1"
		if o.GetKind() == "Service" && o.GetName() == "demo-front-proxy-main" {
			cost = "2"
		}
		require.Equal(t, "platform", o.GetLabels()["team"], o.Ref())
		require.Equal(t, cost, o.GetLabels()["cost"], o.Ref())
		require.Equal(t, "me", o.GetAnnotations()["example.com/owner"], o.Ref())
		pod, _, err := unstructured.NestedStringMap(o.Object, "spec", "template", "metadata", "labels")
		require.NoError(t, err)
		require.NotContains(t, pod, "team")
	}
	for _, kind := range []string{"Namespace", "ConfigMap", "Secret", "Service", "StatefulSet", "Deployment", "PodDisruptionBudget", "HorizontalPodAutoscaler"} {
		require.True(t, kinds[kind], kind)
	}
}

// Replicas that are left to others are not rendered, and a budget allows for any number of them.
func TestReplicasThatAreLeftToOthers(t *testing.T) {
	top := topologytest.Build(t, `spec:
  defaults: {replicas: null}
  cacheServer: {}
  frontProxies: [{name: main}, {name: other, replicas: 3}]
`)
	objects, err := render.Objects(top, pkitest.Issue(t, top, testutil.Start()))
	require.NoError(t, err)
	replicas, budgets := map[string]int64{}, map[string]bool{}
	for _, o := range objects {
		if n, set, _ := unstructured.NestedInt64(o.Object, "spec", "replicas"); set {
			replicas[o.GetName()] = n
		}
		budgets[o.GetName()] = budgets[o.GetName()] || o.GetKind() == "PodDisruptionBudget"
	}
	require.Equal(t, map[string]int64{"demo-cache": 1, "demo-etcd-root": 1, "demo-front-proxy-other": 3}, replicas)
	require.True(t, budgets["demo-front-proxy-main"])
	require.False(t, budgets["demo-cache"])
}
