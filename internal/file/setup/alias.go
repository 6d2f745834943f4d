package setup

import (
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// aliases checks the names of the additional Services of all components.
func (v *validator) aliases() {
	owners := map[string]string{}
	for _, o := range v.objects() {
		owners[o.name] = o.owner
	}
	type place struct{ cluster, name string }
	seen := map[place]bool{}
	for _, p := range v.parts {
		for i, name := range p.Aliases {
			at := p.path.Child("aliases").Index(i)
			owner, taken := owners[name]
			switch {
			case len(validation.IsDNS1035Label(name)) > 0:
				v.invalid(at, name, "must be the name of a Service: lower-case letters, digits and '-', at most 63, "+
					"beginning with a letter")
			case taken:
				v.invalid(at, name, "%s has an object of this name", owner)
			case seen[place{p.Cluster, name}]:
				v.errs = append(v.errs, field.Duplicate(at, name))
			}
			seen[place{p.Cluster, name}] = true
		}
	}
}
