package lcd_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/kcpctl/kcpctl/internal/workload/apis/lcd"
)

// schema reads the fields of an object, or of another value if it has a type.
func schema(t *testing.T, text string) *lcd.Schema {
	t.Helper()
	s := &lcd.Schema{}
	require.NoError(t, yaml.UnmarshalStrict([]byte(text), s))
	return s
}

func lines(found []lcd.Incompatibility) []string {
	var all []string
	for _, i := range found {
		all = append(all, i.String())
	}
	return all
}

// Each case has two schemas of the field spec, and what they have in common or why they have nothing in common.
func TestIntersect(t *testing.T) {
	for name, tc := range map[string]struct{ a, b, common, differs string }{
		"equal":                    {a: "{type: string}", b: "{type: string}", common: "{type: string}"},
		"type":                     {a: "{type: string}", b: "{type: integer}", differs: "spec: the types differ: string, integer"},
		"integer is a number":      {a: "{type: number}", b: "{type: integer}", common: "{type: integer}"},
		"integer or string":        {a: "{x-kubernetes-int-or-string: true}", b: "{type: string}", differs: "spec: the types differ: integer or string, string"},
		"redundant anyOf":          {a: "{x-kubernetes-int-or-string: true}", b: "{x-kubernetes-int-or-string: true, anyOf: [{type: integer}, {type: string}]}", common: "{x-kubernetes-int-or-string: true}"},
		"only one has a field":     {a: "{type: object, properties: {a: {type: string}, b: {type: string}}}", b: "{type: object, properties: {a: {type: string}}}", common: "{type: object, properties: {a: {type: string}}}"},
		"required":                 {a: "{type: object, required: [a], properties: {a: {type: string}, b: {type: string}}}", b: "{type: object, required: [b], properties: {a: {type: string}, b: {type: string}}}", common: "{type: object, required: [a, b], properties: {a: {type: string}, b: {type: string}}}"},
		"required and unknown":     {a: "{type: object, required: [a], properties: {a: {type: string}}}", b: "{type: object}", differs: "spec.a: the field is required, and unknown to the other"},
		"enums overlap":            {a: `{type: string, enum: [A, B]}`, b: `{type: string, enum: [B, C]}`, common: `{type: string, enum: [B]}`},
		"enums without overlap":    {a: `{type: string, enum: [A]}`, b: `{type: string, enum: [C]}`, differs: `spec: no value is in the enums of both: "A", "C"`},
		"one enum":                 {a: `{type: string}`, b: `{type: string, enum: [C]}`, common: `{type: string, enum: [C]}`},
		"bounds":                   {a: "{type: integer, minimum: 1, maximum: 9}", b: "{type: integer, minimum: 0, maximum: 5, exclusiveMaximum: true}", common: "{type: integer, minimum: 1, maximum: 5, exclusiveMaximum: true}"},
		"equal exclusive bounds":   {a: "{type: integer, minimum: 1}", b: "{type: integer, minimum: 1, exclusiveMinimum: true}", common: "{type: integer, minimum: 1, exclusiveMinimum: true}"},
		"bounds without a value":   {a: "{type: integer, minimum: 6}", b: "{type: integer, maximum: 5}", differs: "spec: no value is within the bounds of both"},
		"lengths":                  {a: "{type: string, maxLength: 5}", b: "{type: string, minLength: 2, maxLength: 9}", common: "{type: string, minLength: 2, maxLength: 5}"},
		"patterns":                 {a: "{type: string, pattern: a}", b: "{type: string, pattern: b}", differs: "spec: the patterns differ: a, b"},
		"one pattern":              {a: "{type: string}", b: "{type: string, pattern: b}", common: "{type: string, pattern: b}"},
		"formats":                  {a: "{type: string, format: date}", b: "{type: string, format: uri}", differs: "spec: the formats differ: date, uri"},
		"int32 is an int64":        {a: "{type: integer, format: int64}", b: "{type: integer, format: int32}", common: "{type: integer, format: int32}"},
		"defaults":                 {a: "{type: string, default: a}", b: "{type: string, default: b}", common: "{type: string}"},
		"equal defaults":           {a: "{type: object, default: {a: x, b: y}, properties: {a: {type: string}, b: {type: string}}}", b: "{type: object, default: {b: y, a: x}, properties: {a: {type: string}}}", common: "{type: object, default: {a: x}, properties: {a: {type: string}}}"},
		"list types":               {a: "{type: array, x-kubernetes-list-type: set, items: {type: string}}", b: "{type: array, items: {type: string}}", differs: "spec: the list types differ: set, atomic"},
		"items":                    {a: "{type: array, items: {type: string}}", b: "{type: array, items: {type: integer}}", differs: "spec[*]: the types differ: string, integer"},
		"map key without default":  {a: "{type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [k], items: {type: object, properties: {k: {type: string, default: a}}}}", b: "{type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [k], items: {type: object, properties: {k: {type: string, default: b}}}}", differs: "spec[*].k: the field identifies items, and must be required or have the same default"},
		"map":                      {a: "{type: object, additionalProperties: {type: number}}", b: "{type: object, additionalProperties: {type: integer}}", common: "{type: object, additionalProperties: {type: integer}}"},
		"map and struct":           {a: "{type: object, additionalProperties: {type: number}}", b: "{type: object, properties: {a: {type: number}}}", differs: "spec: only one is a map (additionalProperties)"},
		"unknown fields":           {a: "{type: object, x-kubernetes-preserve-unknown-fields: true}", b: "{type: object}", differs: "spec: only one keeps unknown fields (x-kubernetes-preserve-unknown-fields)"},
		"unknown fields in both":   {a: "{type: object, x-kubernetes-preserve-unknown-fields: true, properties: {a: {type: string}}}", b: "{type: object, x-kubernetes-preserve-unknown-fields: true}", common: "{type: object, x-kubernetes-preserve-unknown-fields: true, properties: {a: {type: string}}}"},
		"nullable":                 {a: "{type: string, nullable: true}", b: "{type: string}", common: "{type: string}"},
		"rules":                    {a: "{type: string, x-kubernetes-validations: [{rule: self != 'a'}]}", b: "{type: string, x-kubernetes-validations: [{rule: self != 'b'}, {rule: self != 'a'}]}", common: "{type: string, x-kubernetes-validations: [{rule: self != 'a'}, {rule: self != 'b'}]}"},
		"rule on a missing field":  {a: "{type: object, properties: {a-b: {type: string}}, x-kubernetes-validations: [{rule: has(self.a__dash__b)}]}", b: "{type: object}", differs: `spec: the rule "has(self.a__dash__b)" needs a-b, which the two do not have in common`},
		"rule on a part of a name": {a: "{type: object, properties: {a: {type: string}, ab: {type: string}}, x-kubernetes-validations: [{rule: has(self.ab)}]}", b: "{type: object, properties: {ab: {type: string}}}", common: "{type: object, properties: {ab: {type: string}}, x-kubernetes-validations: [{rule: has(self.ab)}]}"},
		"rule on numbers":          {a: "{type: array, items: {type: number}, x-kubernetes-validations: [{rule: 'self.all(x, x > 1.5)'}]}", b: "{type: array, items: {type: integer}}", differs: `spec: the rule "self.all(x, x > 1.5)" needs self, which the two do not have in common`},
		"oneOf":                    {a: "{type: object, oneOf: [{required: [a]}]}", b: "{type: object}", differs: "spec: oneOf differs"},
	} {
		t.Run(name, func(t *testing.T) {
			wrap := func(spec string) *lcd.Schema {
				return schema(t, "{type: object, properties: {metadata: {type: object}, spec: "+spec+"}}")
			}
			a, b := wrap(tc.a), wrap(tc.b)
			common, found := lcd.Intersect(a, b)
			require.Equal(t, wrap(tc.a), a, "the arguments are not modified")
			require.Equal(t, wrap(tc.b), b, "the arguments are not modified")
			if tc.differs != "" {
				require.Equal(t, []string{tc.differs}, lines(found))
				return
			}
			require.Empty(t, lines(found))
			require.Equal(t, wrap(tc.common), common)
		})
	}
}

