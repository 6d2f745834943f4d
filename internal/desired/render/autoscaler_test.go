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

const autoscaled = `spec:
  defaults: {replicas: 3}
  frontProxies:
  - {name: main, autoscaling: {minReplicas: 2, maxReplicas: 6, targetCPUUtilizationPercentage: 60}}
  - {name: fixed}
`

// An autoscaler sets the number of replicas, and kcpctl does not.
func TestAutoscaler(t *testing.T) {
	_, _, objects := rendered(t, autoscaled)
	kinds := map[string]map[string]bool{}
	for _, o := range objects {
		if kinds[o.GetName()] == nil {
			kinds[o.GetName()] = map[string]bool{}
		}
		kinds[o.GetName()][o.GetKind()] = true
		_, set, err := unstructured.NestedInt64(o.Object, "spec", "replicas")
		require.NoError(t, err)
		if o.GetKind() == "Deployment" {
			require.Equal(t, o.GetName() != "demo-front-proxy-main", set, o.GetName())
		}
		if o.GetKind() == "HorizontalPodAutoscaler" {
			require.NoError(t, render.Strict(o))
			testutil.Golden(t, "autoscaler.yaml", []byte(masked(t, o)))
		}
	}
	main := kinds["demo-front-proxy-main"]
	require.True(t, main["HorizontalPodAutoscaler"] && main["PodDisruptionBudget"])
	require.False(t, kinds["demo-front-proxy-fixed"]["HorizontalPodAutoscaler"])
}

// On this machine, nothing scales.
func TestNoAutoscalerOnThisMachine(t *testing.T) {
	top := topologytest.BuildLocal(t, autoscaled)
	require.False(t, top.Component("front-proxy/main").Autoscaled)
	objects, err := render.Objects(top, pkitest.Issue(t, top, now))
	require.NoError(t, err)
	require.NotEmpty(t, objects)
	for _, o := range objects {
		require.NotEqual(t, "HorizontalPodAutoscaler", o.GetKind())
	}
}
