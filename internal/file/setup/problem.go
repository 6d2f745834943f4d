package setup

import (
	"cmp"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// Problem is one problem of a setup file.
type Problem struct {
	File string `json:"file"`
	// Line and Column start at 1. Columns are characters. They are 0 if the problem is not in a line of the file.
	Line   int `json:"line,omitempty"`
	Column int `json:"column,omitempty"`
	// Path is the field, such as spec.shards[1].name. It is empty if the file is not valid YAML.
	Path    string `json:"path,omitempty"`
	Message string `json:"message"`
	// Hint is how to fix it.
	Hint string `json:"hint,omitempty"`
}

// String is file:line:column: path: message, hint.
func (p Problem) String() string {
	s := p.File + ": "
	if p.Line > 0 {
		s = fmt.Sprintf("%s:%d:%d: ", p.File, p.Line, p.Column)
	}
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

// in returns the problems of a setup file, and of the files that it refers to, as one error.
func (e Errors) in(file string) error {
	return &clierr.Error{Err: e.sorted(file), Code: clierr.BadInput}
}

// sorted returns the problems of a setup file, and then the problems of the files that it refers to, by position and
// without duplicates.
func (e Errors) sorted(file string) Errors {
	for i := range e {
		if e[i].File == "" {
			e[i].File = file
		}
	}
	elsewhere := func(p Problem) string { return strings.TrimPrefix(p.File, file) }
	slices.SortStableFunc(e, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(elsewhere(a), elsewhere(b)), cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Column, b.Column),
			cmp.Compare(a.Path, b.Path))
	})
	return slices.Compact(e)
}

// located converts validation errors to problems with positions. It omits errors that only follow from a field that
// could not be decoded, and repetitions of an error in the components that inherit the value.
func (d *decoder) located(errs field.ErrorList) Errors {
	reported := map[string]bool{}
	for _, e := range errs {
		reported[e.Field+": "+message(e)] = true
	}
	var out Errors
	for _, e := range errs {
		pos, exact := d.positions.of(e.Field)
		origin := inheritedFrom(e.Field)
		if !exact && origin != "" && reported[origin+": "+message(e)] || d.follows(e) {
			continue
		}
		out = append(out, Problem{Line: pos.line, Column: pos.column, Path: e.Field, Message: message(e)})
	}
	return out
}

// inheritedFrom returns the field that a component's field inherits its value from, or "".
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

// follows reports whether a validation error may only be a consequence of a field that could not be decoded.
func (d *decoder) follows(e *field.Error) bool {
	for _, f := range d.failed {
		switch {
		case within(e.Field, f),
			e.Type == field.ErrorTypeNotFound && isNameIn(f, listOf(e.Field)),
			e.Origin == originPlacement && (isNameIn(f, "spec.clusters") || strings.HasSuffix(f, ".cluster")):
			return true
		}
	}
	return false
}

// listOf returns the list that a field refers to.
func listOf(path string) string {
	switch path[strings.LastIndexByte(path, '.')+1:] {
	case "cluster":
		return "spec.clusters"
	case "shard":
		return "spec.shards"
	}
	return "spec.frontProxies"
}

// isNameIn reports whether a path is a list, one of its items, or the name of an item.
func isNameIn(path, list string) bool {
	return path == list || Parent(path) == list || strings.HasSuffix(path, ".name") && Parent(Parent(path)) == list
}

// within reports whether path is parent or below it.
func within(path, parent string) bool {
	rest, ok := strings.CutPrefix(path, parent)
	return ok && (rest == "" || parent == "" || rest[0] == '.' || rest[0] == '[')
}

// message is a validation error without its field, which Problem has.
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

// position is a line and a column of a file, both from 1.
type position struct{ line, column int }

// positions are the positions of fields by path. The empty path is the document.
type positions map[string]position

// of returns the position of a field, or else of its closest parent. exact reports whether it is the position of the
// field.
func (p positions) of(path string) (pos position, exact bool) {
	for at := path; at != ""; at = Parent(at) {
		if pos, ok := p[at]; ok {
			return pos, at == path
		}
	}
	return p[""], path == ""
}

// Parent removes the last segment of a path: .name or [key]. A key may contain dots.
func Parent(path string) string {
	if strings.HasSuffix(path, "]") {
		return path[:max(strings.LastIndexByte(path, '['), 0)]
	}
	return path[:max(strings.LastIndexByte(path, '.'), 0)]
}
