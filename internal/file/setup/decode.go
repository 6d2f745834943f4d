package setup

import (
	"fmt"
	"math"
	"reflect"
	"regexp"
	"strings"
	"time"
	"unicode"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
)

// Limits of a document with its aliases resolved. A setup with a thousand shards has about 20,000 nodes.
const (
	maxNodes = 300_000
	maxDepth = 40
)

// decoder checks a YAML tree against Go types. It collects all problems: unknown, misspelt and duplicate keys, values
// of the wrong type, and invalid scalars. It converts valid nodes to JSON values.
type decoder struct {
	problems  Errors
	positions positions
	// failed are the paths of the fields that could not be decoded.
	failed []string
	// aborted stops decoding: the document is not a setup, or it is too large.
	aborted bool

	types        map[reflect.Type]*structType
	nodes, depth int
	// overlay is set inside an overlay, where strategic-merge directives and nulls are allowed.
	overlay bool
}

func newDecoder() *decoder {
	return &decoder{positions: positions{}, types: map[reflect.Type]*structType{}}
}

func (d *decoder) report(p *field.Path, n *yaml.Node, message, hint string) {
	d.problems = append(d.problems,
		Problem{Line: n.Line, Column: n.Column, Path: pathString(p), Message: message, Hint: hint})
}

// fail adds a problem and marks the field as undecodable.
func (d *decoder) fail(p *field.Path, n *yaml.Node, message, hint string) (any, bool) {
	d.report(p, n, message, hint)
	d.failed = append(d.failed, pathString(p))
	return nil, false
}

func pathString(p *field.Path) string {
	if p == nil {
		return ""
	}
	return p.String()
}

// note records the position of a field: of the value for a scalar, else of the key or list item.
func (d *decoder) note(p *field.Path, begin, value *yaml.Node) {
	n := begin
	if value.Kind == yaml.ScalarNode && value.ShortTag() != "!!null" {
		n = value
	}
	d.positions[pathString(p)] = position{n.Line, n.Column}
}

// value decodes a node into a value of type t. It returns false if the node is null or invalid.
func (d *decoder) value(n *yaml.Node, t reflect.Type, p *field.Path) (any, bool) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	d.depth++
	defer func() { d.depth-- }()
	if d.nodes++; d.nodes > maxNodes || d.depth > maxDepth {
		return d.tooLarge(n, p)
	}
	optional := t.Kind() == reflect.Pointer
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if n.ShortTag() == "!!null" {
		return nil, d.overlay || t == reflect.TypeFor[v1alpha1.Replicas]()
	}
	if hasNotation(t) {
		return d.scalar(n, t, p, optional)
	}
	if t == reflect.TypeFor[v1alpha1.NamespaceObject]() {
		t = namespaceSchema(n)
	}
	if name := shortField(t); name != "" && n.Kind == yaml.ScalarNode {
		n = longForm(n, name)
	}
	switch t.Kind() {
	case reflect.Struct:
		return d.object(n, d.structType(t), p)
	case reflect.Map:
		return d.dictionary(n, t, p)
	case reflect.Slice:
		return d.list(n, t.Elem(), p)
	case reflect.Interface:
		return d.value(n, untyped(n), p)
	default:
		return d.basic(n, t, p)
	}
}

// tooLarge stops decoding a document that exceeds the limits, for instance because of recursive aliases.
func (d *decoder) tooLarge(n *yaml.Node, p *field.Path) (any, bool) {
	if d.aborted {
		return nil, false
	}
	d.aborted = true
	return d.fail(p, n, "the document is too large or nested too deeply", "does an alias contain itself?")
}

// untyped returns the type of a node that has no Go type to decode into.
func untyped(n *yaml.Node) reflect.Type {
	switch {
	case n.Kind == yaml.MappingNode:
		return reflect.TypeFor[map[string]any]()
	case n.Kind == yaml.SequenceNode:
		return reflect.TypeFor[[]any]()
	case n.ShortTag() == "!!bool":
		return reflect.TypeFor[bool]()
	case n.ShortTag() == "!!int":
		return reflect.TypeFor[int64]()
	case n.ShortTag() == "!!float":
		return reflect.TypeFor[float64]()
	}
	return reflect.TypeFor[string]()
}

