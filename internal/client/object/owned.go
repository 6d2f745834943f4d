package object

import (
	"encoding/json"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Owned returns the part of an object that kcpctl has applied, with the live values. An apply of it changes nothing. It
// is nil if kcpctl has applied nothing, or if there is no object. A list of which kcpctl has applied items counts as a
// whole.
func Owned(live *unstructured.Unstructured) *unstructured.Unstructured {
	if live == nil {
		return nil
	}
	for _, m := range live.GetManagedFields() {
		var fields map[string]any
		if m.Manager != FieldManager || m.Operation != metav1.ManagedFieldsOperationApply || m.Subresource != "" ||
			m.FieldsV1 == nil || json.Unmarshal(m.FieldsV1.Raw, &fields) != nil {
			continue
		}
		part, _ := owned(live.Object, fields).(map[string]any)
		out := (&unstructured.Unstructured{Object: part}).DeepCopy()
		out.SetGroupVersionKind(live.GroupVersionKind())
		out.SetName(live.GetName())
		out.SetNamespace(live.GetNamespace())
		return out
	}
	return nil
}

// owned returns the part of a value that a set of fields has (structured-merge-diff: fieldpath/serialize.go). A value
// without fields below it belongs to the manager as a whole.
func owned(value any, fields map[string]any) any {
	object, isObject := value.(map[string]any)
	if !isObject || len(fields) == 0 {
		return value
	}
	out := map[string]any{}
	for key, below := range fields {
		name, isField := strings.CutPrefix(key, "f:")
		if v, has := object[name]; isField && has {
			inner, _ := below.(map[string]any)
			out[name] = owned(v, inner)
		}
	}
	return out
}
