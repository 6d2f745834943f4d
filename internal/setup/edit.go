package setup

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/clierr"
)

// AddShard returns the file with a shard appended to spec.shards. The rest of the text is unchanged.
func (f *File) AddShard(s v1alpha1.Shard) (*File, error) {
	return f.addItem("shards", fmt.Sprintf("add the shard %q to spec.shards", s.Name), s)
}

// RemoveShard returns the file without a shard and the comments directly above it.
func (f *File) RemoveShard(name string) (*File, error) {
	index := slices.IndexFunc(f.Setup.Spec.Shards, func(s v1alpha1.Shard) bool { return s.Name == name })
	if index < 0 {
		return nil, fmt.Errorf("%s has no shard %q", f.Name, name)
	}
	return f.removeItem("shards", fmt.Sprintf("remove the shard %q from spec.shards", name), index)
}

// AddAgent returns the file with an agent appended to spec.agents. The rest of the text is unchanged.
func (f *File) AddAgent(a v1alpha1.Agent) (*File, error) {
	return f.addItem("agents", fmt.Sprintf("add the agent %q to spec.agents", a.Name), a)
}

// RemoveAgent returns the file without an agent and the comments directly above it.
func (f *File) RemoveAgent(name string) (*File, error) {
	index := slices.IndexFunc(f.Setup.Spec.Agents, func(a v1alpha1.Agent) bool { return a.Name == name })
	if index < 0 {
		return nil, fmt.Errorf("%s has no agent %q", f.Name, name)
	}
	return f.removeItem("agents", fmt.Sprintf("remove the agent %q from spec.agents", name), index)
}

// addItem appends an item to a list of spec. want is what the user can do instead.
func (f *File) addItem(list, want string, item any) (*File, error) {
	node, err := nodeOf(item)
	if err != nil {
		return nil, err
	}
	return f.edit(want, func(e *editor, tree map[string]any) (splices []splice, err error) {
		var value any
		if err := node.Decode(&value); err != nil {
			return nil, err
		}
		setList(tree, list, append(listAt(tree, "spec", list), value))
		return e.add(node, "spec", list)
	})
}

// removeItem removes an item from a list of spec.
func (f *File) removeItem(list, want string, index int) (*File, error) {
	return f.edit(want, func(e *editor, tree map[string]any) ([]splice, error) {
		items := listAt(tree, "spec", list)
		if index >= len(items) {
			return nil, unsafe("spec." + list + " is not a list in one place")
		}
		setList(tree, list, slices.Delete(items, index, index+1))
		return e.remove(index, "spec", list)
	})
}

// SetVersion returns the file with spec.version set.
func (f *File) SetVersion(version string) (*File, error) {
	want := "set spec.version to " + version
	return f.edit(want, func(e *editor, tree map[string]any) ([]splice, error) {
		spec, _ := tree["spec"].(map[string]any)
		if spec == nil {
			spec = map[string]any{}
			tree["spec"] = spec
		}
		spec["version"] = version
		return e.set(version, "spec", "version")
	})
}

// edit changes the text of a file. change returns what to replace, and makes the same change to the decoded tree. The new text
// must decode to that tree, so an unsupported style can never corrupt the file.
func (f *File) edit(action string, change func(*editor, map[string]any) ([]splice, error)) (*File, error) {
	e, err := newEditor(f.Data)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", f.Name, err)
	}
	tree, err := treeOf(f.Data)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", f.Name, err)
	}
	splices, err := change(e, tree)
	if reason, ok := errors.AsType[unsafe](err); ok {
		return nil, clierr.New(clierr.BadInput, action+" manually, then run kcpctl up", "cannot edit %s: %s", f.Name, reason)
	}
	if err != nil {
		return nil, err
	}
	text := e.text.replace(splices)
	edited, err := ParseWith(f.Name, text, f.files)
	if err != nil {
		return nil, clierr.New(clierr.BadInput, "fix the problems above and rerun the command. The file was not changed", "%s after the edit: %w", f.Name, err)
	}
	if got, err := treeOf(text); err != nil || !reflect.DeepEqual(normal(got), normal(tree)) {
		return nil, clierr.New(clierr.BadInput, action+" manually, then run kcpctl up",
			"cannot edit %s: the edit would change other fields, for instance through anchors or merge keys", f.Name)
	}
	return edited, nil
}

// unsafe is the reason why a text cannot be edited.
type unsafe string

func (u unsafe) Error() string { return string(u) }

func treeOf(data []byte) (map[string]any, error) {
	var tree map[string]any
	err := yaml.Unmarshal(data, &tree)
	return tree, err
}

// normal removes from a tree what has no meaning in a setup: keys without a value, and empty objects and lists.
func normal(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, value := range v {
			if n := normal(value); n != nil {
				out[key] = n
			}
		}
		if len(out) > 0 {
			return out
		}
		return nil
	case []any:
		if len(v) == 0 {
			return nil
		}
		out := make([]any, len(v))
		for i := range v {
			out[i] = normal(v[i])
		}
		return out
	}
	return v
}

