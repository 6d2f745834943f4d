package syncer

import (
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/api/kinds"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/placement/splitter"
	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

// Annotations of objects in a physical cluster.
const (
	// annotationLeaf is the key of the leaf that an object was made from.
	annotationLeaf = api.Group + "/leaf"
	// annotationGeneration is the generation of the leaf that the spec was made from.
	annotationGeneration = api.Group + "/leaf-generation"
	// annotationUID and annotationCreated have the UID of the leaf, and when kcp has created it: a leaf of the same
	// name can have been there before.
	annotationUID     = api.Group + "/leaf-uid"
	annotationCreated = api.Group + "/leaf-created"
)

// headless is the value of clusterIP with which a Service gets no address. It is the user's decision, not the
// cluster's.
const headless = "None"

// name returns the name that a leaf has in the physical cluster: the name of its root.
func name(leaf *unstructured.Unstructured) string {
	if n := leaf.GetAnnotations()[api.AnnotationName]; n != "" {
		return n
	}
	return leaf.GetName()
}

// transform returns the object for the physical cluster that a leaf stands for. The leaf is not changed.
func (s *syncer) transform(leaf *unstructured.Unstructured) *unstructured.Unstructured {
	object := map[string]any{}
	for field, value := range leaf.Object {
		if field != "metadata" && field != "status" {
			object[field] = value
		}
	}
	out := &unstructured.Unstructured{Object: object}
	out = out.DeepCopy()
	gvk := leaf.GroupVersionKind()
	none := false
	if gvk.GroupKind() == (schema.GroupKind{Kind: "Service"}) {
		ip, _, _ := unstructured.NestedString(object, "spec", "clusterIP")
		none = ip == headless
	}
	for _, path := range kinds.Placed(gvk.GroupKind()) {
		remove(out.Object, path)
	}
	if none {
		// The spec is a map: clusterIP was in it.
		_ = unstructured.SetNestedField(out.Object, headless, "spec", "clusterIP")
	}
	key := watch.KeyOf(leaf)
	out.SetName(name(leaf))
	out.SetNamespace(api.DownstreamNamespace(s.Setup, key.Cluster, key.Namespace))
	out.SetLabels(splitter.UsersOnly(leaf.GetLabels()))
	out.SetAnnotations(splitter.UsersOnly(leaf.GetAnnotations()))
	s.mark(out, leaf)
	splitter.SetToken(out, string(corev1.SecretTypeServiceAccountToken))
	return out
}

// mark sets the labels and annotations by which the syncer finds its objects.
func (s *syncer) mark(out, leaf *unstructured.Unstructured) {
	l, a := out.GetLabels(), out.GetAnnotations()
	l[api.LabelSetup], l[api.LabelCluster] = s.Setup, s.Cluster
	a[annotationLeaf] = watch.KeyOf(leaf).String()
	if g := leaf.GetGeneration(); g != 0 {
		a[annotationGeneration] = strconv.FormatInt(g, 10)
	}
	a[annotationUID], a[annotationCreated] = string(leaf.GetUID()), leaf.GetCreationTimestamp().UTC().Format(time.RFC3339)
	out.SetLabels(l)
	out.SetAnnotations(a)
}

// remove removes a field. A step that ends with [] is a list, in all of whose items the rest of the path is removed.
func remove(object map[string]any, path []string) {
	step, list := strings.CutSuffix(path[0], "[]")
	if len(path) == 1 {
		delete(object, step)
		return
	}
	if !list {
		if inner, ok := object[step].(map[string]any); ok {
			remove(inner, path[1:])
		}
		return
	}
	items, _ := object[step].([]any)
	for _, item := range items {
		if inner, ok := item.(map[string]any); ok {
			remove(inner, path[1:])
		}
	}
}
