package setup

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/agent"
)

// manifest is a PublishedResource in a separate file.
type manifest struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec v1alpha1.Object `json:"spec"`
}

// publishedAt is where a PublishedResource comes from: a separate file, or the setup file.
type publishedAt struct {
	agent.Source
	// file is empty for the setup file.
	file      string
	positions positions
}

// publisher reads the files that a setup refers to, and checks its published resources.
type publisher struct {
	decoder *decoder
	setup   *v1alpha1.Setup
	files   Files
	// problems and notes have their file if it is not the setup file.
	problems, notes Errors
	// hint is where to read about the problems of published resources. It is empty if there are none.
	hint string
}

// published reads the files with published resources, checks all published resources, and replaces the files in the
// setup with their content.
func (p *publisher) published() error {
	names := map[string]string{}
	publishers := map[string]string{}
	apis := map[string]string{}
	for i := range p.setup.Spec.Agents {
		a := &p.setup.Spec.Agents[i]
		sources := p.sources(a, field.NewPath("spec", "agents").Index(i).Child("publishedResources"))
		if err := p.check(a, sources); err != nil {
			return err
		}
		a.PublishedResources = nil
		for _, s := range sources {
			a.PublishedResources = append(a.PublishedResources, s.PublishedResource)
			p.uniqueOnCluster(a, s, names)
			if p.onceInWorkspace(a, s, apis) {
				p.oncePerConsumer(a, s, publishers)
			}
		}
	}
	return nil
}

// sources returns the PublishedResources of an agent, without those that cannot be decoded.
func (p *publisher) sources(a *v1alpha1.Agent, at *field.Path) []publishedAt {
	var out []publishedAt
	for i, r := range a.PublishedResources {
		switch path := at.Index(i); {
		case r.File != "" && r.Name == "" && r.Spec == nil:
			out = append(out, p.read(r, path)...)
		case r.File == "" && r.Name != "" && r.Spec != nil:
			out = append(out, publishedAt{Source: agent.Source{PublishedResource: r, Path: path,
				Name: path.Child("name")}, positions: p.decoder.positions})
		}
	}
	return out
}

// read returns the PublishedResources of all files that match the pattern of r.
func (p *publisher) read(r v1alpha1.PublishedResource, at *field.Path) []publishedAt {
	var out []publishedAt
	for _, f := range p.contents(r.File, at.Child("file")) {
		out = append(out, p.manifests(f.name, f.data)...)
	}
	if r.Plural != "" && len(out) > 1 {
		p.problem(at.Child("file"), "matches %d PublishedResources: plural is that of one", len(out))
	}
	for i := range out {
		out[i].Plural = r.Plural
	}
	return out
}

// problem adds a problem of a field of the setup file.
func (p *publisher) problem(at *field.Path, format string, args ...any) {
	pos, _ := p.decoder.positions.of(at.String())
	p.problems = append(p.problems, Problem{Line: pos.line, Column: pos.column, Path: at.String(),
		Message: fmt.Sprintf(format, args...)})
}

// fileContent is a file that the setup file refers to.
type fileContent struct {
	name string
	data []byte
}

// contents reads all files that match the pattern in a field.
func (p *publisher) contents(pattern string, at *field.Path) (out []fileContent) {
	if p.files == nil {
		p.problem(at, "files cannot be read here: write the content into the setup file")
		return nil
	}
	paths, err := p.files.Match(pattern)
	if err != nil || len(paths) == 0 {
		p.problem(at, "no file matches %q, relative to the setup file", pattern)
	}
	for _, path := range paths {
		data, err := p.files.Read(path)
		if err != nil {
			p.problem(at, "cannot be read: %v", err)
			continue
		}
		out = append(out, fileContent{path, data})
	}
	return out
}

// manifests decodes the PublishedResources of a file.
func (p *publisher) manifests(file string, data []byte) []publishedAt {
	docs, problem := Objects(data)
	if problem != nil {
		problem.File = file
		p.problems = append(p.problems, *problem)
		return nil
	}
	if len(docs) == 0 {
		p.problems = append(p.problems, Problem{File: file, Line: 1, Column: 1,
			Message: "the file is empty: it must have manifests of kind " + agent.Kind})
	}
	var out []publishedAt
	for _, doc := range docs {
		d := newDecoder()
		if r := d.manifest(written(doc)); r != nil {
			p.notes = append(p.notes, dropped(doc, file)...)
			out = append(out, publishedAt{
				Source: agent.Source{PublishedResource: *r, Name: metadataName()}, file: file, positions: d.positions,
			})
		}
		for _, problem := range d.problems {
			problem.File = file
			p.problems = append(p.problems, problem)
		}
	}
	return out
}

// manifest decodes a document with a PublishedResource. It returns nil if there are problems.
func (d *decoder) manifest(doc *yaml.Node) *v1alpha1.PublishedResource {
	if !d.hasKind(doc, agent.APIVersion, agent.Kind) {
		return nil
	}
	tree, ok := d.value(doc, reflect.TypeFor[manifest](), nil)
	if !ok {
		return nil
	}
	object, _ := tree.(map[string]any)
	metadata, _ := object["metadata"].(map[string]any)
	name, _ := metadata["name"].(string)
	spec, _ := object["spec"].(map[string]any)
	switch {
	case d.undecoded(metadataName().String()):
	case name == "":
		d.report(metadataName(), doc, "required", "")
	case len(validation.IsDNS1123Subdomain(name)) > 0:
		d.report(metadataName(), d.node(metadataName()), fmt.Sprintf("invalid value %q: %s", name, subdomainFormat), "")
	}
	if spec == nil && !d.undecoded("spec") {
		d.report(field.NewPath("spec"), doc, "required: the spec of the PublishedResource", "")
	}
	if name == "" || spec == nil {
		return nil
	}
	return &v1alpha1.PublishedResource{Name: name, Spec: spec}
}

