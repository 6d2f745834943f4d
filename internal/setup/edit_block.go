package setup

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
)

// addToBlock puts an item behind the last one of a block list, in its style.
func (e *editor) addToBlock(p *place, item *yaml.Node) ([]splice, error) {
	list := p.value
	count := len(list.Content)
	last := list.Content[count-1]
	indent := list.Column - 1
	dash, err := e.dash(list, count-1)
	if err != nil {
		return nil, err
	}
	item.Style = last.Style & yaml.FlowStyle
	width := 2
	if last.Line-1 == dash && last.Column-1 > indent+1 && last.Kind == yaml.MappingNode && last.Anchor == "" {
		width = last.Column - 1 - indent
	}
	lines, err := e.render(item, false)
	if err != nil {
		return nil, err
	}
	for i := range lines {
		lead := strings.Repeat(" ", width)
		if i == 0 {
			lead = "-" + strings.Repeat(" ", width-1)
		}
		lines[i] = strings.Repeat(" ", indent) + lead + lines[i]
	}
	if first := e.ownComments(list, dash, indent); count > 1 && isBlank(e.text.line(first-1)) {
		lines = slices.Insert(lines, 0, "")
	}
	return []splice{e.text.insertLines(e.blockEnd(dash, e.after(p), indent), lines)}, nil
}

// removeFromBlock takes an item with its comments out of a block list, and the key of a list that has no more items.
func (e *editor) removeFromBlock(p *place, index int) ([]splice, error) {
	list := p.value
	dash, err := e.dash(list, index)
	if err != nil {
		return nil, err
	}
	next, isLast := e.after(p), index == len(list.Content)-1
	if !isLast {
		if next, err = e.dash(list, index+1); err != nil {
			return nil, err
		}
	}
	indent := list.Column - 1
	first, end := e.ownComments(list, dash, indent), e.blockEnd(dash, next, indent)
	if len(list.Content) == 1 {
		return e.removeList(p, first, end)
	}
	if isLast || end < e.text.lines() && isBlank(e.text.line(end)) {
		for first > 0 && isBlank(e.text.line(first-1)) {
			first--
		}
	}
	return []splice{e.text.removeLines(first, end)}, nil
}

// removeList takes out the only item of a list: with the key, unless that has comments or is the only one of its object.
func (e *editor) removeList(p *place, first, end int) ([]splice, error) {
	key := p.key()
	line := key.Line - 1
	_, _, commented := comment(e.text.line(max(line-1, 0)))
	rest := strings.TrimSpace(e.text.line(line)[key.Column-1+len(key.Value):])
	if first == line+1 && rest == ":" && !commented && len(p.parents[len(p.parents)-1].Content) > 2 {
		return []splice{e.text.removeLines(line, end)}, nil
	}
	colon := bytes.IndexByte(e.text.data[e.text.offset(key)+len(key.Value):], ':')
	if colon < 0 {
		return nil, unsafe("its keys are written in an unusual way")
	}
	at := e.text.offset(key) + len(key.Value) + colon + 1
	return []splice{{at, at, " []"}, e.text.removeLines(first, end)}, nil
}

// dash finds the line, from 0, on which an item of a block list begins.
func (e *editor) dash(list *yaml.Node, index int) (int, error) {
	if list.Anchor != "" || list.Style&yaml.TaggedStyle != 0 {
		return 0, unsafe("the list has an anchor or a tag")
	}
	lead := strings.Repeat(" ", list.Column-1) + "-"
	for line := list.Content[index].Line - 1; line >= list.Line-1; line-- {
		if rest, ok := strings.CutPrefix(e.text.line(line), lead); ok && (rest == "" || strings.ContainsAny(rest[:1], " \t")) {
			return line, nil
		}
	}
	return 0, unsafe("its lists are written in an unusual way")
}

// after is the first line, from 0, of what follows a value in the document.
func (e *editor) after(p *place) int {
	for level := len(p.parents) - 1; level >= 0; level-- {
		if next := p.keys[level] + 2; next < len(p.parents[level].Content) {
			return p.parents[level].Content[next].Line - 1
		}
	}
	return e.documentEnd()
}

// documentEnd is the line, from 0, that ends the document.
func (e *editor) documentEnd() int {
	for line := e.root.Line; line < e.text.lines(); line++ {
		if l := e.text.line(line); strings.HasPrefix(l, "---") || strings.HasPrefix(l, "...") {
			return line
		}
	}
	return e.text.lines()
}

// blockEnd is the line behind what begins on line first: before next, without blank lines, and without comments that are
// indented no deeper.
func (e *editor) blockEnd(first, next, indent int) int {
	end := next
	for ; end > first+1; end-- {
		line := e.text.line(end - 1)
		if i, _, ok := comment(line); !isBlank(line) && (!ok || i > indent) {
			break
		}
	}
	return end
}

