package setup

import (
	"strings"

	"go.yaml.in/yaml/v3"
)

const oddFlow = unsafe("the style of its brackets is not supported")

// addToFlow appends an item to a flow list: on the same line, or on its own line if the last item has one.
func (e *editor) addToFlow(p *place, item *yaml.Node) ([]splice, error) {
	rendered, err := e.inFlow(item)
	if err != nil {
		return nil, err
	}
	open := e.text.offset(p.value)
	parts, end, ok := e.text.flow(open)
	if !ok || len(parts) != len(p.value.Content) {
		return nil, oddFlow
	}
	if len(parts) == 0 {
		return []splice{{open + 1, open + 1, rendered}}, nil
	}
	last := parts[len(parts)-1]
	comma := e.comma(last.to)
	if lead, ok := e.startsLine(last.from); ok && e.text.lineEnd(last.to) < end {
		at := e.text.lineEnd(last.to)
		if comma > 0 {
			return []splice{{at, at, e.text.newline + lead + rendered + ","}}, nil
		}
		return []splice{{last.to, last.to, ","}, {at, at, e.text.newline + lead + rendered}}, nil
	}
	if comma > 0 {
		return []splice{{comma, comma, " " + rendered + ","}}, nil
	}
	return []splice{{last.to, last.to, ", " + rendered}}, nil
}

// removeFromFlow removes an item and its comma from a flow list, and its line if it has its own.
func (e *editor) removeFromFlow(p *place, index int) ([]splice, error) {
	parts, _, ok := e.text.flow(e.text.offset(p.value))
	if !ok || len(parts) != len(p.value.Content) {
		return nil, oddFlow
	}
	part, isLast := parts[index], index == len(parts)-1
	end := max(part.to, e.comma(part.to))
	if _, alone := e.startsLine(part.from); alone && e.endsLine(end) {
		first, last := e.lineOf(part.from), e.lineOf(end-1)+1
		for first > 0 {
			if _, _, ok := comment(e.text.line(first - 1)); !ok {
				break
			}
			first--
		}
		return []splice{e.text.removeLines(first, last)}, nil
	}
	if isLast && index > 0 && e.lineOf(parts[index-1].to) == e.lineOf(part.from) {
		return []splice{{parts[index-1].to, part.to, ""}}, nil
	}
	for !isLast && end < len(e.text.data) && e.text.data[end] == ' ' {
		end++
	}
	return []splice{{part.from, end, ""}}, nil
}

// createInFlow inserts a key and its value into a flow object, before the key at an index.
func (e *editor) createInFlow(object, entry *yaml.Node, next int) ([]splice, error) {
	rendered, err := e.inFlow(entry)
	if err != nil {
		return nil, err
	}
	rendered = strings.TrimSuffix(strings.TrimPrefix(rendered, "{"), "}")
	open := e.text.offset(object)
	parts, _, ok := e.text.flow(open)
	switch {
	case !ok || len(parts) != len(object.Content)/2:
		return nil, oddFlow
	case len(parts) == 0:
		return []splice{{open + 1, open + 1, rendered}}, nil
	case next < len(object.Content):
		at := e.text.offset(object.Content[next])
		return []splice{{at, at, rendered + ", "}}, nil
	}
	at := parts[len(parts)-1].to
	return []splice{{at, at, ", " + rendered}}, nil
}

// comma returns the end of the comma that follows an offset, or 0.
func (e *editor) comma(at int) int {
	for ; at < len(e.text.data) && strings.IndexByte(" \t\r\n", e.text.data[at]) >= 0; at++ {
	}
	if at < len(e.text.data) && e.text.data[at] == ',' {
		return at + 1
	}
	return 0
}

// startsLine returns the text between the start of the line and an offset, and reports whether it is blank.
func (e *editor) startsLine(at int) (lead string, ok bool) {
	lead = string(e.text.data[e.text.starts[e.lineOf(at)]:at])
	return lead, isBlank(lead)
}

// endsLine reports whether only blanks and a comment follow an offset on its line.
func (e *editor) endsLine(at int) bool {
	rest := string(e.text.data[at:e.text.lineEnd(at)])
	return isBlank(rest) || strings.HasPrefix(strings.TrimLeft(rest, " \t"), "#")
}

// lineOf returns the line, from 0, of an offset.
func (e *editor) lineOf(at int) int {
	line := 0
	for line+1 < e.text.lines() && e.text.starts[line+1] <= at {
		line++
	}
	return line
}

// inFlow encodes a node on one line.
func (e *editor) inFlow(n *yaml.Node) (string, error) {
	n.Style |= yaml.FlowStyle
	if n.Kind == yaml.ScalarNode {
		n.Style = 0
	}
	lines, err := e.render(n, false)
	return strings.Join(lines, " "), err
}
