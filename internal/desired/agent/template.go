package agent

import (
	_ "embed"
	"regexp"
	"slices"
	"strings"
	gotemplate "text/template"
	"text/template/parse"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// functionNames are the functions of the agent's templates, one per line (internal/tools/agent).
//
//go:embed functions.txt
var functionNames string

// data are the fields that a template can use. The agent fails at run time on others.
type data []string

// The fields of each kind of template (api-syncagent: internal/sync/templating,
// internal/mutation/transformer/template.go).
func namingData() data   { return data{"Object", "ClusterName", "ClusterPath"} }
func locationData() data { return data{"Side", "Object", "ClusterName", "ClusterPath"} }
func labelData() data    { return data{"LocalObject", "RemoteObject", "ClusterName", "ClusterPath"} }
func rewriteData() data  { return append(labelData(), "Value", "RelatedObject") }
func mutationData() data { return data{"Value", "LocalObject", "RemoteObject"} }

// template parses a template with the functions of the agent, and checks the fields that it uses.
func (v *validator) template(p *field.Path, text string, known data) {
	stub := func(...any) (any, error) { return nil, nil }
	funcs := gotemplate.FuncMap{}
	for _, name := range strings.Fields(functionNames) {
		funcs[name] = stub
	}
	if slices.Contains(known, "Value") && !slices.Contains(known, "ClusterName") {
		for _, name := range ownFunctions() {
			delete(funcs, name)
		}
	}
	t, err := gotemplate.New("template").Funcs(funcs).Parse(text)
	if err != nil {
		v.invalid(p, text, "is not a template that the api-syncagent can use: %s", reason(err))
		return
	}
	if t.Tree == nil { // an empty text
		return
	}
	for _, name := range fieldsOf(t.Root, true) {
		if !slices.Contains(known, name) {
			v.invalid(p, text, "this template has no .%s, known: .%s", name, strings.Join(known, ", ."))
		}
	}
}

// ownFunctions returns the functions that templates of names have, but templates of mutations do not.
func ownFunctions() []string { return []string{"sha3sum", "sha3short", "shortHash"} }

// reason is the text of an error of a template without the template's name.
func reason(err error) string {
	return regexp.MustCompile(`^template: template:\d+: `).ReplaceAllString(err.Error(), "")
}

// fieldsOf returns the names of the fields of a template's data that a node uses. dot reports whether the dot is the
// data: with and range change it.
func fieldsOf(n parse.Node, dot bool) []string {
	var out []string
	add := func(dot bool, nodes ...parse.Node) {
		for _, inner := range nodes {
			out = append(out, fieldsOf(inner, dot)...)
		}
	}
	branch := func(b *parse.BranchNode, inside bool) {
		add(dot, b.Pipe)
		add(inside, b.List)
		if b.ElseList != nil {
			add(dot, b.ElseList)
		}
	}
	switch n := n.(type) {
	case *parse.ListNode:
		add(dot, n.Nodes...)
	case *parse.ActionNode:
		add(dot, n.Pipe)
	case *parse.PipeNode:
		for _, c := range n.Cmds {
			add(dot, c.Args...)
		}
	case *parse.ChainNode:
		add(dot, n.Node)
	case *parse.IfNode:
		branch(&n.BranchNode, dot)
	case *parse.WithNode:
		branch(&n.BranchNode, false)
	case *parse.RangeNode:
		branch(&n.BranchNode, false)
	case *parse.FieldNode:
		if dot {
			out = append(out, n.Ident[0])
		}
	case *parse.VariableNode:
		if n.Ident[0] == "$" && len(n.Ident) > 1 {
			out = append(out, n.Ident[1])
		}
	}
	return slices.Compact(out)
}

// pattern requires a regular expression of Go.
func (v *validator) pattern(p *field.Path, e *expression) {
	if e == nil {
		return
	}
	if _, err := regexp.Compile(e.Pattern); err != nil {
		v.invalid(p.Child("pattern"), e.Pattern, "%s", strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	}
}
