package importer

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/kcpctl/kcpctl/internal/file/setup"
)

// width is the maximum length of a line of a comment, without its indent.
const width = 100

// text returns the setup file with comments: what is not mapped stands at the component that it belongs to.
func (a *assembly) text() ([]byte, error) {
	data, err := setup.Marshal(a.setup)
	if err != nil {
		return nil, err
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, fmt.Errorf("read the setup: %w", err)
	}
	root := doc.Content[0]
	head := []string{"Imported by kcpctl import. Review it, then run: kcpctl up --dry-run"}
	for _, o := range a.all() {
		lines := o.remarks()
		switch n := find(root, o.prefix); {
		case o.source == chart: // its values are about all components
			head = append(head, lines...)
		case o.prefix != "" && n != nil:
			comment(n, lines)
		default:
			for _, l := range lines {
				head = append(head, o.String()+": "+l)
			}
		}
		for _, to := range slices.Sorted(maps.Keys(o.comments)) {
			if n := find(root, o.absolute(to)); to != "" && n != nil {
				comment(n, o.comments[to])
			}
		}
	}
	comment(root.Content[0], head)
	return setup.Encode(&doc)
}

// remarks are the comments on the component, and the findings that require action.
func (o *object) remarks() []string {
	out := slices.Clone(o.comments[""])
	for _, kind := range Kinds() {
		for _, f := range o.findings {
			if f.Kind == kind && kind != NotNeeded {
				out = append(out, strings.ToUpper(string(kind[:1]))+string(kind[1:])+": "+f.message())
			}
		}
	}
	return out
}

func comment(n *yaml.Node, lines []string) {
	for _, l := range lines {
		for _, part := range wrap(l) {
			n.HeadComment = strings.TrimPrefix(n.HeadComment+"\n# "+part, "\n")
		}
	}
}

// wrap breaks a text into lines. Lines after the first are indented.
func wrap(s string) []string {
	var out []string
	line := ""
	for _, word := range strings.Fields(s) {
		switch {
		case line == "":
			line = word
		case len(line)+1+len(word) > width:
			out, line = append(out, line), "  "+word
		default:
			line += " " + word
		}
	}
	return append(out, line)
}

// find returns the node above which a comment on a field belongs: its key, or the item of a list. It returns nil if the
// field does not exist.
func find(n *yaml.Node, path string) *yaml.Node {
	at := n
	for segment := range strings.SplitSeq(strings.ReplaceAll(path, "[", ".["), ".") {
		if index, ok := strings.CutPrefix(segment, "["); ok {
			i, err := strconv.Atoi(strings.TrimSuffix(index, "]"))
			if err != nil || n.Kind != yaml.SequenceNode || i >= len(n.Content) {
				return nil
			}
			n = n.Content[i]
			at = n
			continue
		}
		if at, n = entry(n, segment); n == nil {
			return nil
		}
	}
	return at
}

// entry returns a key of an object and its value, or nil.
func entry(n *yaml.Node, name string) (key, value *yaml.Node) {
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i], n.Content[i+1]
		}
	}
	return nil, nil
}
