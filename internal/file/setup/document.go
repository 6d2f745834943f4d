package setup

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
)

// Documents returns the roots of all documents of a YAML or JSON text that are not empty. For text that is not valid
// YAML, it returns the problem, without the name of the file.
func Documents(data []byte) ([]*yaml.Node, *Problem) {
	if p := checkUTF8(data); p != nil {
		return nil, p
	}
	in := &lineReader{lines: bytes.SplitAfter(data, []byte("\n"))}
	docs, err := documents(in)
	if err != nil {
		return nil, syntaxProblem(in, err)
	}
	return docs, nil
}

// Field is a key of an object and its value.
type Field struct{ Key, Value *yaml.Node }

// Fields returns the fields of an object in order, with aliases and merge keys resolved, and the problems of its keys,
// such as duplicates. at is the path of the object. The problems have no file.
func Fields(n *yaml.Node, at *field.Path) ([]Field, Errors) {
	d := newDecoder()
	var out []Field
	for _, e := range d.entries(n, at) {
		out = append(out, Field{Key: e.key, Value: e.value})
	}
	return out, d.problems
}

// Decode decodes a YAML node into a value, as strictly as Parse. at is the path of the node. It returns all problems,
// without a file; if there are any, it does not change the value. A null does not change it either.
func Decode(n *yaml.Node, at *field.Path, into any) Errors {
	d := newDecoder()
	tree, ok := d.value(n, reflect.TypeOf(into).Elem(), at)
	if len(d.problems) > 0 || !ok {
		return d.problems
	}
	data, err := json.Marshal(tree)
	if err == nil {
		err = kjson.UnmarshalCaseSensitivePreserveInts(data, into)
	}
	if err != nil {
		d.report(at, n, fmt.Sprintf("cannot be decoded: %v", err), "")
	}
	return d.problems
}

// MustBe is the message of a value of another type than the wanted one, such as "an object".
func MustBe(want string, n *yaml.Node) string { return mustBe(want, n) }
