// Package splitter makes the leaves of root objects: one for each cluster that a root is scheduled to. It finds what a
// workload needs in its clusters, such as ConfigMaps, and computes the status of a root from the status of its leaves.
//
// All functions are pure. The controller reads the objects of a namespace, calls them, and writes the results.
package splitter

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"reflect"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/api/kinds"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
)

// Share is the part of a root in a cluster.
type Share struct {
	// Replicas replace spec.replicas. Nil leaves them, for objects that are not divided.
	Replicas *int64
	// NeededBy are the workloads that need the object in the cluster, for the annotation workloads.kcp.dev/needed-by.
	NeededBy []string
	// Scaled means that an autoscaler of the cluster sets the replicas: the cluster creates the object with Replicas,
	// and nothing corrects them.
	Scaled bool
	// Numbers replace fields of the spec, such as the bounds of an autoscaler.
	Numbers map[string]int64
}

// IsRoot reports whether an object is one that a user has created, and not a leaf. Users can also create leaves.
func IsRoot(u *unstructured.Unstructured) bool { return u.GetLabels()[api.LabelCluster] == "" }

// IsLeafOf reports whether the splitter has made an object for a root, or for an earlier root of the same name that was
// deleted without its leaves (kubectl delete --cascade=orphan): as in Kubernetes, the next one adopts them.
func IsLeafOf(leaf, root *unstructured.Unstructured) bool {
	return !IsRoot(leaf) && isOwnedBy(leaf, root) || len(leaf.GetOwnerReferences()) == 0 && hasLeafName(leaf, root)
}

// IsEnding reports whether an object with the name of a leaf of a root is being deleted, or is about to be: kcp deletes
// the leaf of an earlier root of the same name some time after that root.
func IsEnding(leaf, root *unstructured.Unstructured) bool {
	return leaf.GetDeletionTimestamp() != nil || !IsLeafOf(leaf, root) && hasLeafName(leaf, root)
}

func isOwnedBy(leaf, root *unstructured.Unstructured) bool {
	return slices.ContainsFunc(leaf.GetOwnerReferences(),
		func(r metav1.OwnerReference) bool { return r.UID == root.GetUID() })
}

// hasLeafName reports whether the splitter has made an object for a root of this name.
func hasLeafName(leaf, root *unstructured.Unstructured) bool {
	by, name := leaf.GetAnnotations(), root.GetName()
	return !IsRoot(leaf) && by[api.AnnotationName] == name && by[api.AnnotationSpecHash] != "" &&
		leaf.GetName() == api.LeafName(name, leaf.GetLabels()[api.LabelCluster])
}

// Leaves returns the leaves of a root, for server-side apply, sorted by cluster.
func Leaves(root *unstructured.Unstructured, shares map[string]Share) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	for _, cluster := range slices.Sorted(maps.Keys(shares)) {
		leaf, err := leafOf(root, cluster, shares[cluster])
		if err != nil {
			return nil, err
		}
		all = append(all, leaf)
	}
	return all, nil
}

func leafOf(root *unstructured.Unstructured, cluster string, share Share) (*unstructured.Unstructured, error) {
	leaf := &unstructured.Unstructured{Object: map[string]any{}}
	for field, value := range root.DeepCopy().Object {
		if field != "metadata" && field != "status" {
			leaf.Object[field] = value
		}
	}
	leaf.SetName(api.LeafName(root.GetName(), cluster))
	leaf.SetNamespace(root.GetNamespace())
	leaf.SetLabels(with(UsersOnly(root.GetLabels()), map[string]string{api.LabelCluster: cluster}))
	// The syncer would add it before it writes to the cluster: another request, and another turn of the watch.
	leaf.SetFinalizers([]string{api.FinalizerSyncer})
	leaf.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(root, root.GroupVersionKind())})
	for field, value := range share.numbers() {
		if err := unstructured.SetNestedField(leaf.Object, value, "spec", field); err != nil {
			return nil, fmt.Errorf("set spec.%s of a leaf: %w", field, err)
		}
	}
	annotations := with(UsersOnly(root.GetAnnotations()), map[string]string{api.AnnotationName: root.GetName()})
	if g := root.GetGeneration(); g != 0 {
		annotations[api.AnnotationRootGeneration] = strconv.FormatInt(g, 10)
	}
	if len(share.NeededBy) > 0 {
		annotations[api.AnnotationNeededBy] = strings.Join(slices.Sorted(slices.Values(share.NeededBy)), ",")
	}
	if share.Scaled {
		annotations[api.AnnotationScaled] = "true"
	}
	leaf.SetAnnotations(annotations)
	SetToken(leaf, api.SecretTypeToken)
	data, err := json.Marshal(leaf.Object)
	if err != nil {
		return nil, fmt.Errorf("encode a leaf: %w", err)
	}
	annotations = with(leaf.GetAnnotations(), map[string]string{api.AnnotationSpecHash: api.Hash(12, string(data))})
	leaf.SetAnnotations(annotations)
	return leaf, nil
}

