package setup

import (
	"cmp"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kcpctl/kcpctl/internal/clierr"
)

// Problem is one thing that is wrong with a setup file.
type Problem struct {
	File string `json:"file"`
	// Line and Column count from 1; a column is a character.
	Line   int `json:"line"`
	Column int `json:"column"`
	// Path is the field, such as spec.shards[1].name. It is empty if the text is no YAML.
	Path    string `json:"path,omitempty"`
	Message string `json:"message"`
	// Hint says how to put it right.
	Hint string `json:"hint,omitempty"`
}

// String is file:line:column: path: message, hint.
func (p Problem) String() string {
	s := fmt.Sprintf("%s:%d:%d: ", p.File, p.Line, p.Column)
	if p.Path != "" {
		s += p.Path + ": "
	}
	s += p.Message
	if p.Hint != "" {
		s += ", " + p.Hint
	}
	return s
}

// Errors are all problems of a file, by position.
type Errors []Problem

func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, p := range e {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// in sorts the problems of a file, drops what is said twice, and wraps them for the user.
func (e Errors) in(file string) error {
	for i := range e {
		e[i].File = file
	}
	slices.SortStableFunc(e, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), cmp.Compare(a.Path, b.Path))
	})
	return &clierr.Error{Err: slices.Compact(e), Code: clierr.BadInput}
}

// located turns what validation found into problems with positions. It leaves out what only follows from a field that could
// not be decoded, and what is the same mistake again in a component that inherited it.
func (d *decoder) located(errs field.ErrorList) Errors {
	said := map[string]bool{}
	for _, e := range errs {
		said[e.Field+": "+message(e)] = true
	}
	var out Errors
	for _, e := range errs {
		pos, exact := d.positions.of(e.Field)
		origin := inheritedFrom(e.Field)
		if !exact && origin != "" && said[origin+": "+message(e)] || d.follows(e) {
			continue
		}
		out = append(out, Problem{Line: pos.line, Column: pos.column, Path: e.Field, Message: message(e)})
	}
	return out
}

// inheritedFrom is the field whose value a component's field has unless it says otherwise, or "".
func inheritedFrom(path string) string {
	component := regexp.MustCompile(`^spec\.(?:cacheServer|rootShard|(?:shards|frontProxies|virtualWorkspaces)\[\d+\])\.(etcd)?(.*)$`)
	switch m := component.FindStringSubmatch(path); {
	case m == nil:
		return ""
	case m[1] != "":
		return "spec.etcd" + m[2]
	case m[2] == "cluster":
		return "spec.rootShard.cluster"
	default:
		return "spec.defaults." + m[2]
	}
}

// follows tells whether a validation error may only be there because something else could not be decoded.
func (d *decoder) follows(e *field.Error) bool {
	for _, f := range d.failed {
		switch {
		case within(e.Field, f),
			e.Type == field.ErrorTypeNotFound && names(f, listOf(e.Field)),
			e.Origin == originPlacement && (names(f, "spec.clusters") || strings.HasSuffix(f, ".cluster")):
			return true
		}
	}
	return false
}

// listOf is the list of what a field refers to.
func listOf(path string) string {
	switch path[strings.LastIndexByte(path, '.')+1:] {
	case "cluster":
		return "spec.clusters"
	case "shard":
		return "spec.shards"
	}
	return "spec.frontProxies"
}

// names tells whether a field is a list, one of its items, or the name of one.
func names(path, list string) bool {
	return path == list || parent(path) == list || strings.HasSuffix(path, ".name") && parent(parent(path)) == list
}

// within tells whether path is parent or below it.
func within(path, parent string) bool {
	rest, ok := strings.CutPrefix(path, parent)
	return ok && (rest == "" || parent == "" || rest[0] == '.' || rest[0] == '[')
}

// message says what is wrong with a value, as Kubernetes does but in our words.
func message(e *field.Error) string {
	switch value := quote(e.BadValue); e.Type {
	case field.ErrorTypeRequired:
		return strings.TrimSuffix("required: "+e.Detail, ": ")
	case field.ErrorTypeForbidden:
		return e.Detail
	case field.ErrorTypeDuplicate:
		return "duplicate value " + value
	case field.ErrorTypeNotSupported:
		return "unsupported value " + value + ", " + e.Detail
	default:
		return "invalid value " + value + ": " + e.Detail
	}
}

func quote(value any) string {
	if v := reflect.ValueOf(value); v.Kind() == reflect.String {
		return fmt.Sprintf("%q", v.String())
	}
	return fmt.Sprint(value)
}
