package plan_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/desired/plan"
)

// An autoscaler that scales a component during the plan does not conflict, if the setup leaves the replicas to others.
func TestReplicasThatAreLeftToOthersAreNoConflict(t *testing.T) {
	deployment := func(image string, replicas any) *unstructured.Unstructured {
		spec := map[string]any{"image": image}
		if replicas != nil {
			spec["replicas"] = replicas
		}
		return &unstructured.Unstructured{Object: map[string]any{"kind": "Deployment", "spec": spec}}
	}
	found := func() []plan.Conflict {
		return []plan.Conflict{{Field: "spec.replicas", Manager: "kube-controller-manager"}, {Field: "spec.image", Manager: "kubectl"}}
	}
	left := plan.Item{Want: deployment("b", nil), Live: deployment("a", int64(3)), Merged: deployment("b", int64(3))}
	require.Equal(t, found()[1:], left.Settle(found(), false))
	require.Equal(t, plan.Change, left.Action)
	set := plan.Item{Want: deployment("b", int64(3)), Live: deployment("a", int64(3)), Merged: deployment("b", int64(3))}
	require.Equal(t, found(), set.Settle(found(), false))
}
