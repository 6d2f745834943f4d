package render

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/strategicpatch"
	kjson "sigs.k8s.io/json"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
)

// overlay is a patch for the part of an object at a path.
type overlay struct {
	path  []string
	patch v1alpha1.Overlay
}

func podOverlays(all []v1alpha1.Overlay) []overlay {
	var out []overlay
	for _, o := range all {
		out = append(out, overlay{[]string{"spec", "template"}, o})
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
					out = append(out, overlay{[]string{"metadata"}, m})
				}
				continue
			}
			spec[k] = v
		}
		out = append(out, overlay{[]string{"spec"}, spec})
	}
	return out
}

// merge applies an overlay to an object by strategic merge.
func merge(obj map[string]any, o overlay, schema any) (map[string]any, error) {
	patch := map[string]any(o.patch)
	for i := len(o.path) - 1; i >= 0; i-- {
		patch = map[string]any{o.path[i]: patch}
	}
	// Through JSON: the merge needs a copy of the patch, with the types of JSON.
	js, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("overlay: %w", err)
	}
	var own map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(js, &own); err != nil {
		return nil, fmt.Errorf("overlay: %w", err)
	}
	merged, err := strategicpatch.StrategicMergeMapPatch(obj, own, schema)
	if err != nil {
		return nil, fmt.Errorf("overlay: %w", err)
	}
	dropDirectives(merged)
	return merged, nil
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
