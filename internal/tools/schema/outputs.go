package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/invopop/jsonschema"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcpctl/kcpctl/cmd"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
)

// module has the packages whose comments are descriptions.
const module = "github.com/kcpctl/kcpctl/"

// addOutputs adds the schemas of what commands print. Unlike those of the setup file they allow other fields, because
// later releases add some.
func addOutputs(files map[string][]byte, root string) error {
	s := &sources{root: root, read: map[string]comments{}}
	for _, o := range cmd.Outputs() {
		r := jsonschema.Reflector{
			Anonymous: true, ExpandedStruct: true, AllowAdditionalProperties: true, Mapper: s.mapped,
			LookupComment: s.of,
		}
		schema := r.ReflectFromType(reflect.TypeOf(o.Value))
		schema.Title = "kcpctl " + o.Commands
		relax(schema, reflect.TypeOf(o.Value), map[reflect.Type]bool{})
		data, err := json.Marshal(schema) // compact: it is a part of the binary
		if err == nil {
			err = s.err
		}
		if err != nil {
			return fmt.Errorf("schema of output %s: %w", o.Name, err)
		}
		files["docs/schemas/"+o.Name+".json"] = append(data, '\n')
	}
	return nil
}

// relax makes the fields optional that structs have from an embedded pointer, which can be nil.
func relax(root *jsonschema.Schema, t reflect.Type, done map[reflect.Type]bool) {
	for slices.Contains([]reflect.Kind{reflect.Pointer, reflect.Slice, reflect.Map}, t.Kind()) {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || done[t] {
		return
	}
	schema := root.Definitions[t.Name()]
	if len(done) == 0 {
		schema = root
	}
	done[t] = true
	if schema != nil {
		optional := promoted(t, false)
		schema.Required = slices.DeleteFunc(schema.Required,
			func(name string) bool { return slices.Contains(optional, name) })
	}
	for i := range t.NumField() {
		relax(root, t.Field(i).Type, done)
	}
}

// promoted returns the JSON names of the fields that a struct has from embedded pointers, or with all set, of all its
// fields.
func promoted(t reflect.Type, all bool) (out []string) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && f.Type.Kind() == reflect.Pointer:
			out = append(out, promoted(f.Type.Elem(), true)...)
		case f.Anonymous && f.Type.Kind() == reflect.Struct:
			out = append(out, promoted(f.Type, all)...)
		case all:
			out = append(out, name)
		}
	}
	return out
}

// sources reads the comments and the constants of packages.
type sources struct {
	root string
	read map[string]comments
	err  error
}

// in returns the comments of the package of a type. Those of other modules have none.
func (s *sources) in(t reflect.Type) comments {
	pkg, ok := strings.CutPrefix(t.PkgPath(), module)
	if !ok {
		return nil
	}
	if s.read[pkg] == nil {
		c, err := readComments(filepath.Join(s.root, pkg))
		if err != nil {
			s.err = err
			c = comments{}
		}
		s.read[pkg] = c
	}
	return s.read[pkg]
}

// of returns the comment of a type, or of one of its fields.
func (s *sources) of(t reflect.Type, field string) string { return s.in(t).of(t, field) }

// mapped returns the schema of a type for which reflection is not enough, or nil.
func (s *sources) mapped(t reflect.Type) *jsonschema.Schema {
	switch t {
	case reflect.TypeFor[plan.Unreachable]():
		properties := jsonschema.NewProperties()
		properties.Set("cluster", &jsonschema.Schema{Type: "string"})
		properties.Set("reason", &jsonschema.Schema{Type: "string"})
		return &jsonschema.Schema{Type: "object", Properties: properties, Required: []string{"cluster", "reason"}}
	case reflect.TypeFor[metav1.Time]():
		return &jsonschema.Schema{Type: "string", Format: "date-time"}
	case reflect.TypeFor[metav1.ObjectMeta]():
		return &jsonschema.Schema{Type: "object", Description: "Metadata as every object of Kubernetes has it."}
	}
	if values := s.in(t).constants(t); len(values) > 0 {
		return &jsonschema.Schema{Type: "string", Enum: values}
	}
	return mapped(t)
}

// constants are the values of a type that has constants, or nil.
func (c comments) constants(t reflect.Type) []any {
	if t.Kind() != reflect.String || t.Name() == "" {
		return nil
	}
	var values []string
	for name := range c {
		if value, ok := strings.CutPrefix(name, t.Name()+"="); ok {
			values = append(values, value)
		}
	}
	slices.Sort(values)
	var out []any
	for _, v := range values {
		out = append(out, v)
	}
	return out
}
