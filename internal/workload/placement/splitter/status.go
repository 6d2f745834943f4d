package splitter

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/cache"

	"github.com/kcpctl/kcpctl/internal/api/kinds"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
)

// compute computes a field of the status of a root from the values of its leaves, which are at least one, sorted by
// cluster.
func compute(op kinds.Operation, values []any) any {
	switch op {
	case kinds.Sum:
		return sum(values)
	case kinds.Earliest:
		return slices.MinFunc(values, compareText)
	case kinds.Latest:
		return slices.MaxFunc(values, compareText)
	case kinds.Union:
		return union(values)
	}
	return same(values)
}

// IsFinished reports whether a root is a Job that has run to its end, with or without success.
func IsFinished(root *unstructured.Unstructured) bool {
	k, _ := kinds.OfObject(root)
	return k.Finishes && slices.ContainsFunc(objects(object(root.Object, "status"), "conditions"),
		func(c map[string]any) bool {
			return c["status"] == "True" && slices.Contains([]any{"Complete", "Failed"}, c["type"])
		})
}

func sum(values []any) any {
	total := int64(0)
	for _, v := range values {
		n, _ := v.(int64)
		total += n
	}
	return total
}

// compareText compares times in RFC 3339, which have the order of their texts.
func compareText(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) }

func union(values []any) any {
	all := []any{}
	for _, v := range values {
		list, _ := v.([]any)
		for _, item := range list {
			if !slices.ContainsFunc(all, func(other any) bool { return reflect.DeepEqual(item, other) }) {
				all = append(all, item)
			}
		}
	}
	return all
}

func same(values []any) any {
	for _, v := range values {
		if !reflect.DeepEqual(v, values[0]) {
			return nil
		}
	}
	return values[0]
}

// Aggregate returns the status of a root. Leaves has a leaf for each cluster of the root, or nil if it does not exist
// yet. Conditions are the conditions of the root itself, such as Scheduled. A root with one leaf has the status of the
// leaf. Of several leaves, the fields in the table are computed.
func Aggregate(root *unstructured.Unstructured, leaves map[string]*unstructured.Unstructured,
	conditions ...metav1.Condition) map[string]any {
	names, existing := slices.Sorted(maps.Keys(leaves)), []string{}
	for _, name := range names {
		if leaves[name] != nil {
			existing = append(existing, name)
		}
	}
	status := map[string]any{}
	kind, _ := kinds.OfObject(root)
	if len(existing) == 1 && (len(names) == 1 || kind.Status == nil) {
		status, _, _ = unstructured.NestedMap(leaves[existing[0]].Object, "status")
		if status == nil {
			status = map[string]any{}
		}
	}
	for _, field := range kind.Status {
		path := append([]string{"status"}, strings.Split(field.Path, ".")...)
		var values []any
		for _, name := range existing {
			if v, ok, _ := unstructured.NestedFieldCopy(leaves[name].Object, path...); ok {
				values = append(values, v)
			}
		}
		if len(values) == 0 {
			continue
		}
		if v := compute(field.Operation, values); v != nil {
			// The parents are maps, or do not exist: the table sets them.
			_ = unstructured.SetNestedField(status, v, path[1:]...)
		}
	}
	delete(status, "observedGeneration")
	if g, ok := observed(root, names, leaves); ok {
		status["observedGeneration"] = g
	}
	delete(status, "conditions")
	if all := mergeConditions(existing, leaves, conditions); len(all) > 0 &&
		kinds.HasConditions(root.GroupVersionKind().GroupKind()) {
		status["conditions"] = all
	}
	return status
}

// observed returns the generation of the root that all clusters have acted on: the current one, or else the previous
// value. kubectl rollout status waits for it before it reads the other fields.
func observed(root *unstructured.Unstructured, names []string,
	leaves map[string]*unstructured.Unstructured) (int64, bool) {
	before, ok, _ := unstructured.NestedInt64(root.Object, "status", "observedGeneration")
	for _, name := range names {
		leaf := leaves[name]
		if leaf == nil {
			return before, ok
		}
		of, err := strconv.ParseInt(leaf.GetAnnotations()[api.AnnotationRootGeneration], 10, 64)
		at, reports, _ := unstructured.NestedInt64(leaf.Object, "status", "observedGeneration")
		if err != nil || of != root.GetGeneration() || !reports || at < leaf.GetGeneration() {
			return before, ok
		}
	}
	if len(names) == 0 {
		return before, ok
	}
	return root.GetGeneration(), true
}

// anywhere are conditions that are True if they are in any cluster: something is wrong, or a pod may be disrupted. All
// others are True if they are in all clusters.
var anywhere = []string{"ReplicaFailure", "Failed", "FailureTarget", "ScalingLimited", "DisruptionAllowed"}

// mergeConditions merges the conditions of leaves by type: a root has the state of its worst leaf, see anywhere.
func mergeConditions(names []string, leaves map[string]*unstructured.Unstructured, own []metav1.Condition) []any {
	byType := map[string][]reported{}
	for _, name := range names {
		for _, c := range objects(object(leaves[name].Object, "status"), "conditions") {
			kind, _ := c["type"].(string)
			byType[kind] = append(byType[kind], reported{name, c})
		}
	}
	for _, c := range own {
		delete(byType, c.Type)
	}
	var all []any
	for _, kind := range slices.Sorted(maps.Keys(byType)) {
		all = append(all, worst(kind, byType[kind], len(names) > 1))
	}
	for i := range own {
		if c, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&own[i]); err == nil {
			all = append(all, c)
		}
	}
	return all
}

