package splitter_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/workload/splitter"
)

func TestFieldsThatKcpDrops(t *testing.T) {
	site, now := schema.GroupKind{Group: "example.com", Kind: "Site"}, time.Now()
	var d splitter.Dropped
	require.True(t, d.HasConditions(site, "1a", now))
	sent := map[string]any{"phase": "Open", "conditions": []any{}, "observedGeneration": int64(1), "removed": nil}
	answer := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"phase": "Open"}}}
	require.True(t, d.Learn(site, "1a", sent, answer, now))
	require.False(t, d.Learn(site, "1a", map[string]any{"observedGeneration": int64(2)}, answer, now))
	require.False(t, d.HasConditions(site, "1a", now))
	d.Strip(site, "1a", sent, now)
	require.Equal(t, map[string]any{"phase": "Open", "removed": nil}, sent)

	require.True(t, d.HasConditions(site, "2b", now), "each workspace has a schema")
	require.True(t, d.HasConditions(site, "1a", now.Add(time.Hour)), "the schema can have changed")
	require.False(t, d.HasConditions(schema.GroupKind{Kind: "Secret"}, "1a", now), "built-in kinds are known")
}
