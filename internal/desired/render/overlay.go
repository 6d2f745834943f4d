package render

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	kjson "sigs.k8s.io/json"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
)

// overlay is a patch for the part of an object at a path. schema is an empty value of the type of that part.
type overlay struct {
	path   []string
	schema func() any
	patch  v1alpha1.Overlay
}

func podOverlays(all []v1alpha1.Overlay) []overlay {
	var out []overlay
	for _, o := range all {
		out = append(out, overlay{[]string{"spec", "template"}, func() any { return &corev1.PodTemplateSpec{} }, o})
	}
	return out
}

// serviceOverlays separates metadata from the fields of the spec: the setup file has them in one map.
func serviceOverlays(all []v1alpha1.Overlay) []overlay {
	var out []overlay
	for _, o := range all {
		spec := v1alpha1.Overlay{}
		for k, v := range o {
			if k == "metadata" {
				if m, ok := v.(map[string]any); ok {
					out = append(out, overlay{[]string{"metadata"}, func() any { return &metav1.ObjectMeta{} }, m})
				}
				continue
			}
			spec[k] = v
		}
		out = append(out, overlay{[]string{"spec"}, func() any { return &corev1.ServiceSpec{} }, spec})
	}
	return out
}

// merge applies an overlay to an object by strategic merge. That must leave no field that the type of the part does not
// have.
func (o overlay) merge(obj map[string]any) error {
	path := strings.Join(o.path, ".")
	// Through JSON: the merge needs a copy of the patch, with the types of JSON.
	js, err := json.Marshal(o.patch)
	if err != nil {
		return fmt.Errorf("overlay of %s: %w", path, err)
	}
	var own map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(js, &own); err != nil {
		return fmt.Errorf("overlay of %s: %w", path, err)
	}
	last := len(o.path) - 1
	parent := part(obj, o.path[:last]...)
	merged, err := strategicpatch.StrategicMergeMapPatch(part(parent, o.path[last]), own, o.schema())
	if err != nil {
		return fmt.Errorf("overlay of %s: %w", path, err)
	}
	dropDirectives(merged)
	parent[o.path[last]] = map[string]any(merged)
	if err := strict(merged, o.schema()); err != nil {
		return fmt.Errorf("overlay of %s: %w", path, err)
	}
	return nil
}

// part returns the part of an object at a path. It adds what does not exist.
func part(obj map[string]any, path ...string) map[string]any {
	for _, field := range path {
		next, ok := obj[field].(map[string]any)
		if !ok {
			next = map[string]any{}
			obj[field] = next
		}
		obj = next
	}
	return obj
}

// dropDirectives removes the directives of the merge. They remain where the object has nothing that the overlay could
// be merged with.
func dropDirectives(obj map[string]any) {
	for k, v := range obj {
		if strings.HasPrefix(k, "$") {
			delete(obj, k)
			continue
		}
		switch v := v.(type) {
		case map[string]any:
			dropDirectives(v)
		case []any:
			v = slices.DeleteFunc(v, func(e any) bool {
				m, ok := e.(map[string]any)
				return ok && m["$patch"] == "delete"
			})
			for _, e := range v {
				if m, ok := e.(map[string]any); ok {
					dropDirectives(m)
				}
			}
			obj[k] = v
		}
	}
}

// strict fails if an object has a field that its type does not have.
func strict(obj map[string]any, into any) error {
	js, err := json.Marshal(obj)
	if err != nil {
		return err
	}
	unknown, err := kjson.UnmarshalStrict(js, into)
	if err == nil && len(unknown) > 0 {
		err = unknown[0]
	}
	return err
}
