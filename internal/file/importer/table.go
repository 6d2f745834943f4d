package importer

import (
	"cmp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kcpctl/kcpctl/internal/file/setup"
)

// row says what becomes of a field of the input, and of everything below it.
type row struct {
	// path is the field, such as spec.etcd.endpoints. A segment * is any key.
	path string
	// to is the field of the setup file. It is relative to the component of the object, unless it starts with "spec."
	// or "metadata.". It is empty if set is nil.
	to string
	// note is when a mapped field becomes the field of the setup file, or what becomes of it if there is no such field.
	note string
	// set maps the field.
	set func(value)
	// kind, why and instead are the finding about a field that is not empty. For a mapped field, they are optional.
	kind         Kind
	why, instead string
	// harmless is the value of a field with which it has no effect: the default of the API or of the chart. Default:
	// false for a boolean, and none for other fields. Empty values never have an effect.
	harmless string
	// theme is a pattern of fields of the setup file that would be the target of a field that is not mapped. A test
	// requires that none exists.
	theme string
	// gate is a field of the same values that turns this one on.
	gate string
}

func mapped(path, to string, set func(value)) row { return row{path: path, to: to, set: set} }

// lost is a field with an effect that the setup file cannot repeat: it has no field of this theme.
func lost(path, theme, why, instead string) row {
	return row{path: path, theme: theme, kind: NotMapped, why: why, instead: instead}
}

func needless(path, why string) row { return row{path: path, kind: NotNeeded, why: why} }

// noted adds a note to a mapped field.
func (r row) noted(note string) row {
	r.note = note
	return r
}

// but adds a finding to a mapped field.
func (r row) but(why, instead string) row {
	r.kind = Review
	r.why = why
	r.instead = instead
	return r
}

// unless sets the value with which a field that is not mapped has no effect.
func (r row) unless(harmless string) row {
	r.harmless = harmless
	return r
}

// when makes rows depend on a field of the same values.
func when(gate string, rows ...row) []row {
	for i := range rows {
		rows[i].gate = gate
	}
	return rows
}

// branch is a table as a tree: the row of a field, or the fields below it.
type branch struct {
	row   *row
	below map[string]*branch
}

func newBranch(rows []row) *branch {
	root := &branch{below: map[string]*branch{}}
	for i := range rows {
		at := root
		for _, segment := range strings.Split(rows[i].path, ".") {
			if at.below[segment] == nil {
				at.below[segment] = &branch{below: map[string]*branch{}}
			}
			at = at.below[segment]
		}
		at.row = &rows[i]
	}
	return root
}

func (b *branch) child(key string) *branch {
	if c := b.below[key]; c != nil {
		return c
	}
	return b.below["*"]
}

// maxSuggestions is how many fields a message suggests.
const maxSuggestions = 3

// paths are the known fields of a name below a branch, such as ref.name.
func (b *branch) paths(name, at string) []string {
	var out []string
	for _, key := range b.names() {
		if key == name && at != "" {
			out = append(out, at+key)
		}
		out = append(out, b.below[key].paths(name, at+key+".")...)
	}
	return out
}

// names are the known fields below a branch.
func (b *branch) names() []string {
	var out []string
	for name := range b.below {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// value is a field of the input.
type value struct {
	o         *object
	file      string
	key, node *yaml.Node
	at        *field.Path
}

// walk maps all fields of an object by its table. Each field has a row, is above fields with rows, or is unknown.
func (o *object) walk(n *yaml.Node, b *branch, at *field.Path) {
	fields, problems := setup.Fields(n, at)
	o.problemIn(cmp.Or(o.files[n], o.file), problems...)
	for _, f := range fields {
		v := value{o: o, file: cmp.Or(o.files[f.Key], o.file), key: f.Key, node: f.Value, at: child(at, f.Key.Value)}
		switch next := b.child(f.Key.Value); {
		case next == nil:
			o.unknown(v, b)
		case next.row != nil:
			o.apply(next.row, v)
		case f.Value.ShortTag() == "!!null":
		case f.Value.Kind != yaml.MappingNode:
			v.fail(setup.MustBe("an object", f.Value), "")
		default:
			o.walk(f.Value, next, v.at)
		}
	}
}

func child(at *field.Path, key string) *field.Path {
	if at == nil {
		return field.NewPath(key)
	}
	return at.Child(key)
}

func (o *object) apply(r *row, v value) {
	switch {
	case r.gate != "" && !o.on(r.gate):
		why := r.gate + " is off"
		if r.gate == pathEtcd {
			why += ", or kcp.etcd.serverAddress names another etcd"
		}
		if !v.harmless(r) {
			v.find(NotNeeded, why, "")
		}
		return
	case r.set != nil:
		if v.node.ShortTag() != "!!null" {
			r.set(v)
			o.origins[r.to] = v
		}
		if r.kind == "" {
			return
		}
	}
	if !v.harmless(r) {
		v.find(r.kind, r.why, r.instead)
	}
}

// unknown reports a field that the table does not have.
func (o *object) unknown(v value, b *branch) {
	instead := "remove it"
	near := b.paths(v.key.Value, "")
	if name := setup.Nearest(b.names(), v.key.Value); name != "" && name != "*" {
		near = []string{name}
	}
	if len(near) > 0 && len(near) <= maxSuggestions {
		instead = `did you mean "` + strings.Join(near, `" or "`) + `"?`
	}
	v.find(Unknown, o.source+" does not have this field", instead)
}

// empty reports whether a value says nothing: null, "", {} or []. A boolean always says something.
func (v value) empty() bool {
	n := v.node
	return n.ShortTag() == "!!null" || n.Kind == yaml.ScalarNode && n.Value == "" || n.Kind != yaml.ScalarNode &&
		len(n.Content) == 0
}

// harmless reports whether a value has no effect: it is empty, or the default of its field.
func (v value) harmless(r *row) bool {
	if r.harmless == "" && v.node.ShortTag() == "!!bool" {
		return v.node.Value == "false"
	}
	return v.empty() || r.harmless != "" && v.text() == r.harmless
}

// text is a scalar, or the scalars of a list with commas.
func (v value) text() string {
	var items []string
	for _, item := range v.node.Content {
		items = append(items, item.Value)
	}
	return v.node.Value + strings.Join(items, ",")
}

// find adds a finding. Fields of an object with the same reason share one.
func (v value) find(kind Kind, why, instead string) {
	if v.at == nil { // the whole object
		v.o.find(kind, why, instead)
		return
	}
	for i, f := range v.o.findings {
		if f.Kind == kind && f.Reason == why && f.Instead == instead && len(f.Paths) > 0 {
			v.o.findings[i].Paths = append(f.Paths, v.at.String())
			return
		}
	}
	v.o.findings = append(v.o.findings, Finding{
		Kind: kind, File: v.file, Line: v.key.Line, Column: v.key.Column, Object: v.o.String(),
		Paths:  []string{v.at.String()},
		Reason: why, Instead: instead,
	})
}

// fail adds a problem at the value.
func (v value) fail(message, hint string) {
	v.o.problemIn(v.file, setup.Problem{Line: v.node.Line, Column: v.node.Column, Path: v.at.String(),
		Message: message, Hint: hint})
}

// decode decodes the value strictly. It reports whether the value is valid; if not, it adds the problems.
func (v value) decode(into any) bool {
	problems := setup.Decode(v.node, v.at, into)
	v.o.problemIn(v.file, problems...)
	return len(problems) == 0
}
