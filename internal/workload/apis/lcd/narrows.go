package lcd

import (
	"maps"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// Narrows returns the fields of objects of the published schema that the candidate refuses or drops, sorted by path. If
// there are none, a cluster with the candidate as its schema accepts every object of the published one, and the
// published schema can be replaced by the candidate: kcp drops fields that a new schema lacks at the next write of an
// object, without a check.
func Narrows(published, candidate *Schema) []Incompatibility {
	common, found := Intersect(published, candidate)
	if len(found) > 0 {
		return found
	}
	w := &walk{}
	w.narrowed("", withObjectMeta(published, candidate), common)
	w.sort()
	return w.found
}

// narrowed finds what s accepts and common, which was computed from it, does not.
func (w *walk) narrowed(path string, s, common *Schema) {
	for _, limit := range []struct {
		name  string
		equal bool
	}{
		{"type", s.Type == common.Type},
		{"format", s.Format == common.Format},
		{"pattern", s.Pattern == common.Pattern},
		{"nullable", s.Nullable == common.Nullable},
		{"enum", len(s.Enum) == len(common.Enum)},
		{"minimum", equalPointers(s.Minimum, common.Minimum) && s.ExclusiveMinimum == common.ExclusiveMinimum},
		{"maximum", equalPointers(s.Maximum, common.Maximum) && s.ExclusiveMaximum == common.ExclusiveMaximum},
		{"minLength", equalPointers(s.MinLength, common.MinLength)},
		{"maxLength", equalPointers(s.MaxLength, common.MaxLength)},
		{"minItems", equalPointers(s.MinItems, common.MinItems)},
		{"maxItems", equalPointers(s.MaxItems, common.MaxItems)},
		{"minProperties", equalPointers(s.MinProperties, common.MinProperties)},
		{"maxProperties", equalPointers(s.MaxProperties, common.MaxProperties)},
		{"multipleOf", equalPointers(s.MultipleOf, common.MultipleOf)},
		{"uniqueItems", s.UniqueItems == common.UniqueItems},
	} {
		if !limit.equal {
			w.differ(path, "%s is narrower", limit.name)
		}
	}
	for _, rule := range common.XValidations[min(len(s.XValidations), len(common.XValidations)):] {
		w.differ(path, "the rule %q is new", rule.Rule)
	}
	w.narrowedFields(path, s, common)
	w.narrowedUnknown(path, s, common)
	switch {
	case s.Items != nil && s.Items.Schema != nil:
		w.narrowed(path+"[*]", s.Items.Schema, common.Items.Schema)
	case s.Items == nil && common.Items != nil && !isAny(common.Items.Schema):
		w.differ(path+"[*]", "the items are restricted")
	}
	w.narrowedValues(path, s.AdditionalProperties, common.AdditionalProperties)
}

// narrowedFields finds fields that are dropped, have become required, or have lost the default that made them optional.
func (w *walk) narrowedFields(path string, s, common *Schema) {
	required, before := setOf(common.Required), setOf(s.Required)
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		was := s.Properties[name]
		is, ok := common.Properties[name]
		if !ok {
			w.differ(join(path, name), "the field is missing")
			continue
		}
		if required[name] {
			switch {
			case !before[name]:
				w.differ(join(path, name), "the field is required")
			case was.Default != nil && is.Default == nil:
				w.differ(join(path, name), "the field is required and has lost its default")
			}
		}
		w.narrowed(join(path, name), &was, &is)
	}
}

// narrowedUnknown finds fields that s does not know but keeps, so that objects can have any value there or none, and
// that common restricts or requires.
func (w *walk) narrowedUnknown(path string, s, common *Schema) {
	if !isTrue(s.XPreserveUnknownFields) {
		return // the field was dropped
	}
	required, before := setOf(common.Required), setOf(s.Required)
	all := slices.AppendSeq(slices.Clone(common.Required), maps.Keys(common.Properties))
	slices.Sort(all)
	for _, name := range slices.Compact(all) {
		if _, known := s.Properties[name]; known {
			continue
		}
		if p, ok := common.Properties[name]; ok && !isAny(&p) {
			w.differ(join(path, name), "the value is restricted")
		}
		if required[name] && !before[name] {
			w.differ(join(path, name), "the field is required")
		}
	}
}

// isAny reports whether a schema accepts any value.
func isAny(s *Schema) bool {
	if s == nil || !isTrue(s.XPreserveUnknownFields) {
		return false
	}
	any := Schema{ // with what says nothing about values
		Title: s.Title, Description: s.Description, Example: s.Example, ExternalDocs: s.ExternalDocs,
		Default: s.Default, Nullable: s.Nullable, XPreserveUnknownFields: s.XPreserveUnknownFields,
	}
	return equality.Semantic.DeepEqual(*s, any)
}

func (w *walk) narrowedValues(path string, was, is *apiextensionsv1.JSONSchemaPropsOrBool) {
	switch {
	case was == nil && (is == nil || isAny(is.Schema) || is.Schema == nil && is.Allows):
	case was == nil: // unknown fields are kept
		w.differ(join(path, "*"), "the values are restricted")
	case is == nil:
		w.differ(join(path, "*"), "the values are missing")
	case was.Schema != nil && is.Schema != nil:
		w.narrowed(join(path, "*"), was.Schema, is.Schema)
	case !equality.Semantic.DeepEqual(was, is):
		w.differ(join(path, "*"), "the values are restricted")
	}
}
