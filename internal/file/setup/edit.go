package setup

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// AddShard returns the file with a shard appended to spec.shards. The rest of the text is unchanged.
func (f *File) AddShard(s v1alpha1.Shard) (*File, error) {
	return f.addItem("shard", s.Name, s, "spec", "shards")
}

// RemoveShard returns the file without a shard and the comments directly above it.
func (f *File) RemoveShard(name string) (*File, error) {
	index := slices.IndexFunc(f.Setup.Spec.Shards, func(s v1alpha1.Shard) bool { return s.Name == name })
	return f.removeItem("shard", name, index, "spec", "shards")
}

// AddAgent returns the file with an agent appended to spec.agents. The rest of the text is unchanged.
func (f *File) AddAgent(a v1alpha1.Agent) (*File, error) {
	return f.addItem("agent", a.Name, a, "spec", "agents")
}

// RemoveAgent returns the file without an agent and the comments directly above it.
func (f *File) RemoveAgent(name string) (*File, error) {
	index := slices.IndexFunc(f.Setup.Spec.Agents, func(a v1alpha1.Agent) bool { return a.Name == name })
	return f.removeItem("agent", name, index, "spec", "agents")
}

// AddCluster returns the file with a physical cluster appended to spec.workloads.clusters. The rest of the text is
// unchanged.
func (f *File) AddCluster(c v1alpha1.WorkloadCluster) (*File, error) {
	return f.addItem("cluster", c.Name, c, "spec", "workloads", "clusters")
}

// RemoveCluster returns the file without a physical cluster and the comments directly above it.
func (f *File) RemoveCluster(name string) (*File, error) {
	index, err := f.physical(name)
	if err != nil {
		return nil, err
	}
	return f.removeItem("cluster", name, index, "spec", "workloads", "clusters")
}

// CordonCluster returns the file in which a physical cluster is unschedulable, or is not.
func (f *File) CordonCluster(name string, unschedulable bool) (*File, error) {
	index, err := f.physical(name)
	if err != nil {
		return nil, err
	}
	want := fmt.Sprintf("set unschedulable of the cluster %q in spec.workloads.clusters to %t", name, unschedulable)
	return f.edit(want, func(e *editor, tree map[string]any) ([]splice, error) {
		items := listAt(tree, "spec", "workloads", "clusters")
		if index >= len(items) {
			return nil, unsafe("spec.workloads.clusters is not a list in one place")
		}
		item, _ := items[index].(map[string]any)
		item = maps.Clone(item)
		item["unschedulable"] = unschedulable
		items[index] = item
		setList(tree, items, "spec", "workloads", "clusters")
		return e.set(strconv.FormatBool(unschedulable), "spec", "workloads", "clusters",
			strconv.Itoa(index), "unschedulable")
	})
}

// physical returns the index of a physical cluster in spec.workloads.clusters.
func (f *File) physical(name string) (int, error) {
	if w := f.Setup.Spec.Workloads; w != nil {
		if i := slices.IndexFunc(w.Clusters, func(c v1alpha1.WorkloadCluster) bool { return c.Name == name }); i >= 0 {
			return i, nil
		}
	}
	return 0, fmt.Errorf("%s has no cluster %q in spec.workloads.clusters", f.Name, name)
}

func (f *File) addItem(kind, name string, item any, path ...string) (*File, error) {
	node, err := nodeOf(item)
	if err != nil {
		return nil, err
	}
	return f.edit(fmt.Sprintf("add the %s %q to %s", kind, name, strings.Join(path, ".")),
		func(e *editor, tree map[string]any) ([]splice, error) {
			var value any
			if err := node.Decode(&value); err != nil {
				return nil, err
			}
			setList(tree, append(listAt(tree, path...), value), path...)
			return e.add(node, path...)
		})
}

// removeItem removes an item from the list at a path, if it is there.
func (f *File) removeItem(kind, name string, index int, path ...string) (*File, error) {
	if index < 0 {
		return nil, fmt.Errorf("%s has no %s %q", f.Name, kind, name)
	}
	list := strings.Join(path, ".")
	return f.edit(fmt.Sprintf("remove the %s %q from %s", kind, name, list),
		func(e *editor, tree map[string]any) ([]splice, error) {
			items := listAt(tree, path...)
			if index >= len(items) {
				return nil, unsafe(list + " is not a list in one place")
			}
			setList(tree, slices.Delete(items, index, index+1), path...)
			return e.remove(index, path...)
		})
}

// SetVersion returns the file with spec.version set.
func (f *File) SetVersion(version string) (*File, error) {
	return f.setText(version, "spec", "version")
}

// SetInstallation returns the file with metadata.installation set.
func (f *File) SetInstallation(id string) (*File, error) {
	return f.setText(id, "metadata", "installation")
}

func (f *File) setText(value, object, field string) (*File, error) {
	return f.edit(fmt.Sprintf("set %s.%s to %s", object, field, value),
		func(e *editor, tree map[string]any) ([]splice, error) {
			fields, _ := tree[object].(map[string]any)
			if fields == nil {
				fields = map[string]any{}
				tree[object] = fields
			}
			fields[field] = value
			return e.set(value, object, field)
		})
}