func (s Share) numbers() map[string]int64 {
	out := map[string]int64{}
	maps.Copy(out, s.Numbers)
	if s.Replicas != nil {
		out["replicas"] = *s.Replicas
	}
	return out
}

// UsersOnly returns labels or annotations without the ones that kcp, this project, or only kubectl uses.
func UsersOnly(all map[string]string) map[string]string {
	out := map[string]string{}
	for key, value := range all {
		prefix, _, _ := strings.Cut(key, "/")
		if prefix == api.Group || prefix == "kcp.io" || strings.HasSuffix(prefix, ".kcp.io") ||
			key == corev1.LastAppliedConfigAnnotation {
			continue
		}
		out[key] = value
	}
	return out
}

func with(all, more map[string]string) map[string]string {
	maps.Copy(all, more)
	return all
}

// Changes are the differences between existing and wanted leaves.
type Changes struct {
	Apply  []*unstructured.Unstructured
	Delete []*unstructured.Unstructured
	// Correct are leaves that were applied as they should be, and that another client has changed since then.
	Correct []*unstructured.Unstructured
	// Collisions are objects of the user with the names of leaves. Neither is written.
	Collisions []*unstructured.Unstructured
}

// Compare returns the changes. Existing are the objects of the root's kind in its namespace. An object that ends, such
// as a leaf of an earlier root of the same name, is not written again before it is gone.
func Compare(root *unstructured.Unstructured, want, existing []*unstructured.Unstructured) Changes {
	byName := map[string]*unstructured.Unstructured{}
	for _, e := range existing {
		byName[e.GetName()] = e
	}
	var c Changes
	wanted := map[string]bool{}
	for _, leaf := range want {
		wanted[leaf.GetName()] = true
		is := byName[leaf.GetName()]
		switch {
		case is == nil:
			c.Apply = append(c.Apply, leaf)
		case IsEnding(is, root):
		case !IsLeafOf(is, root):
			c.Collisions = append(c.Collisions, is)
		case secretType(is) != secretType(leaf):
			c.Delete = append(c.Delete, is) // it is made again when it is gone
		case is.GetAnnotations()[api.AnnotationSpecHash] != leaf.GetAnnotations()[api.AnnotationSpecHash],
			!isOwnedBy(is, root):
			c.Apply = append(c.Apply, leaf)
		case !hasContent(is, leaf):
			c.Correct = append(c.Correct, leaf)
		}
	}
	for _, e := range existing {
		if IsLeafOf(e, root) && !wanted[e.GetName()] && e.GetDeletionTimestamp() == nil {
			c.Delete = append(c.Delete, e)
		}
	}
	return c
}

// hasContent reports whether an object has the content of a leaf. It can have more, such as defaults, but no
// containers.
func hasContent(is, leaf *unstructured.Unstructured) bool {
	for field, want := range leaf.Object {
		if field == "spec" && leaf.GetAnnotations()[api.AnnotationScaled] != "" {
			want = maps.Clone(object(leaf.Object, field))
			delete(want.(map[string]any), "replicas")
		}
		if field != "metadata" && !has(is.Object[field], want) {
			return false
		}
	}
	return Surplus(is, leaf) == nil
}

