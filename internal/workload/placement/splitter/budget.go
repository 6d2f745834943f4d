package splitter

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/api/kinds"
)

// HasNumbers reports whether an object has a number of pods in all clusters, such as minAvailable of a
// PodDisruptionBudget. A percentage is none.
func HasNumbers(o *unstructured.Unstructured) bool {
	kind, _ := kinds.OfObject(o)
	for _, d := range kind.Divided {
		if _, ok := object(o.Object, "spec")[d.Field].(int64); ok {
			return true
		}
	}
	return false
}

// DivideNumbers divides the numbers of pods of an object by the replicas that clusters have, by the largest remainder.
// The result has only clusters with replicas.
func DivideNumbers(o *unstructured.Unstructured, replicas map[string]int64) map[string]map[string]int64 {
	kind, _ := kinds.OfObject(o)
	weights := map[string]int64{}
	out := map[string]map[string]int64{}
	for cluster, n := range replicas {
		if n > 0 {
			weights[cluster], out[cluster] = n, map[string]int64{}
		}
	}
	for _, d := range kind.Divided {
		n, ok := object(o.Object, "spec")[d.Field].(int64)
		if !ok || n < 0 {
			continue
		}
		fewest := map[string]int64{}
		for cluster := range weights {
			if d.Each {
				fewest[cluster] = min(n, 1)
			}
		}
		for cluster, share := range divide(n, weights, fewest) {
			out[cluster][d.Field] = share
		}
	}
	return out
}
