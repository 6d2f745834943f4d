// Package importer makes a setup file from the manifests of kcp-operator or from the values of kcp's helm chart. A
// table for each kind says what becomes of every field: the field of the setup file, or why there is none and what to
// do instead. Fields without a row are reported as unknown, so nothing is dropped silently.
package importer

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/file/setup"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// Source is a file of the input.
type Source struct {
	// Name is its name in messages.
	Name string
	// Data is YAML or JSON, with any number of documents.
	Data []byte
}

// Options are the settings that the input does not have.
type Options struct {
	// Name is the name of the setup. Default: the name of the RootShard with the suffix -kcp, or kcp for a chart.
	Name string
	// Namespace is the namespace of objects without a namespace.
	Namespace string
	// Context and Kubeconfig select the cluster of the setup.
	Context, Kubeconfig string
	// Live input was read from a cluster: it has no positions.
	Live bool
}

// Result is a setup file.
type Result struct {
	// Text is the setup file with comments. It is valid.
	Text []byte
	// File is the parsed text.
	File *setup.File
	// Findings are the fields of the input that are not in the setup file, or not with the same meaning, by position.
	Findings []Finding
}

// Import makes a setup file from all documents of the sources, which describe one installation. If that is not
// possible, the error is a *clierr.Error with code BadInput that wraps setup.Errors, all problems of the input, and the
// result has only the findings, so that both can be corrected at once.
func Import(sources []Source, options Options) (*Result, error) {
	r := &reader{options: options}
	r.read(sources)
	if len(r.objects)+len(r.values)+len(r.others)+len(r.problems) == 0 {
		return nil, clierr.New(clierr.BadInput,
			"name files with objects of kcp-operator, or with values of the chart kcp",
			"the input has nothing to import")
	}
	r.refuseMixtures()
	a := &assembly{reader: r, setup: &v1alpha1.Setup{APIVersion: v1alpha1.APIVersion, Kind: v1alpha1.KindSetup}}
	result := &Result{Findings: a.findings(sources)}
	if len(r.values)+len(r.operator())+len(r.problems) == 0 {
		return result, clierr.New(clierr.BadInput, "add the file with the RootShard, or with the values",
			"the input has no objects of kcp-operator, and no values of the chart kcp")
	}
	err := a.write(result)
	result.Findings = a.findings(sources)
	if problems, ok := asErrors(err); ok {
		return result, a.refused(sources, problems)
	}
	return result, err
}

// write writes and parses the setup file. Its error is all problems of the input and, if the input has what a setup
// starts with, of the setup file.
func (a *assembly) write(result *Result) error {
	assembled := a.assemble()
	problems := a.allProblems()
	if !assembled {
		return problems
	}
	text, err := a.text()
	if err != nil {
		return err
	}
	f, err := setup.Parse("kcp.yaml", text)
	if err != nil {
		problems = a.further(problems, a.origins(err))
	}
	if len(problems) > 0 {
		return problems
	}
	topology.Build(f.Setup)
	result.Text = text
	result.File = f
	return nil
}

// assemble makes the setup. It reports whether the input has what a setup starts with.
func (a *assembly) assemble() bool {
	r := a.reader
	values := r.mapValues()
	switch {
	case values != nil && len(r.operator()) > 0:
		return false
	case values != nil:
		a.chart(values)
	case len(r.of(kindRootShard)) == 0:
		return false
	default:
		a.operator()
	}
	return true
}

// further adds the problems of the setup file, except where the input has a problem that they may follow from.
func (a *assembly) further(problems, more setup.Errors) setup.Errors {
	known := slices.Clone(problems)
	for _, p := range more {
		at := func(k setup.Problem) bool { return k.File == p.File && k.Line == p.Line && k.Column == p.Column }
		if !slices.ContainsFunc(known, at) {
			problems = append(problems, p)
		}
	}
	return problems
}

// refused returns problems as one error, by position.
func (a *assembly) refused(sources []Source, problems setup.Errors) error {
	order := fileOrder(sources)
	slices.SortStableFunc(problems, func(p, q setup.Problem) int {
		return cmp.Or(cmp.Compare(order[p.File], order[q.File]), cmp.Compare(p.Line, q.Line),
			cmp.Compare(p.Column, q.Column))
	})
	return &clierr.Error{Err: slices.Compact(problems), Code: clierr.BadInput}
}

// fileOrder returns the positions of the sources by name.
func fileOrder(sources []Source) map[string]int {
	order := map[string]int{}
	for i, s := range sources {
		order[s.Name] = i
	}
	return order
}

func (a *assembly) allProblems() setup.Errors {
	out := slices.Clone(a.reader.problems)
	for _, o := range a.all() {
		out = append(out, o.problems...)
	}
	return out
}

// all returns all objects of the input.
func (a *assembly) all() []*object {
	var out []*object
	for _, o := range a.reader.values {
		out = append(out, o, o.proxy, o.members)
	}
	return slices.Concat(a.reader.objects, a.reader.others, out)
}

// findings returns the findings of all objects, by position.
func (a *assembly) findings(sources []Source) []Finding {
	var out []Finding
	for _, o := range a.all() {
		out = append(out, o.findings...)
	}
	if a.reader.options.Live {
		for i := range out {
			out[i].Line, out[i].Column = 0, 0
		}
	}
	order := fileOrder(sources)
	slices.SortStableFunc(out, func(f, g Finding) int {
		return cmp.Or(cmp.Compare(order[f.File], order[g.File]), cmp.Compare(f.Line, g.Line),
			cmp.Compare(f.Column, g.Column))
	})
	return out
}

// origins moves the problems of the setup file to the fields of the input that they come from.
func (a *assembly) origins(err error) setup.Errors {
	problems, ok := asErrors(err)
	if !ok {
		return setup.Errors{{Message: err.Error()}}
	}
	var out setup.Errors
	for _, p := range problems {
		file, line, column := a.origin(p.Path)
		if p.Path == "metadata.name" && p.Hint == "" {
			p.Hint = "choose another name for the setup with --name"
		}
		if strings.HasSuffix(p.Path, ".serving.ca") {
			p.Hint = "spec.certificateTemplates.server.spec.issuerRef of the FrontProxy names another authority: add a Secret " +
				"with its certificate to the input, and name the Secret in spec.caBundleSecretRef"
		}
		out = append(out, setup.Problem{
			File: file, Line: line, Column: column,
			Message: fmt.Sprintf("the setup file would be invalid: %s: %s", p.Path, p.Message), Hint: p.Hint,
		})
	}
	return out
}
