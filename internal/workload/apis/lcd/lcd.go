// Package lcd computes the least common denominator of two schemas of an API: the schema of the objects that are valid
// in both, and of which neither drops a field. If there is none that a user could work with, it returns the paths at
// which the schemas differ.
//
// The schemas are structural (apiextensions: pkg/apiserver/schema/validation.go), as CustomResourceDefinitions and
// APIResourceSchemas require. Descriptions, titles and examples are taken from the first schema.
//
// kcp has a similar algorithm (kcp: pkg/schemacompat/schemacompat.go). It refuses what it cannot compare, such as enums
// that overlap or bounds that differ. This one narrows them.
package lcd

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"
)

// Schema is the schema of an API, or of a part of its objects.
type Schema = apiextensionsv1.JSONSchemaProps

// Incompatibility is a difference between two schemas that does not allow a common one.
type Incompatibility struct {
	// Path is the path of the field, such as spec.containers[*].image. It is empty for the object itself.
	Path    string
	Message string
}

func (i Incompatibility) String() string {
	if i.Path == "" {
		return i.Message
	}
	return i.Path + ": " + i.Message
}

// Intersect returns a schema of which every object is valid in a and in b, if neither drops a field of it. The
// arguments are the schemas of whole objects and are not modified. If it returns incompatibilities, sorted by path, the
// schema must not be used.
func Intersect(a, b *Schema) (*Schema, []Incompatibility) {
	w := &walk{}
	a, b = withObjectMeta(a, b), withObjectMeta(b, a)
	common, _ := w.intersect("", a, b)
	w.sort()
	return common, w.found
}

// withObjectMeta returns the schema with the properties of all objects that only the other one mentions. The API server
// defines them, and not the schema.
func withObjectMeta(s, other *Schema) *Schema {
	s = s.DeepCopy()
	for _, name := range []string{"apiVersion", "kind", "metadata"} {
		p, ok := other.Properties[name]
		if _, has := s.Properties[name]; ok && !has {
			if s.Properties == nil {
				s.Properties = map[string]Schema{}
			}
			s.Properties[name] = *p.DeepCopy()
		}
	}
	return s
}

type walk struct{ found []Incompatibility }

func (w *walk) differ(path, format string, args ...any) {
	w.found = append(w.found, Incompatibility{Path: path, Message: fmt.Sprintf(format, args...)})
}

func (w *walk) sort() {
	slices.SortStableFunc(w.found, func(a, b Incompatibility) int { return cmp.Compare(a.Path, b.Path) })
}

// names is a set of identifiers that rules in CEL cannot rely on: fields that were dropped, and numbers that have
// become integers.
type names map[string]bool

// add adds the names of a part of a schema. The larger set is kept: a deep schema passes its names up many levels.
func (n *names) add(below names) {
	if len(*n) < len(below) {
		*n, below = below, *n
	}
	maps.Copy(*n, below)
}

// self is how the rules of a field call its value. It is among the names of a list or map if its items or values are.
const self = "self"

// intersect returns the common schema of a field, and the names in it that rules cannot rely on.
//
// It must take a time that is proportional to the sizes of the schemas, because others write them: it looks at each
// part once, and copies no part as a whole. What the result shares with the arguments is not changed.
func (w *walk) intersect(path string, a, b *Schema) (*Schema, names) {
	common, changed := new(*a), names{}
	common.Default = nil
	if !w.types(path, a, b, common, changed) {
		return common, changed
	}
	w.strings(path, a, b, common)
	w.bounds(path, a, b, common)
	w.same(path, a, b)
	w.enum(path, a, b, common)
	w.properties(path, a, b, common, &changed)
	w.additional(path, a, b, common, &changed)
	w.items(path, a, b, common, &changed)
	w.rules(path, a, b, common, changed)
	if a.Default != nil && b.Default != nil && equalJSON(a.Default.Raw, b.Default.Raw) {
		common.Default = pruned(a.Default, common)
	}
	return common, changed
}

// types intersects the types. It reports whether the schemas can be compared further.
func (w *walk) types(path string, a, b, common *Schema, changed names) bool {
	integer := (a.Type == "integer" && b.Type == "number") || (a.Type == "number" && b.Type == "integer")
	if a.Type != b.Type && !integer {
		w.differ(path, "the types differ: %s, %s", typeName(a), typeName(b))
		return false
	}
	if a.XIntOrString != b.XIntOrString {
		w.differ(path, "the types differ: %s, %s", typeName(a), typeName(b))
		return false
	}
	if isTrue(a.XPreserveUnknownFields) != isTrue(b.XPreserveUnknownFields) {
		w.differ(path, "only one keeps unknown fields (x-kubernetes-preserve-unknown-fields)")
		return false
	}
	if a.XEmbeddedResource != b.XEmbeddedResource {
		w.differ(path, "only one is an object with a kind of its own (x-kubernetes-embedded-resource)")
		return false
	}
	if integer {
		common.Type = "integer"
		changed[self] = true
	}
	common.Nullable = a.Nullable && b.Nullable
	return true
}

func typeName(s *Schema) string {
	switch {
	case s.XIntOrString:
		return "integer or string"
	case s.Type == "":
		return "any"
	}
	return s.Type
}

