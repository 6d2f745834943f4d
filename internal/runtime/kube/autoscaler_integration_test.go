package kube

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/test/apiserver"
)

// autoscaled has a front-proxy with some fields.
const autoscaled = `spec:
  clusters: [{name: eu, kubeconfig: %%q, namespace: %%s}]
  frontProxies: [{name: main, %s}]
`

// An autoscaler comes with the field, changes the number of replicas without a change of the setup, and goes with the
// field.
func TestAutoscalerComesAndGoes(t *testing.T) {
	t.Parallel()
	f := inNamespace(t)
	const name = "demo-front-proxy-main"
	with := func(fields string) *Runtime {
		r := f.runtime(f.parse(fmt.Sprintf(autoscaled, fields), apiserver.Admin))
		f.topology = r.topology
		return r
	}
	f.up(with("replicas: 3"), run.PlanOptions{})
	scaled := with("autoscaling: {minReplicas: 2, maxReplicas: 4}")
	require.Equal(t, []string{"create HorizontalPodAutoscaler/" + name}, changes(f.up(scaled, run.PlanOptions{})),
		"the Deployment keeps its number")
	most, _, err := unstructured.NestedInt64(f.live(scaled, kind.HorizontalPodAutoscaler, name).Object, "spec", "maxReplicas")
	require.NoError(t, err)
	require.EqualValues(t, 4, most)
	require.True(t, f.up(scaled, run.PlanOptions{}).Empty(), "the API server adds nothing that differs")

	_, err = scaled.clusters.home.Resource(kind.Deployment.GVR()).Patch(t.Context(), name, "application/merge-patch+json",
		[]byte(`{"spec":{"replicas":4}}`), metav1.PatchOptions{FieldManager: "kube-controller-manager"}, "scale")
	require.NoError(t, err)
	require.True(t, f.up(scaled, run.PlanOptions{}).Empty())

	fixed := with("replicas: 2")
	p, err := fixed.Plan(t.Context(), f.objects(fixed), run.PlanOptions{})
	require.NoError(t, err)
	require.Len(t, p.Conflicts, 1)
	require.Equal(t, "kube-controller-manager", p.Conflicts[0].Manager)
	p, err = fixed.Plan(t.Context(), f.objects(fixed), run.PlanOptions{Force: true})
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"change Deployment/" + name, "delete HorizontalPodAutoscaler/" + name}, changes(p))
}
