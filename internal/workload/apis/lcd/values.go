package lcd

import (
	"cmp"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// narrower has formats of which every value is also one of the other format.
var narrower = map[string]string{"int32": "int64", "float": "double"}

// strings intersects the formats and patterns.
func (w *walk) strings(path string, a, b, common *Schema) {
	switch {
	case a.Format == b.Format || b.Format == "":
	case a.Format == "" || narrower[b.Format] == a.Format:
		common.Format = b.Format
	case narrower[a.Format] == b.Format:
	default:
		w.differ(path, "the formats differ: %s, %s", a.Format, b.Format)
	}
	switch {
	case a.Pattern == b.Pattern || b.Pattern == "":
	case a.Pattern == "":
		common.Pattern = b.Pattern
	default:
		w.differ(path, "the patterns differ: %s, %s", a.Pattern, b.Pattern)
	}
}

// bounds takes the tighter bounds.
func (w *walk) bounds(path string, a, b, common *Schema) {
	common.Minimum, common.ExclusiveMinimum = bound(a.Minimum, b.Minimum, a.ExclusiveMinimum, b.ExclusiveMinimum, 1)
	common.Maximum, common.ExclusiveMaximum = bound(a.Maximum, b.Maximum, a.ExclusiveMaximum, b.ExclusiveMaximum, -1)
	common.MinLength, common.MaxLength = tighter(a.MinLength, b.MinLength, 1), tighter(a.MaxLength, b.MaxLength, -1)
	common.MinItems, common.MaxItems = tighter(a.MinItems, b.MinItems, 1), tighter(a.MaxItems, b.MaxItems, -1)
	common.MinProperties, common.MaxProperties = tighter(a.MinProperties, b.MinProperties, 1), tighter(a.MaxProperties,
		b.MaxProperties, -1)
	common.UniqueItems = a.UniqueItems || b.UniqueItems
	if exceeds(common.Minimum, common.Maximum) || exceeds(common.MinLength, common.MaxLength) ||
		exceeds(common.MinItems, common.MaxItems) || exceeds(common.MinProperties, common.MaxProperties) ||
		(common.ExclusiveMinimum || common.ExclusiveMaximum) && equalPointers(common.Minimum, common.Maximum) &&
			common.Minimum != nil {
		w.differ(path, "no value is within the bounds of both")
	}
	switch {
	case equalPointers(a.MultipleOf, b.MultipleOf) || b.MultipleOf == nil:
	case a.MultipleOf == nil:
		common.MultipleOf = b.MultipleOf
	default:
		w.differ(path, "multipleOf differs: %v, %v", *a.MultipleOf, *b.MultipleOf)
	}
}

// tighter returns the larger bound if the direction is 1, and the smaller one if it is -1. A nil bound is none.
func tighter[T cmp.Ordered](a, b *T, direction int) *T {
	if a == nil || b != nil && cmp.Compare(*b, *a) == direction {
		return b
	}
	return a
}

// bound returns the tighter bound of a number, and whether it is exclusive.
func bound(a, b *float64, exclusiveA, exclusiveB bool, direction int) (*float64, bool) {
	if equalPointers(a, b) {
		return a, exclusiveA || exclusiveB
	}
	if tighter(a, b, direction) == a {
		return a, exclusiveA
	}
	return b, exclusiveB
}

func exceeds[T cmp.Ordered](low, high *T) bool { return low != nil && high != nil && *low > *high }

func equalPointers[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }

// same compares what must be equal, because it decides how objects are merged, or cannot be compared.
func (w *walk) same(path string, a, b *Schema) {
	if orDefault(a.XListType, "atomic") != orDefault(b.XListType, "atomic") {
		w.differ(path, "the list types differ: %s, %s", orDefault(a.XListType, "atomic"),
			orDefault(b.XListType, "atomic"))
	}
	if !slices.Equal(a.XListMapKeys, b.XListMapKeys) {
		w.differ(path, "the keys of the list differ: %s, %s", strings.Join(a.XListMapKeys, " "),
			strings.Join(b.XListMapKeys, " "))
	}
	if orDefault(a.XMapType, "granular") != orDefault(b.XMapType, "granular") {
		w.differ(path, "the map types differ: %s, %s", orDefault(a.XMapType, "granular"),
			orDefault(b.XMapType, "granular"))
	}
	for _, combined := range []struct {
		name string
		a, b any
	}{
		{"allOf", a.AllOf, b.AllOf},
		{"anyOf", anyOf(a), anyOf(b)},
		{"oneOf", a.OneOf, b.OneOf},
		{"not", a.Not, b.Not},
		{"$ref", a.Ref, b.Ref},
		{"patternProperties", a.PatternProperties, b.PatternProperties},
		{"additionalItems", a.AdditionalItems, b.AdditionalItems},
		{"dependencies", a.Dependencies, b.Dependencies},
		{"definitions", a.Definitions, b.Definitions},
	} {
		if !equality.Semantic.DeepEqual(combined.a, combined.b) {
			w.differ(path, "%s differs", combined.name)
		}
	}
}

// anyOf returns the alternatives, except the alternatives of an integer or string, which are redundant.
func anyOf(s *Schema) []Schema {
	if s.XIntOrString && equality.Semantic.DeepEqual(s.AnyOf, []Schema{{Type: "integer"}, {Type: "string"}}) {
		return nil
	}
	return s.AnyOf
}

func orDefault(value *string, byDefault string) string {
	if value == nil {
		return byDefault
	}
	return *value
}

// enum takes the values that both accept.
func (w *walk) enum(path string, a, b, common *Schema) {
	switch {
	case b.Enum == nil:
		return
	case a.Enum == nil:
		common.Enum = slices.Clone(b.Enum)
		return
	}
	common.Enum = slices.DeleteFunc(slices.Clone(a.Enum),
		func(v apiextensionsv1.JSON) bool { return !hasValue(b.Enum, v) })
	if len(common.Enum) == 0 {
		w.differ(path, "no value is in the enums of both: %s, %s", values(a.Enum), values(b.Enum))
	}
}

func hasValue(enum []apiextensionsv1.JSON, v apiextensionsv1.JSON) bool {
	return slices.ContainsFunc(enum, func(other apiextensionsv1.JSON) bool { return equalJSON(v.Raw, other.Raw) })
}

// values prints an enum.
func values(enum []apiextensionsv1.JSON) string {
	all := make([]string, 0, len(enum))
	for _, v := range enum {
		all = append(all, string(v.Raw))
	}
	return strings.Join(all, "|")
}

// rules takes the rules of both. A rule that mentions a field that one of them lacks would not compile.
func (w *walk) rules(path string, a, b, common *Schema, changed names) {
	common.XValidations = slices.Clone(a.XValidations)
	for _, rule := range b.XValidations {
		if !slices.ContainsFunc(a.XValidations, func(r apiextensionsv1.ValidationRule) bool { return r.Rule == rule.Rule }) {
			common.XValidations = append(common.XValidations, rule)
		}
	}
	for _, rule := range common.XValidations {
		text := rule.Rule + " " + rule.MessageExpression + " " + rule.FieldPath
		for _, name := range slices.Sorted(maps.Keys(changed)) {
			if mentions(text, name) {
				w.differ(path, "the rule %q needs %s, which the two do not have in common", rule.Rule, name)
				break
			}
		}
	}
}

// escapes are how CEL writes characters that identifiers cannot have (apiserver: pkg/cel/escaping.go).
var escapes = strings.NewReplacer("__", "__underscores__", ".", "__dot__", "-", "__dash__", "/", "__slash__")

func mentions(rule, name string) bool {
	for _, form := range []string{name, escapes.Replace(name), "__" + name + "__"} {
		if regexp.MustCompile(`(^|[^\w])` + regexp.QuoteMeta(form) + `($|[^\w])`).MatchString(rule) {
			return true
		}
	}
	return false
}

// equalJSON compares two values. Text that is not JSON is equal to nothing.
func equalJSON(a, b []byte) bool {
	var va, vb any
	if json.Unmarshal(a, &va) != nil || json.Unmarshal(b, &vb) != nil {
		return false
	}
	return equality.Semantic.DeepEqual(va, vb)
}

// pruned returns a default without the fields that the schema does not have.
func pruned(value *apiextensionsv1.JSON, s *Schema) *apiextensionsv1.JSON {
	var v any
	if json.Unmarshal(value.Raw, &v) != nil {
		return value
	}
	raw, err := json.Marshal(Prune(v, s))
	if err != nil {
		return value
	}
	return &apiextensionsv1.JSON{Raw: raw}
}

// Prune returns the value without the fields that the schema does not have, as an API server stores it.
func Prune(value any, s *Schema) any {
	switch v := value.(type) {
	case map[string]any:
		kept := map[string]any{}
		for name, field := range v {
			p, ok := s.Properties[name]
			switch {
			case ok:
				kept[name] = Prune(field, &p)
			case s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil:
				kept[name] = Prune(field, s.AdditionalProperties.Schema)
			case isTrue(s.XPreserveUnknownFields) || s.AdditionalProperties != nil && s.AdditionalProperties.Allows:
				kept[name] = field
			}
		}
		return kept
	case []any:
		if s.Items == nil || s.Items.Schema == nil {
			return v
		}
		items := make([]any, len(v))
		for i := range v {
			items[i] = Prune(v[i], s.Items.Schema)
		}
		return items
	}
	return value
}

// Defaults returns the fields that both schemas have, and for which only the next one has its default, sorted by path.
func Defaults(was, next *Schema) []Incompatibility {
	w := &walk{}
	w.defaults("", was, next)
	w.sort()
	return w.found
}

// defaults finds the defaults below a path.
func (w *walk) defaults(path string, was, next *Schema) {
	if next.Default != nil && (was.Default == nil || !equalJSON(was.Default.Raw, next.Default.Raw)) {
		w.differ(path, "the default is %s", next.Default.Raw)
	}
	for _, name := range slices.Sorted(maps.Keys(was.Properties)) {
		if to, ok := next.Properties[name]; ok {
			from := was.Properties[name]
			w.defaults(join(path, name), &from, &to)
		}
	}
	if was.Items != nil && next.Items != nil && was.Items.Schema != nil && next.Items.Schema != nil {
		w.defaults(path+"[*]", was.Items.Schema, next.Items.Schema)
	}
	from := was.AdditionalProperties
	to := next.AdditionalProperties
	if from != nil && to != nil && from.Schema != nil && to.Schema != nil {
		w.defaults(join(path, "*"), from.Schema, to.Schema)
	}
}