// hasKind reports whether a document is an object of a kind, and otherwise the problem.
func (d *decoder) hasKind(doc *yaml.Node, version, kind string) bool {
	d.note(nil, doc, doc)
	for _, want := range []struct{ key, value string }{{"apiVersion", version}, {"kind", kind}} {
		n := lookup(doc, want.key)
		if n == nil {
			d.report(field.NewPath(want.key), doc, "required: must be "+want.value, "")
			return false
		}
		if n.Value != want.value {
			d.report(field.NewPath(want.key), n, mustBe(want.value, n), "")
			return false
		}
	}
	return true
}

// undecoded reports whether a field could not be decoded.
func (d *decoder) undecoded(path string) bool {
	return slices.ContainsFunc(d.failed, func(failed string) bool { return within(path, failed) })
}

// node returns a node at the position of a field, for messages.
func (d *decoder) node(p *field.Path) *yaml.Node {
	pos, _ := d.positions.of(p.String())
	return &yaml.Node{Line: pos.line, Column: pos.column}
}

// check checks the PublishedResources of an agent.
func (p *publisher) check(a *v1alpha1.Agent, sources []publishedAt) error {
	all := make([]agent.Source, len(sources))
	for i, s := range sources {
		all[i] = s.Source
	}
	found, err := agent.Validate(a.Version, all, agent.Reserved(p.setup, a)...)
	if err != nil {
		return err
	}
	for _, f := range found {
		problem := sources[f.Source].problem(f.Error)
		switch {
		case f.Warning:
			p.notes = append(p.notes, problem)
		case sources[f.Source].file != "" || !p.decoder.follows(f.Error):
			p.problems, p.hint = append(p.problems,
				problem), "to read what the api-syncagent accepts, run kcpctl explain KCP041"
		}
	}
	return nil
}

// serverOf identifies the API server of a cluster, or the workspace that takes its place: several clusters can be
// namespaces of one.
func (p *publisher) serverOf(name string) string {
	for _, c := range p.setup.Spec.Clusters {
		if c.Name == name {
			return strings.Join([]string{c.Kubeconfig, c.Context, c.Workspace}, "/")
		}
	}
	return name
}

// uniqueOnCluster requires that no other agent on the cluster has a PublishedResource of the name: they have no
// namespace.
func (p *publisher) uniqueOnCluster(a *v1alpha1.Agent, s publishedAt, names map[string]string) {
	key := p.serverOf(a.Cluster) + "/" + s.PublishedResource.Name
	if other, taken := names[key]; taken && other != a.Name {
		p.problems = append(p.problems, s.problem(field.Invalid(s.Name, s.PublishedResource.Name,
			"agent "+other+" has a PublishedResource of this name on the same cluster")))
		return
	}
	names[key] = a.Name
}

// onceInWorkspace reports whether no other agent publishes a resource of the same name to the same workspace: kcp does
// not bind the second APIExport there (kcp: pkg/reconciler/apis/apibinding/conflict_checker.go).
func (p *publisher) onceInWorkspace(a *v1alpha1.Agent, s publishedAt, apis map[string]string) bool {
	once := true
	for _, k := range s.kinds() {
		for _, consumer := range a.Bind {
			key := consumer + "/" + k.Projected.String()
			if other, taken := apis[key]; taken && other != a.Name && k.Kind != "" {
				once = false
				p.problems = append(p.problems, s.problem(field.Invalid(s.Name, s.PublishedResource.Name, fmt.Sprintf(
					"agent %s publishes %s to %s too, and kcp serves a resource of a workspace once: bind other "+
						"workspaces, or give it another projection.group", other, k.Projected, consumer))))
				continue
			}
			apis[key] = a.Name
		}
	}
	return once
}

// oncePerConsumer notes if two agents of a cluster publish a kind to the same workspace. Agents find copies by the
// logical cluster, the namespace and the name of the object, and not by its kind in kcp (api-syncagent:
// internal/sync/syncer.go, findLocalObject).
func (p *publisher) oncePerConsumer(a *v1alpha1.Agent, s publishedAt, publishers map[string]string) {
	for _, k := range agent.Kinds(&v1alpha1.Agent{PublishedResources: []v1alpha1.PublishedResource{s.PublishedResource}}) {
		for _, consumer := range a.Bind {
			key := p.serverOf(a.Cluster) + "/" + k.GroupKind.String() + "/" + consumer
			if other, taken := publishers[key]; taken && other != a.Name {
				p.notes = append(p.notes, s.problem(field.Forbidden(s.Name, fmt.Sprintf(
					"agent %s publishes %s to %s too: objects of both APIs with the same name and namespace would "+
						"have one copy", other, k.GroupKind, consumer))))
				continue
			}
			publishers[key] = a.Name
		}
	}
}

// kinds returns the kind of a PublishedResource.
func (s publishedAt) kinds() []agent.PublishedKind {
	one := []v1alpha1.PublishedResource{s.PublishedResource}
	return agent.Kinds(&v1alpha1.Agent{PublishedResources: one})
}

func (s publishedAt) problem(e *field.Error) Problem {
	pos, _ := s.positions.of(strings.TrimPrefix(e.Field, "<nil>"))
	return Problem{File: s.file, Line: pos.line, Column: pos.column, Path: e.Field, Message: message(e)}
}
