package setup

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
)

func setupType() reflect.Type { return reflect.TypeFor[v1alpha1.Setup]() }

// structType is a struct as it appears in a file.
type structType struct {
	fields []*structField
	byName map[string]*structField
	// own is set for types of setup files, and not for types of Kubernetes.
	own bool
}

type structField struct {
	name string
	typ  reflect.Type
	// mergeKey is the key by which strategic merge matches list items.
	mergeKey string
	// counts is set for numbers of which 0 means that they are not set.
	counts bool
}

// structType returns the fields of a struct by JSON name, including the fields of inlined structs.
func (d *decoder) structType(t reflect.Type) *structType {
	if st, ok := d.types[t]; ok {
		return st
	}
	st := &structType{byName: map[string]*structField{}, own: t.PkgPath() == setupType().PkgPath()}
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported():
		case name == "" && isObject(f.Type):
			st.fields = append(st.fields, d.structType(f.Type).fields...)
		case isFileMode(name, f.Type):
			st.fields = append(st.fields, &structField{name: name, typ: reflect.TypeFor[fileMode]()})
		default:
			st.fields = append(st.fields, &structField{name: name, typ: f.Type, mergeKey: f.Tag.Get("patchMergeKey"),
				counts: st.own && f.Type == reflect.TypeFor[int32]()})
		}
	}
	for _, f := range st.fields {
		st.byName[f.name] = f
	}
	d.types[t] = st
	return st
}

// isObject reports whether values of a type are objects in a file.
func isObject(t reflect.Type) bool { return t.Kind() == reflect.Struct && !hasNotation(t) }

// hasNotation reports whether a type decodes itself from a scalar, as quantities do.
func hasNotation(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]())
}

// abbreviated is implemented by structs that a file may abbreviate to the value of one field.
type abbreviated interface{ ShortField() string }

// shortField returns the JSON name of the field that values of a type may be abbreviated to, or "".
func shortField(t reflect.Type) string {
	if a, ok := reflect.Zero(t).Interface().(abbreviated); ok {
		return a.ShortField()
	}
	return ""
}

// longForm returns the object that a scalar abbreviates. It has the position of the scalar.
func longForm(n *yaml.Node, name string) *yaml.Node {
	key := *n
	key.Tag = "!!str"
	key.Value = name
	return &yaml.Node{Kind: yaml.MappingNode, Line: n.Line, Column: n.Column, Content: []*yaml.Node{&key, n}}
}

// entry is a key of an object and its value.
type entry struct{ key, value *yaml.Node }

func has(entries []entry, key string) bool {
	return slices.ContainsFunc(entries, func(e entry) bool { return e.key.Value == key })
}

