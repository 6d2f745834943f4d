package lcd_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
	"pgregory.net/rapid"

	"github.com/kcpctl/kcpctl/internal/workload/apis/lcd"
)

// Every object of the common schema is valid in both schemas, and neither drops a field of it.
func TestObjectsOfTheCommonSchemaAreValidInBoth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := drawSchema(t, 3, "a")
		b := changed(t, a.DeepCopy(), "b")
		if rapid.IntRange(0, 9).Draw(t, "independent") == 0 {
			b = drawSchema(t, 3, "b")
		}
		common, found := lcd.Intersect(a, b)
		other, otherFound := lcd.Intersect(b, a)
		require.Equal(t, len(found) == 0, len(otherFound) == 0, "the order does not matter: %v %v", found, otherFound)
		if len(found) > 0 {
			return
		}
		require.Empty(t, lcd.Narrows(common, a), "a accepts what the common schema accepts")
		require.Empty(t, lcd.Narrows(common, b), "b accepts what the common schema accepts")
		require.Empty(t, lcd.Narrows(common, other), "both orders give the same")
		for i := range 8 {
			value := lcd.Prune(drawValue(t, common, fmt.Sprint("value", i)), common)
			if !valid(t, common, value) {
				continue
			}
			for name, s := range map[string]*lcd.Schema{"a": a, "b": b} {
				require.True(t, valid(t, s, value), "%s refuses %s\n%s\ncommon\n%s", name, text(t, value), text(t, s), text(t, common))
				require.Equal(t, value, lcd.Prune(value, s), "%s drops fields", name)
			}
		}
	})
}

// What Narrows allows loses nothing: an object of the published schema is valid in the candidate.
func TestACandidateThatDoesNotNarrowAcceptsAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		published := drawSchema(t, 3, "published")
		candidate := changed(t, published.DeepCopy(), "candidate")
		if len(lcd.Narrows(published, candidate)) > 0 {
			return
		}
		value := lcd.Prune(drawValue(t, published, "value"), published)
		if valid(t, published, value) {
			require.True(t, valid(t, candidate, value), "%s\n%s\n%s", text(t, value), text(t, published), text(t, candidate))
			require.Equal(t, value, lcd.Prune(value, candidate))
		}
	})
}

func TestASchemaHasItselfInCommon(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := drawSchema(t, 3, "a")
		common, found := lcd.Intersect(a, a)
		require.Empty(t, found)
		require.Equal(t, text(t, a), text(t, common))
		require.Empty(t, lcd.Narrows(a, a))
	})
}

// drawSchema returns a schema of an object, with at most so many levels.
func drawSchema(t *rapid.T, levels int, label string) *lcd.Schema {
	s := &lcd.Schema{Type: "object"}
	kinds := []string{"struct", "struct", "map", "any"}
	if levels < 3 {
		kinds = append(kinds, "array", "string", "string", "integer", "number", "int-or-string", "boolean")
	}
	if levels == 0 {
		kinds = kinds[4:]
		kinds = append(kinds[:0:0], "string", "integer", "number", "int-or-string", "boolean")
	}
	s.Nullable = levels < 3 && rapid.IntRange(0, 5).Draw(t, label+" nullable") == 0
	switch kind := rapid.SampledFrom(kinds).Draw(t, label+" kind"); kind {
	case "struct":
		drawFields(t, s, levels, label)
	case "map":
		s.AdditionalProperties = &apiextensionsv1.JSONSchemaPropsOrBool{Allows: true, Schema: drawSchema(t, levels-1, label+".*")}
		drawLimits(t, &s.MinProperties, &s.MaxProperties, label+" properties")
	case "any":
		keep := true
		s.XPreserveUnknownFields = &keep
		drawFields(t, s, levels, label)
	case "array":
		s.Type, s.Items = "array", &apiextensionsv1.JSONSchemaPropsOrArray{Schema: drawSchema(t, levels-1, label+"[*]")}
		drawLimits(t, &s.MinItems, &s.MaxItems, label+" items")
	case "int-or-string":
		s.Type, s.XIntOrString = "", true
	default:
		s.Type = kind
		drawScalar(t, s, label)
	}
	return s
}

func drawFields(t *rapid.T, s *lcd.Schema, levels int, label string) {
	for _, name := range []string{"a", "b", "c"} {
		if rapid.Bool().Draw(t, label+" has "+name) {
			if s.Properties == nil {
				s.Properties = map[string]lcd.Schema{}
			}
			s.Properties[name] = *drawSchema(t, levels-1, label+"."+name)
			if rapid.IntRange(0, 3).Draw(t, label+" requires "+name) == 0 {
				s.Required = append(s.Required, name)
			}
		}
	}
}

func drawScalar(t *rapid.T, s *lcd.Schema, label string) {
	switch s.Type {
	case "string":
		drawLimits(t, &s.MinLength, &s.MaxLength, label+" length")
		if rapid.IntRange(0, 3).Draw(t, label+" enum") == 0 {
			for _, v := range []string{`""`, `"x"`, `"xy"`} {
				if rapid.Bool().Draw(t, label+v) {
					s.Enum = append(s.Enum, apiextensionsv1.JSON{Raw: []byte(v)})
				}
			}
		}
	case "integer", "number":
		if rapid.Bool().Draw(t, label+" minimum") {
			v := float64(rapid.IntRange(-1, 3).Draw(t, label+" low"))
			s.Minimum, s.ExclusiveMinimum = &v, rapid.Bool().Draw(t, label+" exclusive low")
		}
		if rapid.Bool().Draw(t, label+" maximum") {
			v := float64(rapid.IntRange(1, 5).Draw(t, label+" high"))
			s.Maximum, s.ExclusiveMaximum = &v, rapid.Bool().Draw(t, label+" exclusive high")
		}
		if s.Minimum != nil && s.Maximum != nil && *s.Minimum >= *s.Maximum {
			s.Maximum, s.ExclusiveMaximum = nil, false
		}
	}
}

