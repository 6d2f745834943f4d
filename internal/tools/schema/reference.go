package main

import (
	"bytes"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
)

const referenceHeader = `<!-- Generated from internal/api/v1alpha1 by internal/tools/schema: change the comments there and run make generate. -->

# The setup file

A setup file describes one kcp installation. kcpctl reads ` + "`kcp.yaml`" + ` unless ` + "`-f`" +
	` specifies another file. The smallest setup file is

` + "```yaml" + `
apiVersion: kcpctl.dev/v1alpha1
kind: Setup
metadata:
  name: demo
` + "```" + `

All other fields have defaults: ` + "`kcpctl config view`" +
	` prints a setup with all of them. Unknown, misspelt and duplicate fields are errors.
Editors that support JSON schema can complete and check the file with [kcp.schema.json](kcp.schema.json).
`

// reference returns the reference of all fields: a section with a table for each type.
func reference(c comments) []byte {
	var out bytes.Buffer
	out.WriteString(referenceHeader)
	for _, t := range objects(reflect.TypeFor[v1alpha1.Setup](), nil) {
		fmt.Fprintf(&out, "\n## %s\n\n%s\n\n| field | type | default | description |\n|---|---|---|---|\n",
			t.Name(), c.of(t, ""))
		writeFields(&out, t, c)
	}
	return out.Bytes()
}

// objects returns a type and the types of its fields, recursively and without duplicates, in the order of the fields.
func objects(t reflect.Type, seen []reflect.Type) []reflect.Type {
	if slices.Contains(seen, t) {
		return seen
	}
	seen = append(seen, t)
	for _, f := range fieldsOf(t) {
		if inner := element(f.Type); isObject(inner) {
			seen = objects(inner, seen)
		}
	}
	return seen
}

// field is a field of a struct, and the struct that declares it.
type field struct {
	reflect.StructField
	in reflect.Type
}

// fieldsOf returns the fields of a struct, including those of inlined structs.
func fieldsOf(t reflect.Type) []field {
	var out []field
	for f := range t.Fields() {
		if f.Anonymous {
			out = append(out, fieldsOf(f.Type)...)
			continue
		}
		out = append(out, field{f, t})
	}
	return out
}

func writeFields(out *bytes.Buffer, t reflect.Type, c comments) {
	common := []reflect.Type{reflect.TypeFor[v1alpha1.Defaults](), reflect.TypeFor[v1alpha1.ServerSettings]()}
	for _, f := range fieldsOf(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		text, value := splitDefault(c.of(f.in, f.Name))
		if slices.Contains(common, f.in) && t != common[0] && value != "" {
			value = "spec.defaults." + name + ", else " + value
		}
		fmt.Fprintf(out, "| `%s` | %s | %s | %s |\n", name, typeName(f.Type), escape(value),
			escape(withoutName(text, f.Name)))
	}
}

// splitDefault separates the sentence that starts with "Default:" from a comment.
func splitDefault(comment string) (text, value string) {
	m := regexp.MustCompile(`^(.*?) ?Default: (.*?)\.(?: (.*))?$`).FindStringSubmatch(comment)
	if m == nil {
		return comment, ""
	}
	return strings.TrimSpace(m[1] + " " + m[3]), m[2]
}

// withoutName removes the name of a field from the beginning of its comment, which the first column already has: "Tag
// is the tag of the image." becomes "The tag of the image."
func withoutName(comment, name string) string {
	rest, found := strings.CutPrefix(comment, name+" ")
	if !found {
		return comment
	}
	for _, verb := range []string{"is ", "are "} {
		rest = strings.TrimPrefix(rest, verb)
	}
	if first, _, _ := strings.Cut(rest, " "); strings.Contains(first, "/") {
		return rest // a value, such as kcpctl.dev/v1alpha1
	}
	return strings.ToUpper(rest[:1]) + rest[1:]
}

func escape(s string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", ">", "&gt;").Replace(s)
}

// element is the element type of a pointer or a list.
func element(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	return t
}

// isObject reports whether a type has a section in the reference.
func isObject(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && t.PkgPath() == reflect.TypeFor[v1alpha1.Setup]().PkgPath()
}

// typeName is the name of a type in the reference.
func typeName(t reflect.Type) string {
	inner := element(t)
	name := inner.Kind().String()
	switch {
	case isObject(inner):
		name = fmt.Sprintf("[%s](#%s)", inner.Name(), strings.ToLower(inner.Name()))
		if a, ok := reflect.Zero(inner).Interface().(abbreviated); ok {
			name += ", or its " + a.ShortField()
		}
	case inner == reflect.TypeFor[resource.Quantity]():
		name = "quantity"
	case inner == reflect.TypeFor[v1alpha1.Replicas]():
		name = "integer or null"
	case inner == reflect.TypeFor[metav1.Duration]():
		name = "duration"
	case inner == reflect.TypeFor[v1alpha1.Overlay](), inner == reflect.TypeFor[v1alpha1.Object](),
		inner == reflect.TypeFor[v1alpha1.NamespaceObject]():
		name = "object"
	case inner == reflect.TypeFor[corev1.ResourceRequirements](), inner == reflect.TypeFor[rbacv1.PolicyRule]():
		name = inner.Name()
	case inner == reflect.TypeFor[corev1.ResourceList]():
		name = "map of quantities"
	case inner == reflect.TypeFor[map[string]string]():
		name = "map of strings"
	case inner.Kind() == reflect.Int32, inner.Kind() == reflect.Int64:
		name = "integer"
	case inner.Kind() == reflect.Float64:
		name = "number"
	case inner.Kind() == reflect.Bool:
		name = "boolean"
	}
	if t.Kind() == reflect.Slice {
		return "list of " + name
	}
	return name
}
