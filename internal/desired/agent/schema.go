package agent

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/kcpctl/kcpctl/templates"
)

// CRD is the path of the agent's CRD in package templates.
const CRD = "agent/crd.yaml"

// structure is a structural schema of a CRD, as far as the agent's CRD uses it.
type structure struct {
	Type                 string                `json:"type"`
	Properties           map[string]*structure `json:"properties"`
	AdditionalProperties *structure            `json:"additionalProperties"`
	Items                *structure            `json:"items"`
	Required             []string              `json:"required"`
	Enum                 []any                 `json:"enum"`
	PreserveUnknown      bool                  `json:"x-kubernetes-preserve-unknown-fields"`
}

// specSchema returns the schema of the spec of a PublishedResource.
func specSchema() (*structure, error) {
	data, err := templates.FS.ReadFile(CRD)
	if err != nil {
		return nil, fmt.Errorf("read the CRD of the api-syncagent: %w", err)
	}
	var crd struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					OpenAPIV3Schema structure `json:"openAPIV3Schema"`
				} `json:"schema"`
			} `json:"versions"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(data, &crd); err != nil {
		return nil, fmt.Errorf("read the CRD of the api-syncagent: %w", err)
	}
	return crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"], nil
}

// conform compares a value with a schema. Fields that the schema does not have are warnings, because a later agent may
// know them.
func (v *validator) conform(p *field.Path, value any, s *structure) {
	switch value := value.(type) {
	case map[string]any:
		v.object(p, value, s)
	case []any:
		if !v.isType(p, value, s, "array") {
			return
		}
		for i, item := range value {
			v.conform(p.Index(i), item, s.Items)
		}
	case string:
		if v.isType(p, value, s, "string") && len(s.Enum) > 0 && !slices.Contains(s.Enum, any(value)) {
			v.errs = append(v.errs, field.NotSupported(p, value, texts(s.Enum)))
			v.errs[len(v.errs)-1].Detail = "known: " + strings.Join(texts(s.Enum), ", ")
		}
	case bool:
		v.isType(p, value, s, "boolean")
	case float64, int64:
		v.isType(p, value, s, "integer", "number")
	}
}

func (v *validator) object(p *field.Path, value map[string]any, s *structure) {
	if !v.isType(p, "an object", s, "object") {
		return
	}
	for _, key := range s.Required {
		if _, ok := value[key]; !ok {
			v.required(p.Child(key), "")
		}
	}
	for _, key := range slices.Sorted(maps.Keys(value)) {
		switch inner, known := s.Properties[key]; {
		case known:
			v.conform(p.Child(key), value[key], inner)
		case s.AdditionalProperties != nil:
			v.conform(Child(p, key), value[key], s.AdditionalProperties)
		case !s.PreserveUnknown:
			v.warn(Child(p, key), "the api-syncagent %s does not have this field", v.version)
		}
	}
}

// isType reports whether a schema has one of some types, and reports a problem otherwise.
func (v *validator) isType(p *field.Path, value any, s *structure, types ...string) bool {
	if slices.Contains(types, s.Type) {
		return true
	}
	article := "a "
	if s.Type == "object" || s.Type == "array" || s.Type == "integer" {
		article = "an "
	}
	if _, isList := value.([]any); isList {
		value = "a list"
	}
	v.invalid(p, value, "must be %s%s", article, s.Type)
	return false
}

func texts(values []any) []string {
	var out []string
	for _, v := range values {
		out = append(out, fmt.Sprint(v))
	}
	return out
}
