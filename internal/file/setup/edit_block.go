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

// addToBlock appends an item to a block list, in the style of the last item.
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

// removeFromBlock removes an item and its comments from a block list. If the list is empty then, it also removes the
// key.
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

// removeList removes the only item of a list. It also removes the key, unless the key has comments or is the only one.
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
		return nil, unsafe("the style of its keys is not supported")
	}
	at := e.text.offset(key) + len(key.Value) + colon + 1
	return []splice{{at, at, " []"}, e.text.removeLines(first, end)}, nil
}

// dash returns the line, from 0, on which an item of a block list starts.
func (e *editor) dash(list *yaml.Node, index int) (int, error) {
	if list.Anchor != "" || list.Style&yaml.TaggedStyle != 0 {
		return 0, unsafe("the list has an anchor or a tag")
	}
	lead := strings.Repeat(" ", list.Column-1) + "-"
	for line := list.Content[index].Line - 1; line >= list.Line-1; line-- {
		if rest, ok := strings.CutPrefix(e.text.line(line), lead); ok &&
			(rest == "" || strings.ContainsAny(rest[:1], " \t")) {
			return line, nil
		}
	}
	return 0, unsafe("the style of its lists is not supported")
}

// after returns the first line, from 0, after a value and its parents.
func (e *editor) after(p *place) int {
	for level, parent := range slices.Backward(p.parents) {
		next := p.keys[level] + 2
		if parent.Kind == yaml.SequenceNode {
			next--
		}
		if next < len(parent.Content) {
			return parent.Content[next].Line - 1
		}
	}
	return e.documentEnd()
}

// documentEnd returns the line, from 0, that ends the document.
func (e *editor) documentEnd() int {
	for line := e.root.Line; line < e.text.lines(); line++ {
		if l := e.text.line(line); strings.HasPrefix(l, "---") || strings.HasPrefix(l, "...") {
			return line
		}
	}
	return e.text.lines()
}

// blockEnd returns the line after the block that starts on line first. The block ends before next, without trailing
// blank lines and without trailing comments that are not indented deeper than the block.
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

// ownComments returns the first line of the comments directly above an item, or the line of the item. A commented-out
// item, with the lines of it that are indented deeper than its dash, is not part of them.
func (e *editor) ownComments(list *yaml.Node, dash, indent int) int {
	first := dash
	for ; first > list.Line-1 || first > 0 && dash == list.Line-1; first-- {
		if i, _, ok := comment(e.text.line(first - 1)); !ok || i > indent {
			break
		}
	}
	for line, item := first, -1; line < dash; line++ { // item is the column of the dash of a commented-out item
		_, content, _ := comment(e.text.line(line))
		at := strings.LastIndex(e.text.line(line), content)
		if at <= item {
			item = -1
		}
		if item < 0 && strings.HasPrefix(content, "- ") {
			item = at
		}
		if item >= 0 {
			first = line + 1
		}
	}
	return first
}

// create adds a value that does not exist, with its parents.
func (e *editor) create(p *place, value *yaml.Node) ([]splice, error) {
	rest := p.rest
	if p.value.Kind == yaml.ScalarNode && p.value.ShortTag() == "!!null" {
		return e.fill(p, wrap(rest, value))
	}
	if len(rest) == 0 || p.value.Kind != yaml.MappingNode {
		return nil, unsafe(fmt.Sprintf("line %d is not an object", p.value.Line))
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

func (e *editor) firstLine(p *place) int {
	if len(p.parents) == 0 {
		return p.value.Line - 1
	}
	return p.key().Line
}

// fill sets the value of a key without a value.
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

// nextKey returns the index at which to insert a key into spec: after the keys that precede it in the order of the API
// type. For other objects it returns the end.
func (e *editor) nextKey(object *yaml.Node, key string, depth int) int {
	if depth != 1 {
		return len(object.Content)
	}
	var order []string
	for f := range reflect.TypeFor[v1alpha1.Spec]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		order = append(order, name)
	}
	if !slices.Contains(order, key) {
		return len(object.Content)
	}
	at := 0
	for i := 0; i+1 < len(object.Content); i += 2 {
		if slices.Index(order, object.Content[i].Value) < slices.Index(order, key) {
			at = i + 2
		}
	}
	return at
}

// wrap nests a value in objects, one for each key.
func wrap(keys []string, value *yaml.Node) *yaml.Node {
	for _, key := range slices.Backward(keys) {
		value = &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{{Kind: yaml.ScalarNode, Value: key}, value}}
	}
	return value
}

func (e *editor) lines(n *yaml.Node, indent int) ([]string, error) {
	lines, err := e.render(n, e.indentsLists())
	for i := range lines {
		lines[i] = strings.Repeat(" ", indent) + lines[i]
	}
	return lines, err
}

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

// indentsLists reports whether the lists of spec are indented under their keys.
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