func TestFieldsOfAllObjectsAreKept(t *testing.T) {
	a := schema(t, "{type: object, properties: {metadata: {type: object}, kind: {type: string}, apiVersion: {type: string}}}")
	common, found := lcd.Intersect(schema(t, "{type: object}"), a)
	require.Empty(t, found)
	require.Equal(t, a, common)
	require.Empty(t, lcd.Narrows(a, schema(t, "{type: object}")))
}

func TestNarrows(t *testing.T) {
	published := `{type: object, properties: {spec: {type: object, required: [d], properties: {
	  a: {type: string, enum: [x, y]}, b: {type: array, items: {type: number}}, c: {type: object, additionalProperties: {type: string}},
	  d: {type: string, default: q}}}}}`
	for name, tc := range map[string]struct {
		candidate string
		want      []string
	}{
		"the same": {published, nil},
		"wider": {`{type: object, properties: {spec: {type: object, properties: {a: {type: string, enum: [z, y, x]}, b: {type: array, items: {type: number}},
			c: {type: object, additionalProperties: {type: string}}, d: {type: string, default: q}, e: {type: string}}}}}`, nil},
		"narrower everywhere": {`{type: object, properties: {spec: {type: object, required: [a], properties: {a: {type: string, enum: [x]},
			b: {type: array, maxItems: 3, items: {type: integer}}, c: {type: object, additionalProperties: {type: string, maxLength: 5}}, d: {type: string}},
			x-kubernetes-validations: [{rule: self.a == 'x'}]}}}`,
			[]string{
				`spec: the rule "self.a == 'x'" is new`, "spec.a: the field is required", "spec.a: enum is narrower", "spec.b: maxItems is narrower",
				"spec.b[*]: type is narrower", "spec.c.*: maxLength is narrower", "spec.d: the field is required and has lost its default",
			}},
		"fields are missing": {`{type: object, properties: {spec: {type: object, properties: {c: {type: object}, d: {type: string, default: q}}}}}`,
			[]string{"spec.a: the field is missing", "spec.b: the field is missing", "spec.c.*: the values are missing"}},
		"incompatible": {`{type: object, properties: {spec: {type: string}}}`, []string{"spec: the types differ: object, string"}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.want, lines(lcd.Narrows(schema(t, published), schema(t, tc.candidate))))
		})
	}
}

