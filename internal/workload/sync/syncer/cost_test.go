package syncer

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

// What an event of the cluster costs depends on what is in its namespace, and not on how many leaves there are: also
// before the namespaces are listed, such as when the syncer starts, and for good if it may not list them.
func TestAnEventCostsWhatIsInItsNamespace(t *testing.T) {
	s := newSides(t)
	leaf := func(namespace, name string) {
		s.kcp.Apply(s, "1a", configMaps, fmt.Sprintf(`
{apiVersion: v1, kind: ConfigMap, metadata: {name: %s--c1, namespace: %s, labels: {workloads.kcp.dev/cluster: c1}, annotations: {workloads.kcp.dev/name: %s}}}`,
			name, namespace, name))
	}
	for i := range 400 {
		leaf("shop", fmt.Sprint("files-", i))
	}
	leaf("small", "files")
	k := s.listed()
	at := api.DownstreamNamespace("demo-x", "1a", "small")
	r := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	s.eventually(func() bool { return len(k.spaces.leavesIn(r, at)) == 1 }, "the namespace is known from its leaf")
	cost := func(event func()) float64 { return testing.AllocsPerRun(10, event) }
	require.Less(t, cost(func() { require.Len(t, k.spaces.leavesOf(r, watch.Key{Namespace: at, Name: "files"}), 1) }), 50.0)
	require.Less(t, cost(func() { k.changedNamespace(watch.Key{Name: at}) }), 100.0)
	s.physical.Apply(s, "", spaces, fmt.Sprintf(`
{apiVersion: v1, kind: Namespace, metadata: {name: %s, labels: {workloads.kcp.dev/setup: demo-x, workloads.kcp.dev/cluster: c1,
  workloads.kcp.dev/workspace: 1a, workloads.kcp.dev/namespace: small}}}`, at))
	require.Eventually(t, func() bool { _, ok := k.down.Get(namespaces, watch.Key{Name: at}); return ok }, time.Minute, 5*time.Millisecond)
	require.Less(t, cost(func() { require.Len(t, k.spaces.leavesOf(r, watch.Key{Namespace: at, Name: "files"}), 1) }), 50.0)
}
