package lcd

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"unicode"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// narrower has formats of which every value is also one of the other format.
var narrower = map[string]string{"int32": "int64", "float": "double"}

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

func (w *walk) enum(path string, a, b, common *Schema) {
	switch {
	case b.Enum == nil:
		return
	case a.Enum == nil:
		common.Enum = slices.Clone(b.Enum)
		return
	}
	inB := map[string]bool{}
	for _, v := range b.Enum {
		inB[canonical(v.Raw)] = true
	}
	delete(inB, "")
	common.Enum = slices.DeleteFunc(slices.Clone(a.Enum),
		func(v apiextensionsv1.JSON) bool { return !inB[canonical(v.Raw)] })
	if len(common.Enum) == 0 {
		w.differ(path, "no value is in the enums of both: %s, %s", values(a.Enum), values(b.Enum))
	}
}

// canonical returns the same text for all forms of a value. It is empty for text that is not JSON.
func canonical(raw []byte) string {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return ""
	}
	out, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return string(out)
}

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
	inA := map[string]bool{}
	for _, rule := range a.XValidations {
		inA[rule.Rule] = true
	}
	for _, rule := range b.XValidations {
		if !inA[rule.Rule] {
			common.XValidations = append(common.XValidations, rule)
		}
	}
	for _, rule := range common.XValidations {
		if name := changed.mentionedIn(rule.Rule + " " + rule.MessageExpression + " " + rule.FieldPath); name != "" {
			w.differ(path, "the rule %q needs %s, which the two do not have in common", rule.Rule, name)
		}
	}
}

// unescape reads how CEL writes characters that identifiers cannot have (apiserver: pkg/cel/escaping.go).
var unescape = strings.NewReplacer("__underscores__", "__", "__dot__", ".", "__dash__", "-", "__slash__", "/")

// mentionedIn returns the first of the names, by the alphabet, that is in a rule, or "". It reads the rule once,
// whatever the number of names is.
func (n names) mentionedIn(rule string) (first string) {
	if len(n) == 0 {
		return ""
	}
	look := func(word string) {
		forms := []string{word, unescape.Replace(word), ""}
		if keyword, ok := strings.CutPrefix(word, "__"); ok {
			forms[2], _ = strings.CutSuffix(keyword, "__") // such as __namespace__
		}
		for _, name := range forms {
			if n[name] && (first == "" || name < first) {
				first = name
			}
		}
	}
	for word := range strings.FieldsFuncSeq(rule, func(r rune) bool { return !isIdentifier(r) }) {
		look(word)
	}
	// Keys of maps are in quotes, and can have other characters.
	for key := range strings.FieldsFuncSeq(rule, isDelimiter) {
		look(key)
		for part := range strings.SplitSeq(key, ".") {
			look(part)
		}
	}
	return first
}

func isIdentifier(r rune) bool {
	return r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
}

func isDelimiter(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune("'\"`()[]{},", r) }

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
