package splitter

import (
	"cmp"
	"maps"
	"math"
	"math/bits"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/api/kinds"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
)

// Bounds are the fewest and the most replicas that an autoscaler chooses from.
type Bounds struct{ Min, Max int64 }

// ScaledBy returns what an autoscaler scales, or false if it is not an autoscaler.
func ScaledBy(o *unstructured.Unstructured) (Target, bool) {
	kind, _ := kinds.OfObject(o)
	if kind.TargetPath == nil {
		return Target{}, false
	}
	at := o.Object
	for _, field := range kind.TargetPath {
		at = object(at, field)
	}
	version, _ := at["apiVersion"].(string)
	name, _ := at["name"].(string)
	of, _ := at["kind"].(string)
	gv, err := schema.ParseGroupVersion(version)
	return Target{schema.GroupKind{Group: gv.Group, Kind: of}, name}, err == nil && name != ""
}

// Scaled returns the autoscaler of a root, or nil. Objects are roots in its namespace. One that is being deleted scales
// no longer.
func Scaled(root *unstructured.Unstructured, objects []*unstructured.Unstructured) *unstructured.Unstructured {
	want := Target{root.GroupVersionKind().GroupKind(), root.GetName()}
	var found *unstructured.Unstructured
	for _, o := range objects {
		target, ok := ScaledBy(o)
		first := found == nil || o.GetName() < found.GetName()
		if ok && target == want && first && IsRoot(o) && o.GetDeletionTimestamp() == nil {
			found = o
		}
	}
	return found
}

// BoundsOf returns the bounds of an autoscaler, with the default of Kubernetes.
func BoundsOf(autoscaler *unstructured.Unstructured) Bounds {
	spec := object(autoscaler.Object, "spec")
	b := Bounds{Min: 1}
	if n, ok := spec["minReplicas"].(int64); ok {
		b.Min = max(0, n)
	}
	most, _ := spec["maxReplicas"].(int64)
	b.Max = max(most, b.Min)
	return b
}

// Numbers are the fields of the spec of an autoscaler with its bounds.
func (b Bounds) Numbers() map[string]int64 {
	return map[string]int64{"minReplicas": b.Min, "maxReplicas": b.Max}
}

// Divide divides bounds by the replicas that clusters have, by the largest remainder. Each cluster with replicas has at
// least one, unless the autoscaler may choose none, so the sums can be larger than the bounds. Clusters without
// replicas have no bounds.
func (b Bounds) Divide(replicas map[string]int64) map[string]Bounds {
	weights := map[string]int64{}
	fewest := map[string]int64{}
	for cluster, n := range replicas {
		if n > 0 {
			weights[cluster] = n
			fewest[cluster] = min(b.Min, 1)
		}
	}
	least := divide(b.Min, weights, fewest)
	for cluster := range weights {
		fewest[cluster] = max(1, least[cluster])
	}
	most := divide(b.Max, weights, fewest)
	out := map[string]Bounds{}
	for cluster := range weights {
		out[cluster] = Bounds{least[cluster], most[cluster]}
	}
	return out
}

// divide divides a number by weights, which are greater than zero. Each share is at least the fewest of the cluster:
// clusters with the most above it give what that takes, as far as they can.
func divide(n int64, weights, fewest map[string]int64) map[string]int64 {
	// Kubernetes has no larger numbers of replicas.
	most := func(cluster string) uint64 { return uint64(min(weights[cluster], math.MaxInt32)) }
	total := uint64(0)
	for cluster := range weights {
		total += most(cluster)
	}
	shares := map[string]int64{}
	rest := map[string]uint64{}
	left := n
	for cluster := range weights {
		high, low := bits.Mul64(uint64(n), most(cluster)) // the number of a user can be any
		quotient, remainder := bits.Div64(high, low, total)
		shares[cluster] = int64(quotient)
		rest[cluster] = remainder
		left -= shares[cluster]
	}
	byRest := slices.SortedFunc(maps.Keys(weights),
		func(x, y string) int { return cmp.Or(cmp.Compare(rest[y], rest[x]), cmp.Compare(x, y)) })
	for _, cluster := range byRest[:min(int64(len(byRest)), left)] {
		shares[cluster]++
	}
	over := func(cluster string) int64 { return shares[cluster] - fewest[cluster] }
	names := slices.Sorted(maps.Keys(fewest))
	for _, cluster := range names {
		for over(cluster) < 0 {
			from := slices.MaxFunc(names, func(x, y string) int { return cmp.Compare(over(x), over(y)) })
			if over(from) > 0 {
				shares[from]--
			}
			shares[cluster]++
		}
	}
	return shares
}

// KeepReplicas sets the replicas of an object that is applied to a cluster to those that it has there, if an autoscaler
// of the cluster sets them, and reports whether it does. They can change before the object is applied, so it is applied
// to this version of the live object only. An autoscaler does nothing while they are zero, so zero is applied, and
// ended.
func KeepReplicas(leaf, desired, live *unstructured.Unstructured) bool {
	begin, divided, _ := unstructured.NestedInt64(leaf.Object, "spec", "replicas")
	have, ok, _ := unstructured.NestedInt64(live.Object, "spec", "replicas")
	if leaf.GetAnnotations()[api.AnnotationScaled] == "" || !ok || have == 0 || divided && begin == 0 {
		return false
	}
	return unstructured.SetNestedField(desired.Object, have, "spec", "replicas") == nil
}

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