// has reports whether a value of JSON has everything of another one: maps and lists of maps can have more items.
func has(is, want any) bool {
	switch want := want.(type) {
	case nil:
		return true // API servers drop fields that are null
	case map[string]any:
		m, ok := is.(map[string]any)
		for key, v := range want {
			ok = ok && has(m[key], v)
		}
		return ok
	case []any:
		l, ok := is.([]any)
		for i, v := range want {
			if _, isMap := v.(map[string]any); isMap {
				ok = ok && slices.ContainsFunc(l, func(x any) bool { return has(x, v) })
			} else {
				ok = ok && len(l) == len(want) && has(l[i], v)
			}
		}
		return ok
	}
	return reflect.DeepEqual(is, want)
}

// complete are the lists of a pod spec in which only the items of the user are: API servers add none. Their items have
// names.
var complete = []string{"containers", "initContainers", "volumes"}

// env is such a list of a container.
const env = "env"

// Surplus returns a merge patch that removes from an object what its leaf does not have: containers, volumes and
// variables of its pods that another client has added. Server-side apply leaves these, because their manager is another
// one. It returns nil if there is nothing to remove. Other lists can have more items than a leaf.
func Surplus(is, leaf *unstructured.Unstructured) map[string]any {
	kind, _ := kinds.OfObject(leaf)
	have := kinds.PodSpec(is)
	want := kinds.PodSpec(leaf)
	if have == nil || want == nil {
		return nil
	}
	patch := map[string]any{}
	for _, list := range complete {
		kept, removed := keep(have, want, list)
		if list != "volumes" {
			for i, item := range kept {
				c, _ := item.(map[string]any)
				variables, more := keep(c, named(want, list, c["name"]), env)
				if more {
					c = maps.Clone(c)
					c[env] = variables
					kept[i] = c
				}
				removed = removed || more
			}
		}
		if removed {
			patch[list] = kept
		}
	}
	if len(patch) == 0 {
		return nil
	}
	path := append(slices.Clone(kind.Template), "spec")
	for _, field := range slices.Backward(path) {
		patch = map[string]any{field: patch}
	}
	return patch
}

// keep returns the items of a list that have the name of one that is wanted, and whether there are others.
func keep(have, want map[string]any, list string) (kept []any, removed bool) {
	items, _ := have[list].([]any)
	kept = []any{}
	for _, item := range items {
		if o, _ := item.(map[string]any); named(want, list, o["name"]) != nil {
			kept = append(kept, item)
		}
	}
	return kept, len(kept) < len(items)
}

func named(of map[string]any, list string, name any) map[string]any {
	text, _ := name.(string)
	for _, item := range objects(of, list) {
		if item["name"] == text {
			return item
		}
	}
	return nil
}

// TokenOf returns the name of the ServiceAccount for which a Secret has a token. It is "" for other objects.
func TokenOf(o *unstructured.Unstructured) string {
	if of := secretType(o); of != string(corev1.SecretTypeServiceAccountToken) && of != api.SecretTypeToken {
		return ""
	}
	return o.GetAnnotations()[corev1.ServiceAccountNameKey]
}

// SetToken makes a Secret with a token for a ServiceAccount an empty one of a type: the controller of each server fills
// in Secrets of the type of Kubernetes, with a token that is for this server. It does nothing with other objects.
func SetToken(o *unstructured.Unstructured, of string) {
	if TokenOf(o) == "" {
		return
	}
	o.Object["type"] = of
	unstructured.RemoveNestedField(o.Object, "data")
	unstructured.RemoveNestedField(o.Object, "stringData")
	unstructured.RemoveNestedField(o.Object, "metadata", "annotations", corev1.ServiceAccountUIDKey)
}

// secretType returns the type of a Secret, which cannot be changed. It is "" for other objects.
func secretType(o *unstructured.Unstructured) string {
	if o.GroupVersionKind().GroupKind() != (schema.GroupKind{Kind: "Secret"}) {
		return ""
	}
	of, _, _ := unstructured.NestedString(o.Object, "type")
	return of
}

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
