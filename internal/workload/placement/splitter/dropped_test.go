package splitter_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/workload/placement/splitter"
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

// Workspaces come and go, and nothing tells of their end.
func TestDroppedFieldsAreForgotten(t *testing.T) {
	site, start := schema.GroupKind{Group: "example.com", Kind: "Site"}, time.Now()
	var d splitter.Dropped
	learn := func(cluster string, now time.Time) {
		d.Learn(site, cluster, map[string]any{"phase": "Open"}, &unstructured.Unstructured{Object: map[string]any{}}, now)
	}
	for i := range 1000 {
		learn(fmt.Sprint("ws", i), start)
	}
	require.Equal(t, 1000, d.Len())
	learn("late", start.Add(9*time.Minute))
	require.Equal(t, 1001, d.Len(), "they are in use")

	require.True(t, d.HasConditions(site, "other", start.Add(10*time.Minute)))
	require.Equal(t, 1, d.Len(), "whatever is looked at next frees them")
	status := map[string]any{"phase": "Open"}
	d.Strip(site, "late", status, start.Add(10*time.Minute))
	require.Empty(t, status)
	d.Strip(site, "other", status, start.Add(20*time.Minute))
	require.Zero(t, d.Len())
}
