package importer

import (
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kcpctl/kcpctl/internal/file/setup"
)

// same returns the object of kcp-operator that the input has already, or nil. Issuers may be there several times: files
// for several clusters have them under the same names.
func (r *reader) same(o *object) *object {
	i := slices.IndexFunc(r.operator(), func(other *object) bool {
		return other.source == o.source && other.kind == o.kind && other.namespace == o.namespace &&
			other.name == o.name && o.name != ""
	})
	if i < 0 {
		return nil
	}
	return r.operator()[i]
}

// patch adds the fields of another document for the same object, as kubectl patch does. It is refused if the documents
// disagree, or if the second one says nothing new.
func (o *object) patch(more *object, rows []row) {
	where := fmt.Sprintf("%s, line %d", o.file, o.root.Line)
	added, conflict := beyond(o.root, more.root, nil)
	file := o.file
	root := o.root
	defer func() { o.file, o.root = file, root }()
	o.file = more.file
	o.root = more.root
	switch {
	case conflict != "":
		o.fail("the object is also in "+where+", with another value of "+conflict,
			"import one of them, or make them agree")
	case len(added.Content) == 0:
		o.fail("the object is also in "+where, "name each file once")
	default:
		o.find(Review, "the object is also in "+where+": the setup has the fields of both documents", "")
		o.walk(added, newBranch(rows), nil)
	}
}

// beyond returns the fields of the second object that the first one does not have, and the first field in which they
// have different values, or "".
func beyond(a, b *yaml.Node, at *field.Path) (added *yaml.Node, conflict string) {
	added = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: b.Line, Column: b.Column}
	fields, _ := setup.Fields(b, at)
	for _, f := range fields {
		mine, path := lookup(a, f.Key.Value), child(at, f.Key.Value)
		switch {
		case mine == nil:
			added.Content = append(added.Content, f.Key, f.Value)
		case mine.Kind == yaml.MappingNode && f.Value.Kind == yaml.MappingNode:
			more, conflict := beyond(mine, f.Value, path)
			if conflict != "" {
				return added, conflict
			}
			if len(more.Content) > 0 {
				added.Content = append(added.Content, f.Key, more)
			}
		case !equal(mine, f.Value):
			return added, path.String()
		}
	}
	return added, ""
}

// equal reports whether two nodes have the same content.
func equal(a, b *yaml.Node) bool {
	return a.Kind == b.Kind && a.Value == b.Value && a.ShortTag() == b.ShortTag() && slices.EqualFunc(a.Content,
		b.Content, equal)
}