func drawLimits(t *rapid.T, low, high **int64, label string) {
	if rapid.IntRange(0, 3).Draw(t, label+" low") == 0 {
		v := int64(rapid.IntRange(0, 1).Draw(t, label+" minimum"))
		*low = &v
	}
	if rapid.IntRange(0, 3).Draw(t, label+" high") == 0 {
		v := int64(rapid.IntRange(1, 3).Draw(t, label+" maximum"))
		*high = &v
	}
}

// changed returns the schema with some of its fields drawn again, so that most of it is common.
func changed(t *rapid.T, s *lcd.Schema, label string) *lcd.Schema {
	for _, name := range []string{"a", "b", "c"} {
		p, ok := s.Properties[name]
		switch action := rapid.IntRange(0, 9).Draw(t, label+" "+name); {
		case action == 0:
			delete(s.Properties, name)
		case action <= 2 && p.Type == "number":
			p.Type = "integer"
			s.Properties[name] = p
		case action == 3 && ok:
			p.Nullable = !p.Nullable
			s.Properties[name] = p
		case action < 7 && ok && p.Type != "object" && p.Type != "array":
			p.Minimum, p.MinLength, p.Enum, p.Maximum, p.MaxLength = nil, nil, nil, nil, nil
			drawScalar(t, &p, label+"."+name)
			s.Properties[name] = p
		case ok:
			s.Properties[name] = *changed(t, &p, label+"."+name)
		}
	}
	if s.Items != nil {
		s.Items.Schema = changed(t, s.Items.Schema, label+"[*]")
	}
	if s.AdditionalProperties != nil {
		s.AdditionalProperties.Schema = changed(t, s.AdditionalProperties.Schema, label+".*")
	}
	return s
}

// drawValue returns a value that is likely to be valid.
func drawValue(t *rapid.T, s *lcd.Schema, label string) any {
	dice := rapid.IntRange(0, 19).Draw(t, label)
	if dice == 0 {
		return rapid.SampledFrom([]any{nil, "x", int64(1), 1.5, true, []any{}, map[string]any{"a": "x"}}).Draw(t, label+" any")
	}
	if dice < 4 && s.Nullable {
		return nil
	}
	kind := s.Type
	if s.XIntOrString {
		kind = rapid.SampledFrom([]string{"integer", "string"}).Draw(t, label+" kind")
	}
	switch kind {
	case "object":
		return drawObject(t, s, label)
	case "array":
		items := []any{}
		for i := range rapid.IntRange(0, 3).Draw(t, label+" items") {
			items = append(items, drawValue(t, s.Items.Schema, fmt.Sprint(label, i)))
		}
		return items
	case "integer":
		return int64(rapid.IntRange(-2, 6).Draw(t, label+" integer"))
	case "number":
		return float64(rapid.IntRange(-4, 12).Draw(t, label+" number")) / 2
	case "boolean":
		return rapid.Bool().Draw(t, label+" boolean")
	}
	return rapid.SampledFrom([]string{"", "x", "xy", "xyz", "wxyz"}).Draw(t, label+" string")
}

func drawObject(t *rapid.T, s *lcd.Schema, label string) any {
	object := map[string]any{}
	for _, name := range []string{"a", "b", "c"} {
		p, ok := s.Properties[name]
		if !ok && s.AdditionalProperties != nil {
			p, ok = *s.AdditionalProperties.Schema, true
		}
		if ok && rapid.IntRange(0, 3).Draw(t, label+" without "+name) > 0 {
			object[name] = drawValue(t, &p, label+"."+name)
		} else if s.XPreserveUnknownFields != nil && rapid.Bool().Draw(t, label+" unknown "+name) {
			object[name] = drawValue(t, &lcd.Schema{Type: "string"}, label+"."+name)
		}
	}
	return object
}

// valid validates a value as an API server does.
func valid(t *rapid.T, s *lcd.Schema, value any) bool {
	data, err := json.Marshal(withTypes(s.DeepCopy()))
	require.NoError(t, err)
	open := &spec.Schema{}
	require.NoError(t, json.Unmarshal(data, open))
	result := validate.NewSchemaValidator(open, nil, "", strfmt.Default).Validate(value)
	return result.IsValid()
}

// withTypes adds the types of what is an integer or a string, which the validator does not know.
func withTypes(s *lcd.Schema) *lcd.Schema {
	if s.XIntOrString {
		s.AnyOf = []lcd.Schema{{Type: "integer"}, {Type: "string"}}
		if s.Nullable {
			s.AnyOf = append(s.AnyOf, lcd.Schema{Enum: []apiextensionsv1.JSON{{Raw: []byte("null")}}})
		}
	}
	for name, p := range s.Properties {
		s.Properties[name] = *withTypes(&p)
	}
	if s.Items != nil {
		s.Items.Schema = withTypes(s.Items.Schema)
	}
	if s.AdditionalProperties != nil {
		s.AdditionalProperties.Schema = withTypes(s.AdditionalProperties.Schema)
	}
	return s
}

func text(t *rapid.T, v any) string {
	data, err := json.Marshal(v)
	require.NoError(t, err)
	return string(data)
}