type reported struct {
	cluster   string
	condition map[string]any
}

// worst returns the condition of the worst leaves. If there are several leaves, the message names their clusters.
func worst(kind string, all []reported, several bool) any {
	order := []any{"False", "Unknown", "True"}
	if slices.Contains(anywhere, kind) {
		order = []any{"True", "Unknown", "False"}
	}
	rank := func(r reported) int { return slices.Index(order, r.condition["status"]) }
	lowest := rank(slices.MinFunc(all, func(a, b reported) int { return rank(a) - rank(b) }))
	var deciding []reported
	var messages []string
	for _, r := range all {
		if rank(r) != lowest {
			continue
		}
		deciding = append(deciding, r)
		if m, _ := r.condition["message"].(string); m != "" && several {
			messages = append(messages, r.cluster+": "+m)
		}
	}
	merged := maps.Clone(deciding[0].condition)
	if several {
		merged["message"] = strings.Join(messages, "; ")
	}
	for _, field := range []string{"lastTransitionTime", "lastUpdateTime", "lastProbeTime"} {
		var times []any
		for _, r := range deciding {
			if at, ok := r.condition[field]; ok && at != nil {
				times = append(times, at)
			}
		}
		if len(times) > 0 {
			merged[field] = slices.MaxFunc(times, compareText)
		}
	}
	return merged
}

// PlacementOf returns the summary of a root for its annotation workloads.kcp.dev/placement.
func PlacementOf(leaves map[string]*unstructured.Unstructured) api.Placement {
	p := api.Placement{}
	for name, leaf := range leaves {
		var share api.ClusterPlacement
		if leaf != nil {
			at := "spec"
			if leaf.GetAnnotations()[api.AnnotationScaled] != "" {
				at = "status" // the replicas that the autoscaler has set
			}
			if n, ok, _ := unstructured.NestedInt64(leaf.Object, at, "replicas"); ok {
				share.Replicas = &n
			}
			for _, field := range []string{"readyReplicas", "numberReady", "ready"} {
				if n, ok, _ := unstructured.NestedInt64(leaf.Object, "status", field); ok {
					share.Ready = &n
					break
				}
			}
		}
		p[name] = share
	}
	return p
}

// droppedFor is how long a field is not sent again that kcp has dropped: the schema can change. mostDropped is how many
// fields are remembered: beyond that, those that were looked at long ago are sent again.
const (
	droppedFor  = 10 * time.Minute
	mostDropped = 10000
)

// Dropped remembers the fields of a status that kcp drops, because the schema of the kind does not have them. Otherwise
// each look at an object would send them again.
type Dropped struct{ fields *cache.LRUExpireCache }

// statusField is a field of the status of a kind in a logical cluster, which has its own schema until kcp has updated
// its APIBinding.
type statusField struct {
	schema.GroupKind
	cluster, field string
}

// NewDropped returns a Dropped without fields.
func NewDropped() Dropped { return Dropped{cache.NewLRUExpireCache(mostDropped)} }

func (d Dropped) has(gk schema.GroupKind, cluster, field string) bool {
	_, dropped := d.fields.Get(statusField{gk, cluster, field})
	return dropped
}

// HasConditions reports whether the status of a kind can have conditions of kcpctl, as far as that is known.
func (d Dropped) HasConditions(gk schema.GroupKind, cluster string) bool {
	return kinds.HasConditions(gk) && !d.has(gk, cluster, "conditions") && !d.has(gk, cluster, ownConditions)
}

// ownConditions stands for conditions of kcpctl, which the schema of a kind does not permit.
const ownConditions = "conditions of kcpctl"

// Refused reports whether kcp refuses a status because of its conditions: they need fields that conditions of kcpctl do
// not have, or are no list. From then on, HasConditions is false for the kind.
func (d Dropped) Refused(gk schema.GroupKind, cluster string, err error) bool {
	status := apierrors.APIStatus(nil)
	if !d.HasConditions(gk, cluster) || !apierrors.IsInvalid(err) || !errors.As(err, &status) ||
		status.Status().Details == nil || !slices.ContainsFunc(status.Status().Details.Causes,
		func(c metav1.StatusCause) bool { return strings.HasPrefix(c.Field, "status.conditions") }) {
		return false
	}
	d.fields.Add(statusField{gk, cluster, ownConditions}, nil, droppedFor)
	return true
}

// Strip removes the fields from a status that kcp drops.
func (d Dropped) Strip(gk schema.GroupKind, cluster string, status map[string]any) {
	maps.DeleteFunc(status, func(field string, _ any) bool { return d.has(gk, cluster, field) })
}

// Learn compares fields of a status that were sent with the answer. It reports whether kcp has dropped the conditions.
func (d Dropped) Learn(gk schema.GroupKind, cluster string, sent map[string]any,
	answer *unstructured.Unstructured) (conditions bool) {
	for field, value := range sent {
		if _, kept, _ := unstructured.NestedFieldNoCopy(answer.Object, "status", field); kept || value == nil {
			continue
		}
		d.fields.Add(statusField{gk, cluster, field}, nil, droppedFor)
		conditions = conditions || field == "conditions"
	}
	return conditions
}