func listAt(tree map[string]any, object, key string) []any {
	parent, _ := tree[object].(map[string]any)
	list, _ := parent[key].([]any)
	return slices.Clone(list)
}

// setList replaces a list of spec in a tree.
func setList(tree map[string]any, name string, list []any) {
	spec, _ := tree["spec"].(map[string]any)
	out := map[string]any{name: list}
	for key, value := range spec {
		if key != name {
			out[key] = value
		}
	}
	tree["spec"] = out
}

// nodeOf encodes a value as a tree, with fields in the order of its type.
func nodeOf(v any) (*yaml.Node, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, err
	}
	blockStyle(&doc)
	return doc.Content[0], nil
}

// editor determines what to replace in a text.
type editor struct {
	text *text
	root *yaml.Node
	// step is the number of spaces by which the file indents nested objects.
	step int
}

func newEditor(data []byte) (*editor, error) {
	root, problem := parseYAML(data)
	if problem != nil {
		return nil, Errors{*problem}
	}
	e := &editor{text: newText(data), root: root, step: 2}
	if spec := lookup(root, "spec"); spec != nil && spec.Kind == yaml.MappingNode && !isFlow(spec) {
		e.step = max(spec.Column-root.Column, 1)
	}
	return e, nil
}

func isFlow(n *yaml.Node) bool { return n.Style&yaml.FlowStyle != 0 }

// place is where a path leads in a document, as far as the path exists.
type place struct {
	// parents are the objects along the path, and keys the indices in them of the keys that were followed.
	parents []*yaml.Node
	keys    []int
	// value is the last node that exists, and rest the part of the path that does not exist.
	value *yaml.Node
	rest  []string
}

// key is the node of the last key that was followed.
func (p *place) key() *yaml.Node { return p.parents[len(p.parents)-1].Content[p.keys[len(p.keys)-1]] }

// find follows a path. It stops at a node that is not an object, or that does not have the next key.
func (e *editor) find(path ...string) (*place, error) {
	p := &place{value: e.root, rest: path}
	for len(p.rest) > 0 && p.value.Kind == yaml.MappingNode {
		i := keyIndex(p.value, p.rest[0])
		if i < 0 {
			return p, nil
		}
		p.parents, p.keys = append(p.parents, p.value), append(p.keys, i)
		p.value, p.rest = p.value.Content[i+1], p.rest[1:]
		if p.value.Kind == yaml.AliasNode || p.value.Anchor != "" {
			return nil, unsafe(strings.Join(path[:len(path)-len(p.rest)], ".") + " has an anchor or is an alias")
		}
	}
	return p, nil
}

func keyIndex(n *yaml.Node, key string) int {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return i
		}
	}
	return -1
}

// add appends an item to a list. It creates the list if it does not exist.
func (e *editor) add(item *yaml.Node, path ...string) ([]splice, error) {
	p, err := e.find(path...)
	switch {
	case err != nil:
		return nil, err
	case p.value.Kind != yaml.SequenceNode:
		return e.create(p, &yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{item}})
	case isFlow(p.value):
		return e.addToFlow(p, item)
	default:
		return e.addToBlock(p, item)
	}
}

// remove removes an item from a list.
func (e *editor) remove(index int, path ...string) ([]splice, error) {
	p, err := e.find(path...)
	switch {
	case err != nil:
		return nil, err
	case len(p.rest) > 0 || p.value.Kind != yaml.SequenceNode || index >= len(p.value.Content):
		return nil, unsafe(strings.Join(path, ".") + " is merged from elsewhere")
	case isFlow(p.value):
		return e.removeFromFlow(p, index)
	default:
		return e.removeFromBlock(p, index)
	}
}

// set replaces the value of a scalar and keeps its quotes.
func (e *editor) set(value string, path ...string) ([]splice, error) {
	p, err := e.find(path...)
	if err != nil {
		return nil, err
	}
	n := p.value
	if len(p.rest) > 0 || n.Kind != yaml.ScalarNode || n.ShortTag() == "!!null" {
		return e.create(p, &yaml.Node{Kind: yaml.ScalarNode, Value: value})
	}
	quotes := ""
	switch {
	case n.Style&yaml.SingleQuotedStyle != 0:
		quotes = "'"
	case n.Style&yaml.DoubleQuotedStyle != 0:
		quotes = `"`
	}
	from, old := e.text.offset(n), quotes+n.Value+quotes
	if !strings.HasPrefix(string(e.text.data[from:]), old) {
		return nil, unsafe(strings.Join(path, ".") + " is not a plain value on one line")
	}
	return []splice{{from, from + len(old), quotes + value + quotes}}, nil
}
