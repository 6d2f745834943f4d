package setup

import (
	"bytes"
	"cmp"
	"fmt"
	"reflect"
	"slices"

	"go.yaml.in/yaml/v3"
)

// Restore returns the file with the content of another one, such as an earlier revision. Fields that mean the same in
// both are kept as they are written, with their comments, and so are the comments of fields with another value. Others
// become as the other file has written them. If that is not possible, for instance because the file has anchors, the
// result has the text of the other one, and kept is false. The file keeps metadata.installation, which an earlier
// revision can lack.
func (f *File) Restore(other *File) (restored *File, kept bool, err error) {
	if id := f.Setup.Metadata.Installation; id != "" {
		if other, err = other.SetInstallation(id); err != nil {
			return nil, false, err
		}
	}
	if sameSetup(f, other) {
		return f, true, nil
	}
	for _, written := range [][]byte{other.Data, nil} {
		text, err := f.merged(other, written)
		if err != nil || text == nil {
			continue
		}
		if restored, err := ParseWith(f.Name, text, f.files); err == nil && sameSetup(restored, other) {
			return restored, true, nil
		}
	}
	restored, err = ParseWith(f.Name, other.Data, f.files)
	return restored, false, err
}

// sameSetup reports whether two files mean the same.
func sameSetup(a, b *File) bool {
	x, err := Marshal(a.Setup)
	if err != nil {
		return false
	}
	y, err := Marshal(b.Setup)
	return err == nil && bytes.Equal(x, y)
}

// As returns the file with another text if that means the same, and else the file: releases have other defaults.
func (f *File) As(text []byte) *File {
	if other, err := ParseWith(f.Name, text, f.files); err == nil && sameSetup(f, other) {
		return other
	}
	return f
}

// merged returns the text of the file with the values of another one, as they are written there, or with all defaults
// if nothing is written. It is nil for texts with anchors.
func (f *File) merged(other *File, written []byte) ([]byte, error) {
	text, problem := parseYAML(f.Data)
	if problem != nil {
		return nil, Errors{*problem}
	}
	var as *yaml.Node
	if written != nil {
		if as, problem = parseYAML(written); problem != nil {
			return nil, Errors{*problem}
		}
	}
	if hasAlias(text) || as != nil && hasAlias(as) {
		return nil, nil
	}
	var trees [2]yaml.Node
	for i, s := range []*File{f, other} {
		data, err := Marshal(s.Setup)
		if err != nil {
			return nil, err
		}
		if err := yaml.Unmarshal(data, &trees[i]); err != nil {
			return nil, fmt.Errorf("read the setup of %s: %w", s.Name, err)
		}
	}
	mergeNode(text, trees[0].Content[0], trees[1].Content[0], as)
	return Encode(text)
}

func hasAlias(n *yaml.Node) bool {
	return n.Kind == yaml.AliasNode || n.Anchor != "" || slices.ContainsFunc(n.Content, hasAlias)
}

// mergeNode makes a node of a text mean what it shall be. was is its meaning, with all defaults: what is equal there is
// not changed. as is how the other text writes it, or nil if that is not known.
func mergeNode(text, was, now, as *yaml.Node) {
	switch {
	case unchanged(was, now):
	case text.Kind == yaml.MappingNode && now.Kind == yaml.MappingNode:
		mergeObject(text, was, now, as)
	case text.Kind == yaml.SequenceNode && now.Kind == yaml.SequenceNode && was != nil && haveNames(text) &&
		haveNames(was) && haveNames(now):
		mergeList(text, was, now, as)
	default:
		value := cmp.Or(as, now)
		text.Kind = value.Kind
		text.Tag = value.Tag
		text.Value = value.Value
		text.Style = value.Style
		text.Content = value.Content
	}
}

func mergeObject(text, was, now, as *yaml.Node) {
	unwritten := func(key string) bool { return as != nil && lookup(as, key) == nil } // it is a default
	for i := len(text.Content) - 2; i >= 0; i -= 2 {
		key := text.Content[i].Value
		value := lookup(now, key)
		if value == nil || unwritten(key) && !unchanged(lookup(was, key), value) {
			text.Content = slices.Delete(text.Content, i, i+2)
		}
	}
	for i := 0; i < len(now.Content); i += 2 {
		key := now.Content[i]
		value := now.Content[i+1]
		before := lookup(was, key.Value)
		if unchanged(before, value) || unwritten(key.Value) {
			continue
		}
		at, how := lookup(text, key.Value), lookup(as, key.Value)
		if at == nil {
			text.Content = append(text.Content, key, cmp.Or(how, value))
			continue
		}
		mergeNode(at, before, value, how)
	}
}

func unchanged(was, now *yaml.Node) bool { return was != nil && sameValue(was, now) }

// mergeList merges lists of objects with names.
func mergeList(text, was, now, as *yaml.Node) {
	var items []*yaml.Node
	for _, item := range now.Content {
		name := lookup(item, nameKey).Value
		at, before, how := itemNamed(text, name), itemNamed(was, name), itemNamed(as, name)
		if at == nil || before == nil {
			items = append(items, cmp.Or(how, item))
			continue
		}
		mergeNode(at, before, item, how)
		items = append(items, at)
	}
	text.Content = items
}

// nameKey is the key of the name of an item of a list.
const nameKey = "name"

// haveNames reports whether all items of a list are objects with different names.
func haveNames(list *yaml.Node) bool {
	seen := map[string]bool{}
	for _, item := range list.Content {
		name := lookup(item, nameKey)
		if name == nil || seen[name.Value] {
			return false
		}
		seen[name.Value] = true
	}
	return true
}

func itemNamed(list *yaml.Node, name string) *yaml.Node {
	if list == nil {
		return nil
	}
	for _, item := range list.Content {
		if n := lookup(item, nameKey); n != nil && n.Value == name {
			return item
		}
	}
	return nil
}

// sameValue reports whether two nodes mean the same.
func sameValue(a, b *yaml.Node) bool {
	var x, y any
	return a.Decode(&x) == nil && b.Decode(&y) == nil && reflect.DeepEqual(x, y)
}
