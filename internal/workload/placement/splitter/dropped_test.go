package splitter_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/workload/placement/splitter"
)

func TestFieldsThatKcpDrops(t *testing.T) {
	synctest.Test(t, testFieldsThatKcpDrops)
}

func testFieldsThatKcpDrops(t *testing.T) {
	site, d := schema.GroupKind{Group: "example.com", Kind: "Site"}, splitter.NewDropped()
	require.True(t, d.HasConditions(site, "1a"))
	sent := map[string]any{"phase": "Open", "conditions": []any{}, "observedGeneration": int64(1), "removed": nil}
	answer := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"phase": "Open"}}}
	require.True(t, d.Learn(site, "1a", sent, answer))
	require.False(t, d.Learn(site, "1a", map[string]any{"observedGeneration": int64(2)}, answer))
	require.False(t, d.HasConditions(site, "1a"))
	d.Strip(site, "1a", sent)
	require.Equal(t, map[string]any{"phase": "Open", "removed": nil}, sent)

	require.True(t, d.HasConditions(site, "2b"), "each workspace has a schema")
	require.False(t, d.HasConditions(schema.GroupKind{Kind: "Secret"}, "1a"), "built-in kinds are known")
	time.Sleep(time.Hour)
	require.True(t, d.HasConditions(site, "1a"), "the schema can have changed")
}

// Workspaces come and go, and nothing tells of their end.
func TestDroppedFieldsAreForgotten(t *testing.T) {
	site, d := schema.GroupKind{Group: "example.com", Kind: "Site"}, splitter.NewDropped()
	learn := func(cluster string) {
		d.Learn(site, cluster, map[string]any{"phase": "Open"}, &unstructured.Unstructured{Object: map[string]any{}})
	}
	drops := func(cluster string) bool {
		status := map[string]any{"phase": "Open"}
		d.Strip(site, cluster, status)
		return len(status) == 0
	}
	for i := range 10000 {
		learn(fmt.Sprint("ws", i))
	}
	require.True(t, drops("ws0"))
	learn("one more")
	require.True(t, drops("one more"))
	require.True(t, drops("ws0"), "it is in use")
	require.False(t, drops("ws1"))
}