func (d *decoder) object(n *yaml.Node, t *structType, p *field.Path) (any, bool) {
	if n.Kind != yaml.MappingNode {
		return d.fail(p, n, mustBe("an object", n), t.written(n))
	}
	out := map[string]any{}
	entries := d.entries(n, p)
	for _, e := range entries {
		f, known := t.byName[e.key.Value]
		if !known && d.overlay && isDirective(e.key.Value) {
			d.directive(out, e, p)
			continue
		}
		if !known {
			if f = d.unknown(e.key, t, p); f == nil || has(entries, f.name) {
				continue
			}
		}
		at := p.Child(f.name)
		d.note(at, e.key, e.value)
		if v, ok := d.field(e.value, f, at); ok {
			out[f.name] = v
		}
	}
	return out, true
}

func (d *decoder) field(n *yaml.Node, f *structField, p *field.Path) (any, bool) {
	if schema := overlaySchema(f); schema != nil && n.ShortTag() != "!!null" {
		return d.overlaid(n, schema, p)
	}
	v, ok := d.value(n, f.typ, p)
	if f.counts && v == int64(0) {
		return d.fail(p, n, "invalid value 0", "it must be greater than 0; omit it for the default")
	}
	if items, isList := v.([]any); d.overlay && isList && f.mergeKey != "" {
		d.checkMergeKeys(n, items, f.mergeKey, p)
	}
	return v, ok
}

func (d *decoder) dictionary(n *yaml.Node, t reflect.Type, p *field.Path) (any, bool) {
	if n.Kind != yaml.MappingNode {
		return d.fail(p, n, mustBe("an object", n), "write KEY: VALUE in lines below it")
	}
	out := map[string]any{}
	for _, e := range d.entries(n, p) {
		if d.overlay && isDirective(e.key.Value) {
			d.directive(out, e, p)
			continue
		}
		at := p.Key(e.key.Value)
		if t.Elem().Kind() == reflect.Interface && isFieldName(e.key.Value) {
			at = p.Child(e.key.Value) // an object without a Go type
		}
		d.note(at, e.key, e.value)
		if v, ok := d.value(e.value, t.Elem(), at); ok {
			out[e.key.Value] = v
		}
	}
	return out, true
}

