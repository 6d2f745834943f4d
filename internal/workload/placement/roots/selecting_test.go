package roots

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

// A namespace in which nothing selects namespaces any more is forgotten: a workspace can make and delete many.
func TestANamespaceThatNoLongerSelectsOthersIsForgotten(t *testing.T) {
	var again []item
	f := &followers{selecting: map[string]map[string]bool{}, again: func(i item) { again = append(again, i) }}
	shop := namespace(watch.Key{Cluster: "1a", Namespace: "shop"})
	f.selects(shop, true)
	f.followSelected("1a")
	require.Equal(t, []item{shop}, again)
	f.selects(shop, false)
	f.followSelected("1a")
	require.Len(t, again, 1)
	require.Empty(t, f.selecting)
}