// edit changes the text of a file. change returns what to replace, and makes the same change to the decoded tree. The
// new text must decode to that tree, so an unsupported style can never corrupt the file.
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
		return nil, clierr.New(clierr.BadInput, action+" manually, then run kcpctl up",
			"cannot edit %s: %s", f.Name, reason)
	}
	if err != nil {
		return nil, err
	}
	text := e.text.replace(splices)
	edited, err := ParseWith(f.Name, text, f.files)
	if err != nil {
		return nil, clierr.New(clierr.BadInput,
			"fix the problems above and rerun the command. The file was not changed",
			"%s after the edit: %w", f.Name, err)
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
	root, problem := parseYAML(data)
	if problem != nil {
		return nil, Errors{*problem}
	}
	var tree map[string]any
	err := root.Decode(&tree)
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

// listAt returns a copy of the list at a path of a tree.
func listAt(tree map[string]any, path ...string) []any {
	for _, key := range path[:len(path)-1] {
		tree, _ = tree[key].(map[string]any)
	}
	list, _ := tree[path[len(path)-1]].([]any)
	return slices.Clone(list)
}

// setList replaces the list at a path of a tree. Objects along the path are copied, because merge keys share them.
func setList(tree map[string]any, list []any, path ...string) {
	for _, key := range path[:len(path)-1] {
		below, _ := tree[key].(map[string]any)
		if below = maps.Clone(below); below == nil {
			below = map[string]any{}
		}
		tree[key], tree = below, below
	}
	tree[path[len(path)-1]] = list
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
	// parents are the objects and lists along the path, and keys the indices in them of the keys, or items, that were
	// followed.
	parents []*yaml.Node
	keys    []int
	// value is the last node that exists, and rest the part of the path that does not exist.
	value *yaml.Node
	rest  []string
}

// key is the node of the last key that was followed.
func (p *place) key() *yaml.Node { return p.parents[len(p.parents)-1].Content[p.keys[len(p.keys)-1]] }

// find follows a path of keys and of indices of items. It stops at a node that is neither an object nor a list, or that
// does not have the next key or item.
func (e *editor) find(path ...string) (*place, error) {
	p := &place{value: e.root, rest: path}
	for len(p.rest) > 0 && len(p.value.Content) > 0 {
		i, value := child(p.value, p.rest[0])
		if value == nil {
			return p, nil
		}
		p.parents, p.keys = append(p.parents, p.value), append(p.keys, i)
		p.value = value
		p.rest = p.rest[1:]
		if p.value.Kind == yaml.AliasNode || p.value.Anchor != "" {
			return nil, unsafe(strings.Join(path[:len(path)-len(p.rest)], ".") + " has an anchor or is an alias")
		}
	}
	return p, nil
}

// child returns the value of a key of an object, or an item of a list, and the index of the key or the item. The value
// is nil if there is none.
func child(n *yaml.Node, key string) (int, *yaml.Node) {
	switch n.Kind {
	case yaml.MappingNode:
		if i := keyIndex(n, key); i >= 0 {
			return i, n.Content[i+1]
		}
	case yaml.SequenceNode:
		if i, err := strconv.Atoi(key); err == nil && i < len(n.Content) {
			return i, n.Content[i]
		}
	}
	return 0, nil
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

// AddNamespace returns the file with another namespace of the root shard's Kubernetes cluster in spec.clusters, and its
// name there. If the file has the namespace already, it is unchanged. Both have the context of the file, also if the
// setup has another one, of a flag.
func (f *File) AddNamespace(name, namespace string) (_ *File, cluster string, err error) {
	written, err := ParseWith(f.Name, f.Data, f.files)
	if err != nil {
		return nil, "", err
	}
	var home v1alpha1.Cluster
	for _, c := range written.Setup.Spec.Clusters {
		if c.Name == written.Setup.Spec.RootShard.Cluster {
			home = c
		}
	}
	for _, c := range written.Setup.Spec.Clusters {
		if c.Context == home.Context && c.Kubeconfig == home.Kubeconfig && c.Namespace == namespace {
			return f, c.Name, nil
		}
	}
	file := f
	if len(itemsAt(f, "spec", "clusters")) == 0 { // the default is one cluster
		file, err = f.addItem("cluster", home.Name, v1alpha1.Cluster{Name: home.Name}, "spec", "clusters")
		if err != nil {
			return nil, "", err
		}
	}
	file, err = file.addItem("cluster", name, v1alpha1.Cluster{Name: name, Context: home.Context,
		Kubeconfig: home.Kubeconfig, Namespace: namespace, As: home.As, AsGroups: home.AsGroups}, "spec", "clusters")
	return file, name, err
}

func itemsAt(f *File, path ...string) []any {
	tree, err := treeOf(f.Data)
	if err != nil {
		return nil
	}
	return listAt(tree, path...)
}
