// Package strategic merges patches into objects by strategic merge, the patch format of kubectl patch.
//
// apimachinery's package strategicpatch has more directives, and links the OpenAPI models, which add 4 MB. It also
// drops a map with the directive replace if the object has no such map.
package strategic

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Directive is the key of a directive in a map of a patch. Its value is Replace or Delete.
const Directive = "$patch"

// The directives. In an item of a merged list, Replace replaces the whole list, and Delete removes the item with the
// same key.
const (
	Replace = "replace"
	Delete  = "delete"
)

// Merge returns object with patch merged into it. It modifies neither. The tags patchStrategy and patchMergeKey of the
// fields of t, the type of the object, tell which lists are merged by which key. Other lists are replaced, and null
// removes a field. The result contains no nulls and no directives of patch.
func Merge(object, patch map[string]any, t reflect.Type) map[string]any {
	switch patch[Directive] {
	case Replace:
		object = nil
	case Delete:
		return map[string]any{}
	}
	out := maps.Clone(object)
	if out == nil {
		out = map[string]any{}
	}
	for k, v := range patch {
		switch {
		case k == Directive:
		case v == nil:
			delete(out, k)
		default:
			out[k] = value(out[k], v, fieldOf(t, k))
		}
	}
	return out
}

// value merges two values: a map or a list into another, and any other value replaces the first.
func value(object, patch any, f field) any {
	switch patch := patch.(type) {
	case map[string]any:
		before, _ := object.(map[string]any)
		return Merge(before, patch, f.typ)
	case []any:
		before, _ := object.([]any)
		if f.key == "" {
			before = nil
		}
		return list(before, patch, f)
	}
	return patch
}

// list merges two lists by the key of their items. Items without the key are added.
func list(object, patch []any, f field) []any {
	own := []any{}
	for _, item := range patch {
		m, isMap := item.(map[string]any)
		switch {
		case !isMap:
			own = append(own, item)
		case m[Directive] == Replace:
			object = nil
		case m[Directive] == Delete:
			object = slices.DeleteFunc(slices.Clone(object), func(o any) bool { return f.same(o, m) })
		default:
			own = append(own, m)
		}
	}
	at := make([]int, len(own)) // the index of each item in the object, or -1
	for i, item := range own {
		at[i] = slices.IndexFunc(object, func(o any) bool { return f.same(o, item) })
		if at[i] >= 0 {
			own[i] = value(object[at[i]], item, f)
		} else {
			own[i] = value(nil, item, f)
		}
	}
	return interleave(object, own, at)
}

// interleave returns the items of both lists, each list in its order. An item of own with an index in at follows the
// items of object before that index. A new item follows only the item of own before it: a new variable of a container
// can be used by existing ones.
func interleave(object, own []any, at []int) []any {
	out, next := make([]any, 0, len(object)+len(own)), 0
	for i, item := range own {
		for ; next < at[i]; next++ {
			if !slices.Contains(at, next) {
				out = append(out, object[next])
			}
		}
		out = append(out, item)
	}
	for ; next < len(object); next++ {
		if !slices.Contains(at, next) {
			out = append(out, object[next])
		}
	}
	return out
}

// field describes a field of an object: the type of its value or items, and the key of the items of a merged list.
type field struct {
	typ reflect.Type
	key string
}

// same reports whether two items of a list have the same value for its key.
func (f field) same(a, b any) bool {
	ma, _ := a.(map[string]any)
	mb, _ := b.(map[string]any)
	key := ma[f.key]
	return key != nil && fmt.Sprint(key) == fmt.Sprint(mb[f.key]) // an int is equal to an int64
}

// fieldOf returns the field of a type with a name in JSON. Of a map, each key is a field.
func fieldOf(t reflect.Type, name string) field {
	t = element(t)
	if t == nil {
		return field{}
	}
	if t.Kind() == reflect.Map {
		return field{typ: element(t.Elem())}
	}
	if t.Kind() != reflect.Struct {
		return field{}
	}
	for _, f := range reflect.VisibleFields(t) {
		if json, _, _ := strings.Cut(f.Tag.Get("json"), ","); json != name || json == "" {
			continue
		}
		found := field{typ: element(f.Type)}
		if slices.Contains(strings.Split(f.Tag.Get("patchStrategy"), ","), "merge") {
			found.key = f.Tag.Get("patchMergeKey")
		}
		return found
	}
	return field{}
}

// element returns the type that pointers and lists of t have in the end.
func element(t reflect.Type) reflect.Type {
	for t != nil && (t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice) {
		t = t.Elem()
	}
	return t
}