// lookup returns the value of a key of an object, or nil.
func lookup(n *yaml.Node, key string) *yaml.Node {
	for i := 0; n != nil && n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

// entries returns the keys and values of an object in order, with aliases and merge keys (<<) resolved. It reports
// duplicates.
func (d *decoder) entries(n *yaml.Node, p *field.Path) []entry {
	var out, merged []entry
	for i := 0; i+1 < len(n.Content); i += 2 {
		e := entry{resolve(n.Content[i]), resolve(n.Content[i+1])}
		switch {
		case e.key.ShortTag() == "!!merge":
			merged = append(merged, d.merged(e.value, p)...)
		case e.key.Kind != yaml.ScalarNode || e.key.ShortTag() == "!!null" || e.key.Value == "":
			d.report(p, e.key, "a key must be a string, not "+describe(e.key), "write a name before the colon")
		case has(out, e.key.Value):
			first := slices.IndexFunc(out, func(o entry) bool { return o.key.Value == e.key.Value })
			d.report(p, e.key, fmt.Sprintf("duplicate key %q, first used on line %d", e.key.Value,
				out[first].key.Line), "remove one of them")
		default:
			out = append(out, e)
		}
	}
	for _, e := range merged {
		if !has(out, e.key.Value) {
			out = append(out, e)
		}
	}
	return out
}

// merged returns the entries that a merge key (<<) adds: the entries of an object, or of a list of objects.
func (d *decoder) merged(n *yaml.Node, p *field.Path) []entry {
	d.depth++
	defer func() { d.depth-- }()
	if d.nodes++; d.nodes > maxNodes || d.depth > maxDepth {
		d.tooLarge(n, p)
		return nil
	}
	switch n.Kind {
	case yaml.MappingNode:
		return d.entries(n, p)
	case yaml.SequenceNode:
		var out []entry
		for _, item := range n.Content {
			out = append(out, d.merged(resolve(item), p)...)
		}
		return out
	}
	d.report(p, n, "<< must be an object, not "+describe(n), "write the alias of one, such as <<: *common")
	return nil
}

func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// unknown reports a key that a struct does not have. If it is a misspelling, unknown returns the intended field, so
// that decoding continues with it and reports no consequential problems.
func (d *decoder) unknown(key *yaml.Node, t *structType, p *field.Path) *structField {
	at := p.Child(key.Value)
	if f := t.nearest(key.Value); f != nil {
		d.report(at, key, "unknown field", fmt.Sprintf("did you mean %q?", f.name))
		return f
	}
	d.report(at, key, "unknown field", d.elsewhere(key.Value, t))
	return nil
}

// nearest returns the field with the most similar name, or nil.
func (t *structType) nearest(key string) *structField {
	var names []string
	for _, f := range t.fields {
		names = append(names, f.name)
	}
	if name := Nearest(names, key); name != "" {
		return t.byName[name]
	}
	return nil
}

// Nearest returns the name that is most similar to what was typed, or "" if none is similar enough.
func Nearest(names []string, typed string) string {
	best, limit := "", max(1, len(typed)/3)
	for _, name := range names {
		if strings.EqualFold(name, typed) {
			return name
		}
		if n := distance(name, typed); n <= limit {
			best = name
			limit = n - 1
		}
	}
	return best
}

// elsewhere is the hint for an unknown key that resembles no field: the field of this name one level below, or all
// known fields.
func (d *decoder) elsewhere(key string, t *structType) string {
	for _, f := range t.fields {
		inner := f.typ
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		if isObject(inner) && d.structType(inner).byName[key] != nil {
			return fmt.Sprintf("did you mean %q?", f.name+"."+key)
		}
	}
	return t.known()
}

// known is the hint with all fields of a struct. Some of Kubernetes have too many for a line.
func (t *structType) known() string {
	const most = 30
	if len(t.fields) > most && !t.own {
		return "kubectl explain pod.spec and kubectl explain service.spec list the fields"
	}
	var names []string
	for _, f := range t.fields {
		names = append(names, f.name)
	}
	slices.Sort(names)
	return "known: " + strings.Join(names, ", ")
}

// asItems is the hint for a node that stands where a list must be. Names of items are often written without the field.
func (d *decoder) asItems(n *yaml.Node, elem reflect.Type) string {
	if isObject(elem) {
		t := d.structType(elem)
		name := n
		if n.Kind == yaml.MappingNode && len(n.Content) > 0 {
			name = n.Content[0]
		}
		if t.byName["name"] != nil && t.byName[name.Value] == nil && name.ShortTag() == "!!str" {
			return fmt.Sprintf(`start each item with "- ", such as "- name: %s"`, name.Value)
		}
	}
	return `start each item with "- "`
}

// written is the hint for a node that stands where an object must be.
func (t *structType) written(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.SequenceNode:
		return `write its fields without "- "`
	case t.byName["name"] != nil && n.ShortTag() == "!!str":
		return "write name: " + n.Value
	}
	return "write its fields in lines below it, " + t.known()
}

// distance is the Damerau-Levenshtein distance: how many characters to insert, delete, replace or swap to get from a to
// b.
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			replace := rows[i-1][j-1]
			if a[i-1] != b[j-1] {
				replace++
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, replace)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
