package check

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

func TestPublished(t *testing.T) {
	subject := func(agents ...v1alpha1.Agent) *Subject {
		return &Subject{Topology: &topology.Topology{Setup: &v1alpha1.Setup{Spec: v1alpha1.Spec{Agents: agents}}}}
	}
	require.Equal(t, Skipped, published(t.Context(), subject()).status)
	resource := map[string]any{"apiGroup": "example.com", "kind": "Widget"}
	good := v1alpha1.PublishedResource{Name: "widgets", Spec: v1alpha1.Object{"resource": resource, "unknown": true}}
	require.Empty(t, published(t.Context(), subject(v1alpha1.Agent{Name: "a", PublishedResources: []v1alpha1.PublishedResource{good}})))
	bad := v1alpha1.PublishedResource{Name: "bad", Spec: v1alpha1.Object{"resource": resource, "naming": map[string]any{"name": "{{ .Nme }}"}}}
	o := published(t.Context(), subject(v1alpha1.Agent{Name: "a", PublishedResources: []v1alpha1.PublishedResource{good, bad}}))
	require.Equal(t, Fail, o.status)
	require.Equal(t, []string{
		`agent/a: PublishedResource bad: spec.naming.name: Invalid value: "{{ .Nme }}": this template has no .Nme, known: .Object, .ClusterName, .ClusterPath`,
		`agent/a: PublishedResource bad: spec.resource.kind: Invalid value: "Widget": PublishedResource widgets publishes this kind already`,
	}, o.causes)
}
