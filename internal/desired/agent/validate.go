package agent

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
)

// Source is a PublishedResource, and the paths of its fields in the file that it is in.
type Source struct {
	v1alpha1.PublishedResource
	// Path is the path of the PublishedResource. It is nil for a separate file.
	Path *field.Path
	// Name is the path of its name.
	Name *field.Path
}

// Problem is a problem of a PublishedResource.
type Problem struct {
	*field.Error
	// Source is the index of the PublishedResource.
	Source int
	// Warning: the agent accepts it, but may not do what is meant.
	Warning bool
}

// Child returns the path of a key of an object: .name, or [key] if the key does not look like the name of a field.
func Child(p *field.Path, key string) *field.Path {
	if strings.ContainsFunc(key, func(r rune) bool { return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') }) {
		return p.Key(key)
	}
	return p.Child(key)
}

// Validate returns all problems of the PublishedResources of one agent: settings that the agent refuses or fails on
// only at run time, and settings that it accepts but that are probably a mistake. The fields are compared with the CRD
// of the release NewestAgent; version is the version of the agent. Its objects must not be in the reserved namespaces.
func Validate(version string, all []Source, reserved ...string) ([]Problem, error) {
	s, err := specSchema()
	if err != nil {
		return nil, err
	}
	var out []Problem
	specs := make([]spec, len(all))
	for i, source := range all {
		specs[i] = decode(source.Spec)
		v := &validator{version: version, spec: &specs[i], path: source.Path.Child("spec"), reserved: reserved}
		v.conform(v.path, map[string]any(source.Spec), s)
		v.published()
		out = append(out, v.problems(i)...)
	}
	return append(out, together(all, specs)...), nil
}

// validator collects the problems of one PublishedResource.
type validator struct {
	version     string
	spec        *spec
	path        *field.Path
	reserved    []string
	errs, notes field.ErrorList
}

func (v *validator) invalid(p *field.Path, value any, format string, args ...any) {
	v.errs = append(v.errs, field.Invalid(p, value, fmt.Sprintf(format, args...)))
}

func (v *validator) required(p *field.Path, format string, args ...any) {
	v.errs = append(v.errs, field.Required(p, fmt.Sprintf(format, args...)))
}

func (v *validator) forbidden(p *field.Path, format string, args ...any) {
	v.errs = append(v.errs, field.Forbidden(p, fmt.Sprintf(format, args...)))
}

func (v *validator) warn(p *field.Path, format string, args ...any) {
	v.notes = append(v.notes, field.Forbidden(p, fmt.Sprintf(format, args...)))
}

func (v *validator) problems(source int) []Problem {
	var out []Problem
	for _, e := range v.errs {
		out = append(out, Problem{Error: e, Source: source})
	}
	for _, e := range v.notes {
		out = append(out, Problem{Error: e, Source: source, Warning: true})
	}
	return out
}

func (v *validator) published() {
	v.versions()
	v.naming()
	v.projection()
	v.selector(v.path.Child("filter", "namespace"), v.spec.Filter.Namespace)
	v.selector(v.path.Child("filter", "resource"), v.spec.Filter.Resource)
	v.mutations(v.path.Child("mutation"), v.spec.Mutation)
	v.related()
	v.tenancy()
}

// versions checks the selected versions, and how they are renamed (api-syncagent: internal/projection,
// stripUnwantedVersions and projectCRDVersions).
func (v *validator) versions() {
	r := v.spec.Resource
	p := v.spec.Projection
	at, projected := v.path.Child("resource"), v.path.Child("projection")
	if r.Version != "" && len(r.Versions) > 0 {
		v.forbidden(at.Child("version"), "must have only one of version and versions")
	}
	seen := map[string]bool{}
	for i, version := range r.Versions {
		if seen[version] {
			v.errs = append(v.errs, field.Duplicate(at.Child("versions").Index(i), version))
		}
		seen[version] = true
	}
	if p.Version != "" && len(r.Versions) > 1 {
		v.forbidden(projected.Child("version"),
			"the resource has %d versions: use projection.versions", len(r.Versions))
	}
	if p.Version != "" {
		return // versions has no effect then
	}
	selected := r.Versions
	names := map[string]string{}
	if r.Version != "" {
		selected = []string{r.Version}
	}
	for _, from := range sortedKeys(p.Versions) {
		if len(selected) > 0 && !slices.Contains(selected, from) {
			v.invalid(Child(projected.Child("versions"), from), p.Versions[from],
				"version %s is not selected, these are: %s", from, strings.Join(selected, ", "))
		}
	}
	for _, from := range union(selected, p.Versions) {
		to := from
		if p.Versions[from] != "" {
			to = p.Versions[from]
		}
		if other, taken := names[to]; taken {
			v.invalid(Child(projected.Child("versions"), renamed(p.Versions, from, other)), to,
				"versions %s and %s have the same name in kcp", other, from)
		}
		names[to] = from
	}
}

// renamed returns which of two versions is renamed.
func renamed(projection map[string]string, a, b string) string {
	if projection[a] != "" {
		return a
	}
	return b
}

func (v *validator) naming() {
	n, at := v.spec.Naming, v.path.Child("naming")
	unique := n.Namespace == "" // the default is the name of the logical cluster
	for _, f := range []struct{ key, text string }{{"name", n.Name}, {"namespace", n.Namespace}} {
		if strings.Contains(f.text, "{{") { // otherwise it has placeholders such as $remoteName
			v.template(at.Child(f.key), f.text, namingData())
		}
		for _, part := range []string{".ClusterName", ".ClusterPath", "$remoteClusterName"} {
			unique = unique || strings.Contains(f.text, part)
		}
	}
	if !unique {
		v.warn(at, "neither name nor namespace contains .ClusterName: objects of the same name in two workspaces "+
			"would become one object")
	}
	namespaced := v.spec.Projection.Scope != "Cluster"
	if namespaced && n.Name != "" && !strings.Contains(strings.ToLower(n.Name+n.Namespace), "namespace") {
		v.warn(at, "neither name nor namespace contains .Object.metadata.namespace: objects of the same name in two namespaces of a workspace "+
			"would become one object. If the kind has no namespaces, set projection.scope to Cluster")
	}
}

// projection checks the names of the resource in kcp.
func (v *validator) projection() {
	p, at := v.spec.Projection, v.path.Child("projection")
	if v.spec.Resource.Kind != "" && v.spec.Resource.APIGroup == "" && p.Group == "" {
		v.required(at.Child("group"), "kcp cannot serve resources of the core group through an APIExport")
	}
	if p.Group != "" && (len(validation.IsDNS1123Subdomain(p.Group)) > 0 || !strings.Contains(p.Group, ".")) {
		v.invalid(at.Child("group"), p.Group, "must be an API group such as widgets.example.com")
	}
	if p.Plural != "" && len(validation.IsDNS1035Label(p.Plural)) > 0 {
		v.invalid(at.Child("plural"), p.Plural, "must be the plural in lower case, such as widgets")
	}
}

// selector requires a valid label selector that selects something.
func (v *validator) selector(p *field.Path, s *metav1.LabelSelector) {
	if s == nil {
		return
	}
	if _, err := metav1.LabelSelectorAsSelector(s); err != nil {
		v.invalid(p, "…", "is not a label selector: %v", err)
	} else if len(s.MatchLabels)+len(s.MatchExpressions) == 0 {
		v.warn(p, "this selector has neither matchLabels nor matchExpressions, and selects everything")
	}
}

// mutations checks that each mutation is of one kind, which the agent does not: it takes the first one that it knows.
func (v *validator) mutations(p *field.Path, m *mutations) {
	if m == nil {
		return
	}
	for _, list := range []struct {
		key   string
		items []mutation
	}{{"spec", m.Spec}, {"status", m.Status}} {
		for i, item := range list.items {
			v.mutation(p.Child(list.key).Index(i), item)
		}
	}
}

func (v *validator) mutation(p *field.Path, m mutation) {
	given := 0
	for _, g := range []bool{m.Delete != nil, m.Regex != nil, m.Template != nil, m.CEL != nil} {
		if g {
			given++
		}
	}
	if given != 1 {
		v.forbidden(p, "must have exactly one of delete, regex, template and cel, not %d", given)
	}
	v.pattern(p.Child("regex"), m.Regex)
	if m.Template != nil {
		v.template(p.Child("template", "template"), m.Template.Template, mutationData())
	}
}
