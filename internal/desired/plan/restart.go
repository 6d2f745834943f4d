package plan

import (
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// HasPods reports whether objects of a kind describe the pods of a component.
func HasPods(kind string) bool { return kind == "Deployment" || kind == "StatefulSet" }

// templateAnnotations is where the annotations of the pods are in an object that describes them.
func templateAnnotations() []string { return []string{"spec", "template", "metadata", "annotations"} }

// restartedAt returns when a user has restarted the pods of an object, or "".
func restartedAt(o *unstructured.Unstructured) string {
	if o == nil || !HasPods(o.GetKind()) {
		return ""
	}
	all, _, _ := unstructured.NestedStringMap(o.Object, templateAnnotations()...)
	return all[topology.AnnotationRestartedAt]
}

// Restart returns a copy of an object whose pods start again when it is applied.
func Restart(o *unstructured.Unstructured, at time.Time) *unstructured.Unstructured {
	return withRestart(o, at.UTC().Format(time.RFC3339Nano))
}

// KeepRestart returns the rendered object with the time of the last restart that the live object has: a plan that
// omits it would start the pods again. It does not replace a time that the rendered object has.
func KeepRestart(want, live *unstructured.Unstructured) *unstructured.Unstructured {
	at := restartedAt(live)
	if at == "" || restartedAt(want) != "" || !HasPods(want.GetKind()) {
		return want
	}
	return withRestart(want, at)
}

func withRestart(o *unstructured.Unstructured, at string) *unstructured.Unstructured {
	o = o.DeepCopy()
	all, _, _ := unstructured.NestedStringMap(o.Object, templateAnnotations()...)
	if all == nil {
		all = map[string]string{}
	}
	all[topology.AnnotationRestartedAt] = at
	// It fails only if the template is not an object, and the API server refuses that.
	_ = unstructured.SetNestedStringMap(o.Object, all, templateAnnotations()...)
	return o
}
