package agent

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// union returns the items of a list, and then the other keys of a map in order.
func union(list []string, m map[string]string) []string {
	out := slices.Clone(list)
	for _, key := range sortedKeys(m) {
		if !slices.Contains(out, key) {
			out = append(out, key)
		}
	}
	return out
}

// related checks related resources: the rules of the CRD, and mistakes that the agent only notices when it
// synchronizes.
func (v *validator) related() {
	seen := map[string]bool{}
	for i := range v.spec.Related {
		r, p := &v.spec.Related[i], v.path.Child("related").Index(i)
		if r.Identifier != "" && seen[r.Identifier] {
			v.errs = append(v.errs, field.Duplicate(p.Child("identifier"), r.Identifier))
		}
		seen[r.Identifier] = true
		v.relatedResource(p, r)
		v.location(p.Child("object"), &r.Object.location)
		if r.Object.Namespace != nil {
			v.location(p.Child("object", "namespace"), r.Object.Namespace)
		}
		v.mutations(p.Child("mutation"), r.Mutation)
		v.watch(p, r)
		if r.Origin == originService && !r.Cleanup {
			// api-syncagent: internal/sync/syncer_related.go, forceDelete
			v.warn(p, "without cleanup: true, the agent creates the copy again while its object is deleted, so "+
				"a namespace with both is never deleted")
		}
	}
}

// relatedResource checks the rules of the CRD (x-kubernetes-validations of related).
func (v *validator) relatedResource(p *field.Path, r *related) {
	hasKind := r.Kind != ""
	hasVersion := r.Version != ""
	hasResource := r.Resource != ""
	switch {
	case hasKind && (hasVersion || hasResource):
		v.forbidden(p.Child("kind"), "must have either kind, which is deprecated, or group, version and resource")
	case !hasKind && !hasResource:
		v.required(p.Child("resource"), "the plural of the related resource, such as secrets, and its version")
	case !hasKind && !hasVersion:
		v.required(p.Child("version"), "a resource needs a version, such as v1")
	}
	gvr := r.Group != "" && hasVersion && hasResource
	if r.Group != "" && hasKind {
		v.forbidden(p.Child("group"), "a group needs version and resource")
	}
	if r.IdentityHash != "" && !gvr {
		v.forbidden(p.Child("identityHash"),
			"an identity needs group, version and resource: resources of the core group have none")
	}
}

// location checks how objects or namespaces are found.
func (v *validator) location(p *field.Path, l *location) {
	given := 0
	for _, g := range []bool{l.Selector != nil, l.Reference != nil, l.Template != nil} {
		if g {
			given++
		}
	}
	if given != 1 {
		v.forbidden(p, "must have exactly one of selector, reference and template, not %d", given)
	}
	if l.Reference != nil {
		v.pattern(p.Child("reference", "regex"), l.Reference.Regex)
	}
	if l.Template != nil {
		v.template(p.Child("template", "template"), l.Template.Template, locationData())
	}
	if l.Selector == nil {
		return
	}
	labels := p.Child("selector", "matchLabels")
	for _, key := range sortedKeys(l.Selector.MatchLabels) {
		v.template(Child(labels, key), l.Selector.MatchLabels[key], labelData())
	}
	rewrite, at := l.Selector.Rewrite, p.Child("selector", "rewrite")
	if (rewrite.Regex != nil) == (rewrite.Template != nil) {
		v.forbidden(at, "must have exactly one of regex and template")
	}
	v.pattern(at.Child("regex"), rewrite.Regex)
	if rewrite.Template != nil {
		v.template(at.Child("template", "template"), rewrite.Template.Template, rewriteData())
	}
}

// watch checks how the agent learns of changes of related objects.
func (v *validator) watch(p *field.Path, r *related) {
	switch w := r.Watch; {
	case w == nil && r.Origin == originKcp:
		v.warn(p, "without watch, the agent does not notice when an object of this related resource changes")
	case w == nil:
	case (w.ByOwner != nil) == (w.BySelector != nil):
		v.forbidden(p.Child("watch"), "must have exactly one of byOwner and bySelector")
	default:
		v.selector(p.Child("watch", "bySelector"), w.BySelector)
	}
}

// together checks the PublishedResources of one agent together.
func together(all []Source, specs []spec) []Problem {
	var out []Problem
	add := func(i int, e *field.Error) { out = append(out, Problem{Error: e, Source: i}) }
	names := map[string]bool{}
	kinds := map[string]string{}
	resources := map[string]string{}
	for i := range all {
		s := &specs[i]
		name := all[i].PublishedResource.Name
		path := all[i].Path
		if names[name] {
			add(i, field.Duplicate(all[i].Name, name))
			continue
		}
		names[name] = true
		if s.Resource.Kind == "" {
			continue
		}
		source := s.Resource.Kind + "." + s.Resource.APIGroup
		if other, taken := kinds[source]; taken {
			add(i, field.Invalid(path.Child("spec", "resource", "kind"), s.Resource.Kind,
				"PublishedResource "+other+" publishes this kind already"))
			continue
		}
		kinds[source] = name
		target := s.projected(all[i].Plural)
		if other, taken := resources[target.String()]; taken {
			add(i, field.Invalid(path.Child("spec", "projection"), "…",
				"PublishedResource "+other+" has the same name "+target.String()+" in kcp"))
		}
		resources[target.String()] = name
	}
	return append(out, published(all, specs)...)
}

// published returns the problems of kinds that are published and also related: the agent would synchronize their
// objects twice.
func published(all []Source, specs []spec) []Problem {
	var out []Problem
	for i := range all {
		own := specs[i].source(all[i].Plural)
		if s := specs[i].Synchronization; specs[i].Resource.Kind == "" || s != nil && !s.Enabled {
			continue
		}
		for n := range all {
			for k := range specs[n].Related {
				if r := &specs[n].Related[k]; r.inService() == own {
					out = append(out, Problem{Source: i,
						Error: field.Required(all[i].Path.Child("spec", "synchronization", "enabled"),
							"must be false, because PublishedResource "+all[n].PublishedResource.Name+
								" synchronizes these objects as related objects")})
				}
			}
		}
	}
	return out
}
