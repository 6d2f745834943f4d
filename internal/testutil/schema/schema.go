// Package schema validates documents against the JSON schemas that kcpctl generates, for tests. It is stricter than
// JSON schema: a property that the schema does not have is a problem.
package schema

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Problems returns what is wrong with a document.
func Problems(schema, document []byte) []string {
	v := &validator{}
	var doc any
	for _, in := range []struct {
		data []byte
		into any
	}{{schema, &v.root}, {document, &doc}} {
		if err := json.Unmarshal(in.data, in.into); err != nil {
			return []string{err.Error()}
		}
	}
	v.check("", v.root, doc)
	return v.problems
}

type validator struct {
	root     map[string]any
	problems []string
}

func (v *validator) report(at, format string, args ...any) {
	v.problems = append(v.problems, at+": "+fmt.Sprintf(format, args...))
}

func (v *validator) check(at string, schema any, doc any) {
	s, ok := schema.(map[string]any)
	if !ok {
		return // true allows everything
	}
	if ref, ok := s["$ref"].(string); ok {
		defs, _ := v.root["$defs"].(map[string]any)
		name := strings.TrimPrefix(ref, "#/$defs/")
		if defs[name] == nil {
			v.report(at, "the schema has no definition %s", name)
		}
		v.check(at, defs[name], doc)
		return
	}
	if enum, ok := s["enum"].([]any); ok && !slices.Contains(enum, doc) {
		v.report(at, "%v is not one of %v", doc, enum)
	}
	if want, ok := s["type"].(string); ok && !is(want, doc) {
		v.report(at, "%v is not of type %s", doc, want)
		return
	}
	switch doc := doc.(type) {
	case map[string]any:
		v.object(at, s, doc)
	case []any:
		for i, item := range doc {
			v.check(fmt.Sprintf("%s[%d]", at, i), s["items"], item)
		}
	}
}

func (v *validator) object(at string, s, doc map[string]any) {
	properties, _ := s["properties"].(map[string]any)
	required, _ := s["required"].([]any)
	for _, name := range required {
		if _, ok := doc[name.(string)]; !ok {
			v.report(at, "lacks %s", name)
		}
	}
	if properties == nil && s["additionalProperties"] == nil {
		return // an object without a type
	}
	for _, name := range slices.Sorted(maps.Keys(doc)) {
		below := at + "." + name
		switch p, known := properties[name]; {
		case known:
			v.check(below, p, doc[name])
		case s["additionalProperties"] != nil:
			v.check(below, s["additionalProperties"], doc[name])
		default:
			v.report(below, "the schema has no such property")
		}
	}
}

// is reports whether a value has a type of JSON schema.
func is(want string, value any) bool {
	switch want {
	case "integer":
		n, ok := value.(float64)
		return ok && n == float64(int64(n))
	case "array":
		return value == nil || reflect.TypeOf(value).Kind() == reflect.Slice // a nil slice is null
	}
	kinds := map[string]reflect.Kind{
		"object": reflect.Map, "string": reflect.String, "number": reflect.Float64, "boolean": reflect.Bool,
	}
	return value != nil && reflect.TypeOf(value).Kind() == kinds[want]
}
