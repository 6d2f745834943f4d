// Package splitter makes the leaves of root objects: one for each cluster that a root is scheduled to. It finds what a
// workload needs in its clusters, such as ConfigMaps, and computes the status of a root from the status of its leaves.
//
// All functions are pure. The controller reads the objects of a namespace, calls them, and writes the results.
package splitter

import (
	"encoding/json"
	"fmt"
	"maps"
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

// IsLeafOf reports whether the splitter has made an object for a root.
func IsLeafOf(leaf, root *unstructured.Unstructured) bool {
	return !IsRoot(leaf) && slices.ContainsFunc(leaf.GetOwnerReferences(), func(r metav1.OwnerReference) bool {
		return r.UID == root.GetUID()
	})
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

// Compare returns the changes. Existing are the objects of the root's kind in its namespace. An object that is being
// deleted, such as a leaf of an earlier root of the same name, is not written again before it is gone.
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
		case is.GetDeletionTimestamp() != nil:
		case !IsLeafOf(is, root):
			c.Collisions = append(c.Collisions, is)
		case secretType(is) != secretType(leaf):
			c.Delete = append(c.Delete, is) // it is made again when it is gone
		case is.GetAnnotations()[api.AnnotationSpecHash] != leaf.GetAnnotations()[api.AnnotationSpecHash]:
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