// isFieldName reports whether a key looks like a field rather than like a key of a map.
func isFieldName(key string) bool {
	return !strings.ContainsFunc(key, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
}

func (d *decoder) list(n *yaml.Node, elem reflect.Type, p *field.Path) (any, bool) {
	if n.Kind != yaml.SequenceNode {
		return d.fail(p, n, mustBe("a list", n), d.asItems(n, elem))
	}
	out := make([]any, len(n.Content))
	for i, item := range n.Content {
		at := p.Index(i)
		d.note(at, item, item)
		// An item that fails leaves a nil, so that the indices of the other items match the file.
		out[i], _ = d.value(item, elem, at)
	}
	return out, true
}

func (d *decoder) basic(n *yaml.Node, t reflect.Type, p *field.Path) (any, bool) {
	tag := n.ShortTag()
	switch t.Kind() {
	case reflect.String:
		if n.Kind == yaml.ScalarNode && (tag == "!!str" || tag == "!!timestamp") {
			return n.Value, true
		}
		hint := ""
		if n.Kind == yaml.ScalarNode {
			hint = fmt.Sprintf("quote it: %q", n.Value)
		}
		return d.fail(p, n, mustBe("a string", n), hint)
	case reflect.Float64:
		var f float64
		if n.Decode(&f) == nil && !math.IsInf(f, 0) && !math.IsNaN(f) && !d.ambiguous(n, t, p) {
			return f, true
		}
		return d.fail(p, n, mustBe("a number", n), "")
	case reflect.Bool:
		var b bool
		if tag == "!!bool" && n.Decode(&b) == nil {
			return b, true
		}
		return d.fail(p, n, mustBe("true or false", n), unquoted(n, "!!bool"))
	default:
		if d.ambiguous(n, t, p) {
			return nil, false
		}
		var i int64
		if tag == "!!int" && n.Decode(&i) == nil && !reflect.Zero(t).OverflowInt(i) {
			return i, true
		}
		if tag == "!!int" {
			most := int64(math.MaxInt64)
			if t.Kind() == reflect.Int32 {
				most = math.MaxInt32
			}
			return d.fail(p, n, n.Value+" is out of range", fmt.Sprintf("its absolute value must be at most %d", most))
		}
		return d.fail(p, n, mustBe("a whole number", n), unquoted(n, "!!int"))
	}
}

// unquoted is the hint for a string that is valid without its quotes.
func unquoted(n *yaml.Node, tag string) string {
	plain := yaml.Node{Kind: yaml.ScalarNode, Value: n.Value}
	if n.ShortTag() == "!!str" && plain.ShortTag() == tag {
		return "remove the quotes"
	}
	return ""
}

// scalar decodes a type with its own notation, such as a quantity or a duration. If it is optional, zero is not the
// same as no value.
func (d *decoder) scalar(n *yaml.Node, t reflect.Type, p *field.Path, optional bool) (any, bool) {
	tag := n.ShortTag()
	number := tag == "!!int" || tag == "!!float"
	if n.Kind != yaml.ScalarNode {
		return d.fail(p, n, mustBe("a string", n), "")
	}
	switch t {
	case reflect.TypeFor[resource.Quantity]():
		if _, err := resource.ParseQuantity(n.Value); err != nil || tag != "!!str" && !number {
			return d.fail(p, n, fmt.Sprintf("invalid quantity %q", n.Value),
				"use a number with a unit such as 8Gi or 500m")
		}
		return n.Value, true
	case reflect.TypeFor[metav1.Duration]():
		v, err := time.ParseDuration(n.Value)
		if err != nil {
			return d.fail(p, n, fmt.Sprintf("invalid duration %q", n.Value),
				"use hours, minutes and seconds such as 8760h or 1h30m")
		}
		if v < 0 || v == 0 && !optional {
			hint := "it must be greater than 0"
			if optional {
				hint = "it must not be negative"
			}
			return d.fail(p, n, fmt.Sprintf("invalid duration %q", n.Value), hint)
		}
		return n.Value, true
	case reflect.TypeFor[v1alpha1.Replicas]():
		v, ok := d.basic(n, reflect.TypeFor[int32](), p)
		if count, _ := v.(int64); ok && count < 1 {
			return d.fail(p, n, fmt.Sprintf("invalid value %d: must be at least 1", count), "")
		}
		return v, ok
	case reflect.TypeFor[intstr.IntOrString]():
		if tag == "!!int" {
			return d.basic(n, reflect.TypeFor[int32](), p)
		}
	}
	return d.basic(n, reflect.TypeFor[string](), p)
}

func mustBe(want string, n *yaml.Node) string { return "must be " + want + ", not " + describe(n) }

func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "an object"
	case yaml.SequenceNode:
		return "a list"
	}
	switch tag := n.ShortTag(); tag {
	case "!!str":
		return fmt.Sprintf("%q", n.Value)
	case "!!int", "!!float":
		return "the number " + n.Value
	case "!!bool":
		return "the boolean " + n.Value
	case "!!null":
		return "null"
	case "!!timestamp":
		return "the date " + n.Value
	default:
		return "a " + tag
	}
}

// fileMode is the type of file permissions, which Kubernetes reads in octal if they have a leading zero.
type fileMode int32

// isFileMode reports whether a field of a pod contains file permissions.
func isFileMode(name string, t reflect.Type) bool {
	return (name == "defaultMode" || name == "mode") && t == reflect.TypeFor[*int32]()
}

// ambiguous rejects a whole number that YAML parsers interpret differently: 010 is 8 in YAML 1.1 and 10 in YAML 1.2,
// and 1_0 is 10 in YAML 1.1 and text in YAML 1.2.
func (d *decoder) ambiguous(n *yaml.Node, t reflect.Type, p *field.Path) (refused bool) {
	if tag := n.ShortTag(); n.Kind != yaml.ScalarNode || tag != "!!int" && tag != "!!float" {
		return false
	}
	plain := strings.ReplaceAll(n.Value, "_", "")
	if t != reflect.TypeFor[fileMode]() {
		plain = regexp.MustCompile(`^\+?(-?)0+([0-9]+)$`).ReplaceAllString(plain, "$1$2")
	}
	switch {
	case plain == n.Value:
		return false
	case strings.Contains(n.Value, "_"):
		d.fail(p, n, n.Value+" is ambiguous: a number in YAML 1.1 and text in YAML 1.2", "write "+plain)
	default:
		d.fail(p, n, n.Value+" is ambiguous: octal in YAML 1.1 and decimal in YAML 1.2", "write "+plain)
	}
	return true
}