// properties intersects the fields of an object. An object that keeps unknown fields has the fields of both: without
// its schema, a field would accept any value.
func (w *walk) properties(path string, a, b, common *Schema, changed *names) {
	common.Properties = nil
	all := slices.AppendSeq(slices.Collect(maps.Keys(a.Properties)), maps.Keys(b.Properties))
	slices.Sort(all)
	for _, name := range slices.Compact(all) {
		pa, inA := a.Properties[name]
		pb, inB := b.Properties[name]
		var p *Schema
		switch {
		case inA && inB:
			var below names
			p, below = w.intersect(join(path, name), &pa, &pb)
			if below[self] {
				below[name] = true
				delete(below, self)
			}
			changed.add(below)
		case !isTrue(common.XPreserveUnknownFields):
			(*changed)[name] = true
			continue
		case inA:
			p = &pa
		case inB:
			p = &pb
		}
		if common.Properties == nil {
			common.Properties = map[string]Schema{}
		}
		common.Properties[name] = *p
	}
	w.required(path, a, b, common)
}

// required makes fields required that either schema requires. The other one must have them too.
func (w *walk) required(path string, a, b, common *Schema) {
	common.Required = nil
	all := slices.Concat(a.Required, b.Required)
	slices.Sort(all)
	for _, name := range slices.Compact(all) {
		_, inA := a.Properties[name]
		_, inB := b.Properties[name]
		if inA != inB && !isTrue(common.XPreserveUnknownFields) {
			w.differ(join(path, name), "the field is required, and unknown to the other")
			continue
		}
		common.Required = append(common.Required, name)
	}
}

func (w *walk) additional(path string, a, b, common *Schema, changed *names) {
	aa := a.AdditionalProperties
	ab := b.AdditionalProperties
	switch {
	case aa == nil && ab == nil:
	case aa == nil || ab == nil:
		if isTrue(common.XPreserveUnknownFields) {
			common.AdditionalProperties = cmp.Or(aa, ab)
			return
		}
		common.AdditionalProperties = nil
		if len(a.Properties)+len(b.Properties) > 0 {
			w.differ(path, "only one is a map (additionalProperties)")
		}
	case aa.Schema != nil && ab.Schema != nil:
		values, below := w.intersect(join(path, "*"), aa.Schema, ab.Schema)
		changed.add(below)
		common.AdditionalProperties = &apiextensionsv1.JSONSchemaPropsOrBool{Allows: true, Schema: values}
	case aa.Schema == nil && ab.Schema == nil:
		if aa.Allows != ab.Allows {
			w.differ(path, "only one accepts additional properties")
		}
	case aa.Schema == nil && aa.Allows:
		common.AdditionalProperties = ab
	case ab.Schema == nil && ab.Allows:
		common.AdditionalProperties = aa
	default:
		w.differ(path, "only one accepts additional properties")
	}
}

func (w *walk) items(path string, a, b, common *Schema, changed *names) {
	if a.Items == nil && b.Items == nil {
		return
	}
	if isTrue(common.XPreserveUnknownFields) && (a.Items == nil || b.Items == nil) {
		common.Items = cmp.Or(a.Items, b.Items)
		return
	}
	if a.Items == nil || b.Items == nil || a.Items.Schema == nil || b.Items.Schema == nil {
		w.differ(path, "only one defines the items of the list")
		return
	}
	items, below := w.intersect(path+"[*]", a.Items.Schema, b.Items.Schema)
	changed.add(below)
	common.Items = &apiextensionsv1.JSONSchemaPropsOrArray{Schema: items}
	required := sets.New(items.Required...)
	for _, key := range a.XListMapKeys {
		if p := items.Properties[key]; p.Default == nil && !required.Has(key) {
			w.differ(path+"[*]."+key, "the field identifies items, and must be required or have the same default")
		}
	}
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func isTrue(b *bool) bool { return b != nil && *b }

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
	required, before := sets.New(common.Required...), sets.New(s.Required...)
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		was := s.Properties[name]
		is, ok := common.Properties[name]
		if !ok {
			w.differ(join(path, name), "the field is missing")
			continue
		}
		if required.Has(name) {
			switch {
			case !before.Has(name):
				w.differ(join(path, name), "the field is required")
			case was.Default != nil && is.Default == nil:
				w.differ(join(path, name), "the field is required and has lost its default")
			}
		}
		w.narrowed(join(path, name), &was, &is)
	}
}

// narrowedUnknown finds fields that s does not know but keeps and that common restricts or requires.
func (w *walk) narrowedUnknown(path string, s, common *Schema) {
	if !isTrue(s.XPreserveUnknownFields) {
		return // the field was dropped
	}
	required, before := sets.New(common.Required...), sets.New(s.Required...)
	all := slices.AppendSeq(slices.Clone(common.Required), maps.Keys(common.Properties))
	slices.Sort(all)
	for _, name := range slices.Compact(all) {
		if _, known := s.Properties[name]; known {
			continue
		}
		if p, ok := common.Properties[name]; ok && !isAny(&p) {
			w.differ(join(path, name), "the value is restricted")
		}
		if required.Has(name) && !before.Has(name) {
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
