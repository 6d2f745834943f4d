package lcd

import "strings"

// In reports whether an object has a value at the path, in any item of the lists and any value of the maps on it. For a
// field that has become required, it reports whether the value is missing instead. It does not compare values with the
// limits of a schema.
func (i Incompatibility) In(object map[string]any) bool {
	found := at(object, i.Path)
	if !i.required {
		return len(found) > 0
	}
	parent := ""
	name := i.Path
	if dot := strings.LastIndex(i.Path, "."); dot >= 0 {
		parent = i.Path[:dot]
		name = i.Path[dot+1:]
	}
	for _, v := range at(object, parent) {
		if fields, ok := v.(map[string]any); ok && len(at(fields, name)) == 0 {
			return true
		}
	}
	return false
}

// at returns the values at a path. Keys of objects can contain the characters that separate the parts of a path.
func at(v any, path string) []any {
	if path == "" {
		if v == nil {
			return nil
		}
		return []any{v}
	}
	var out []any
	switch v := v.(type) {
	case []any:
		rest, ok := strings.CutPrefix(path, "[*]")
		if !ok {
			return nil
		}
		for _, item := range v {
			out = append(out, at(item, strings.TrimPrefix(rest, "."))...)
		}
	case map[string]any:
		for key, value := range v {
			for _, name := range []string{key, "*"} {
				rest, ok := strings.CutPrefix(path, name)
				if !ok || rest != "" && rest[0] != '.' && rest[0] != '[' {
					continue
				}
				out = append(out, at(value, strings.TrimPrefix(rest, "."))...)
				break
			}
		}
	}
	return out
}
