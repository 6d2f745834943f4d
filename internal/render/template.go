package render

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"text/template"

	yamlv3 "go.yaml.in/yaml/v3"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/templates"
)

// The templates, by path.
const (
	namespaceTemplate   = "namespace.yaml"
	configMapTemplate   = "configmap.yaml"
	secretTemplate      = "secret.yaml"
	serviceTemplate     = "service.yaml"
	peersTemplate       = "peers.yaml"
	claimTemplate       = "volumeclaim.yaml"
	pdbTemplate         = "pdb.yaml"
	deploymentTemplate  = "deployment.yaml"
	statefulSetTemplate = "statefulset.yaml"
)

// typed returns an empty object of the type that a template renders. Decoding into it finds fields that the type does
// not have, and its tags define how lists are merged.
func typed(template string) any {
	switch template {
	case namespaceTemplate:
		return &corev1.Namespace{}
	case configMapTemplate:
		return &corev1.ConfigMap{}
	case secretTemplate:
		return &corev1.Secret{}
	case serviceTemplate, peersTemplate:
		return &corev1.Service{}
	case claimTemplate:
		return &corev1.PersistentVolumeClaim{}
	case pdbTemplate:
		return &policyv1.PodDisruptionBudget{}
	case deploymentTemplate:
		return &appsv1.Deployment{}
	}
	return &appsv1.StatefulSet{}
}

type templateSet struct{ *template.Template }

func parseTemplates() (*templateSet, error) {
	t := template.New("").Option("missingkey=error").Funcs(template.FuncMap{"json": toJSON})
	t, err := t.ParseFS(templates.FS, "*/*.yaml")
	if err != nil {
		return nil, fmt.Errorf("parse templates: %w", err)
	}
	return &templateSet{t}, nil
}

func toJSON(v any) (string, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return "", err
	}
	return string(bytes.TrimSuffix(b.Bytes(), []byte("\n"))), nil
}

func toYAML(v any) []byte {
	b, err := yaml.Marshal(v)
	if err != nil {
		panic(err) // kcpctl's own values can always be encoded
	}
	return b
}

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

// object renders a template to an object without null fields.
func (s *templateSet) object(name string, data any, overlays ...overlay) (*unstructured.Unstructured, error) {
	var text bytes.Buffer
	if err := s.ExecuteTemplate(&text, name, data); err != nil {
		return nil, fmt.Errorf("template %s: %w", name, err)
	}
	var obj map[string]any
	if err := yamlv3.Unmarshal(text.Bytes(), &obj); err != nil {
		return nil, fmt.Errorf("template %s: %w", name, err)
	}
	dropEmpty(obj)
	for _, o := range overlays {
		var err error
		if obj, err = merge(obj, o, typed(name)); err != nil {
			return nil, err
		}
	}
	return strict(obj, typed(name))
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
func strict(obj map[string]any, into any) (*unstructured.Unstructured, error) {
	js, err := json.Marshal(obj)
	if err != nil {
		return nil, err
	}
	unknown, err := kjson.UnmarshalStrict(js, into)
	if err != nil {
		return nil, err
	}
	if len(unknown) > 0 {
		return nil, unknown[0]
	}
	return &unstructured.Unstructured{Object: obj}, nil
}

// dropEmpty removes null fields and empty maps, which templates print for values that are not set. It keeps the empty
// map of an emptyDir volume, which has a meaning. Integers become int64, as in decoded JSON.
func dropEmpty(obj map[string]any) {
	for k, v := range obj {
		switch v := v.(type) {
		case nil:
			delete(obj, k)
		case int:
			obj[k] = int64(v)
		case map[string]any:
			dropEmpty(v)
			if len(v) == 0 && k != "emptyDir" {
				delete(obj, k)
			}
		case []any:
			for i, e := range v {
				switch e := e.(type) {
				case map[string]any:
					dropEmpty(e)
				case int:
					v[i] = int64(e)
				}
			}
		}
	}
}