// ownComments is the first line of the comments right above an item, or the item's own line. An item that is commented out
// belongs to nobody.
func (e *editor) ownComments(list *yaml.Node, dash, indent int) int {
	first := dash
	for ; first > list.Line-1 || first > 0 && dash == list.Line-1; first-- {
		i, says, ok := comment(e.text.line(first - 1))
		if !ok || i > indent || strings.HasPrefix(says, "- ") {
			break
		}
	}
	return first
}

// create makes a value that does not exist, with all objects around it that do not exist either.
func (e *editor) create(p *place, value *yaml.Node) ([]splice, error) {
	rest := p.rest
	if p.value.Kind == yaml.ScalarNode && p.value.ShortTag() == "!!null" {
		return e.fill(p, wrap(rest, value))
	}
	if len(rest) == 0 || p.value.Kind != yaml.MappingNode {
		return nil, unsafe(fmt.Sprintf("line %d is not what a setup has there", p.value.Line))
	}
	object, entry := p.value, wrap(rest, value)
	next := e.nextKey(object, rest[0], len(p.parents))
	if isFlow(object) {
		return e.createInFlow(object, entry, next)
	}
	lines, err := e.lines(entry, object.Column-1)
	if err != nil {
		return nil, err
	}
	if next == 0 {
		return []splice{e.text.insertLines(e.firstLine(p), lines)}, nil
	}
	prev := &place{parents: append(p.parents, object), keys: append(p.keys, next-2)}
	line := e.blockEnd(prev.key().Line-1, e.after(prev), object.Column-1)
	return []splice{e.text.insertLines(line, lines)}, nil
}

// firstLine is the line of an object's first key, with the comments above it where the object is the whole document.
func (e *editor) firstLine(p *place) int {
	if len(p.parents) == 0 {
		return p.value.Line - 1
	}
	return p.key().Line
}

// fill gives a key a value that has none.
func (e *editor) fill(p *place, value *yaml.Node) ([]splice, error) {
	n, object := p.value, p.parents[len(p.parents)-1]
	from := e.text.offset(n)
	if n.Value == "" && value.Kind != yaml.ScalarNode && !isFlow(object) {
		indent := object.Column - 1
		if value.Kind == yaml.MappingNode {
			indent += e.step
		}
		lines, err := e.lines(value, indent)
		if err != nil {
			return nil, err
		}
		return []splice{e.text.insertLines(p.key().Line, lines)}, nil
	}
	rendered, err := e.inFlow(value)
	if err != nil {
		return nil, err
	}
	if n.Value == "" {
		rendered = " " + rendered
	}
	return []splice{{from, from + len(n.Value), rendered}}, nil
}

// nextKey is the position of the first key of an object that comes later in the type's order, so that a new one goes in front
// of it; of an object that is not spec, the end.
func (e *editor) nextKey(object *yaml.Node, key string, depth int) int {
	if depth != 1 {
		return len(object.Content)
	}
	var order []string
	for f := range reflect.TypeFor[v1alpha1.Spec]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		order = append(order, name)
	}
	at := 0
	for i := 0; i+1 < len(object.Content); i += 2 {
		if slices.Index(order, object.Content[i].Value) < slices.Index(order, key) {
			at = i + 2
		}
	}
	return at
}

// wrap puts a value into objects, one for each key.
func wrap(keys []string, value *yaml.Node) *yaml.Node {
	for _, key := range slices.Backward(keys) {
		value = &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{{Kind: yaml.ScalarNode, Value: key}, value}}
	}
	return value
}

// lines renders a node as a block.
func (e *editor) lines(n *yaml.Node, indent int) ([]string, error) {
	lines, err := e.render(n, e.indentsLists())
	for i := range lines {
		lines[i] = strings.Repeat(" ", indent) + lines[i]
	}
	return lines, err
}

// render is a node as text, by lines.
func (e *editor) render(n *yaml.Node, indentLists bool) ([]string, error) {
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(e.step)
	if !indentLists {
		enc.CompactSeqIndent()
	}
	if err := enc.Encode(n); err != nil {
		return nil, err
	}
	if err := enc.Close(); err != nil {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n"), nil
}

// indentsLists tells whether the lists of spec are indented under their keys.
func (e *editor) indentsLists() bool {
	spec := lookup(e.root, "spec")
	if spec == nil {
		return false
	}
	for i := 1; i < len(spec.Content); i += 2 {
		if v := spec.Content[i]; v.Kind == yaml.SequenceNode && !isFlow(v) && v.Anchor == "" {
			return v.Column > spec.Column
		}
	}
	return false
}