// An object that keeps unknown fields can have any of them, or none: what the candidate says about one narrows it.
func TestNarrowsOfUnknownFields(t *testing.T) {
	for name, tc := range map[string]struct {
		published, candidate string
		want                 []string
	}{
		"a field":              {"", "properties: {a: {type: string}}", []string{"spec.a: the value is restricted"}},
		"a field with any":     {"", "properties: {a: {x-kubernetes-preserve-unknown-fields: true, description: any}}", nil},
		"a required field":     {"properties: {a: {type: string}}", "properties: {a: {type: string}}, required: [a, b]", []string{"spec.a: the field is required", "spec.b: the field is required"}},
		"values of a map":      {"", "additionalProperties: {type: string}", []string{"spec.*: the values are restricted"}},
		"any values of a map":  {"", "additionalProperties: {x-kubernetes-preserve-unknown-fields: true}", nil},
		"the candidate is any": {"properties: {a: {type: string}}, required: [a]", "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			spec := func(more string) *lcd.Schema {
				return schema(t, "{type: object, properties: {spec: {type: object, x-kubernetes-preserve-unknown-fields: true, "+more+"}}}")
			}
			require.Equal(t, tc.want, lines(lcd.Narrows(spec(tc.published), spec(tc.candidate))))
		})
	}
	list := func(more string) *lcd.Schema {
		return schema(t, "{type: object, properties: {spec: {type: array, x-kubernetes-preserve-unknown-fields: true"+more+"}}}")
	}
	require.Equal(t, []string{"spec[*]: the items are restricted"}, lines(lcd.Narrows(list(""), list(", items: {type: string}"))))
	require.Empty(t, lcd.Narrows(list(""), list(", items: {x-kubernetes-preserve-unknown-fields: true}")))
}

// largeSchemas are schemas with a number of fields, or as many levels, and what they have in common is compared.
func largeSchemas(many int) (wide, narrow, deep, shallow *lcd.Schema) {
	wide, deep = &lcd.Schema{Type: "object", Properties: map[string]lcd.Schema{}}, &lcd.Schema{Type: "object"}
	for i := range many {
		name := fmt.Sprint("field", i)
		wide.Properties[name], wide.Required = lcd.Schema{Type: "string"}, append(wide.Required, name)
		wide.XValidations = append(wide.XValidations, apiextensionsv1.ValidationRule{Rule: "has(self." + name + "x)"})
		wide.Enum = append(wide.Enum, apiextensionsv1.JSON{Raw: fmt.Append(nil, i)}, apiextensionsv1.JSON{Raw: fmt.Append(nil, -i)})
	}
	for i := range many / 8 {
		next := &lcd.Schema{Type: "object", Properties: map[string]lcd.Schema{"a": *deep, fmt.Sprint("dropped", i): {Type: "string"}}}
		next.XValidations = []apiextensionsv1.ValidationRule{{Rule: "has(self.b)"}}
		deep = next
	}
	shallow = &lcd.Schema{Type: "object"}
	for range many / 8 {
		shallow = &lcd.Schema{Type: "object", Properties: map[string]lcd.Schema{"a": *shallow}}
	}
	return wide, &lcd.Schema{Type: "object", Enum: wide.Enum}, deep, shallow
}

func TestLargeSchemas(t *testing.T) {
	const many = 2000
	wide, narrow, deep, shallow := largeSchemas(many)
	_, found := lcd.Intersect(wide, narrow)
	require.Len(t, found, many, "the fields are required, and unknown to the other")
	require.Empty(t, lcd.Narrows(wide, wide))
	_, found = lcd.Intersect(deep, shallow)
	require.Empty(t, found)
	require.Len(t, lcd.Narrows(deep, shallow), many/8)
}

// Others write the schemas: the time is proportional to their sizes. Ten times the fields need about ten times the time,
// and 20000 would need many minutes otherwise.
func BenchmarkLargeSchemas(b *testing.B) {
	for _, many := range []int{2000, 20000} {
		b.Run(fmt.Sprint(many, " fields"), func(b *testing.B) {
			wide, narrow, deep, shallow := largeSchemas(many)
			for b.Loop() {
				lcd.Intersect(wide, narrow)
				lcd.Narrows(wide, wide)
				lcd.Intersect(deep, shallow)
				lcd.Narrows(deep, shallow)
			}
		})
	}
}
