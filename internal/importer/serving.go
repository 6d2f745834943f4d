package importer

import (
	"fmt"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
)

// servingSuffix is the end of the name of the Secret with the certificate that a front-proxy serves.
const servingSuffix = "-serving"

// issuerReference is a reference to an issuer of cert-manager. The chart also has a Secret with its CA.
type issuerReference struct {
	Name   string     `json:"name"`
	Kind   string     `json:"kind"`
	Group  string     `json:"group"`
	Secret *reference `json:"secret"`
}

func (r issuerReference) String() string {
	if r.Kind == "" {
		r.Kind = "Issuer"
	}
	return r.Kind + " " + r.Name
}

// servedBy maps the issuer of the certificate that a front-proxy serves.
func servedBy(who at) func(value) {
	return func(v value) {
		var r issuerReference
		if v.decode(&r) && r.Name != "" {
			who(v.o).issuer, who(v.o).issuerFrom = &r, v
		}
	}
}

// serving returns the certificate of another authority that a front-proxy serves for its hostname, or nil. Issuers with a
// CA in the cluster are authorities of the installation, which kcpctl's own replace.
func (a *assembly) serving(o *object, name string) *v1alpha1.Serving {
	if o.issuer == nil {
		return nil
	}
	if a.isPrivate(*o.issuer) {
		o.issuerFrom.find(NotMapped, ownPKI, ownCA)
		return nil
	}
	secret := name + servingSuffix
	o.issuerFrom.find(Review, "the certificate of "+o.issuer.String()+" has to be in a Secret that stays",
		fmt.Sprintf("create a Certificate of cert-manager for the hostname, with this issuerRef and secretName: %s; if the issuer is not a public one, "+
			"write the certificate of its CA into serving.ca", secret))
	return &v1alpha1.Serving{Secret: secret}
}

// isPrivate reports whether the input has an issuer, and it signs with a CA in the cluster or not at all.
func (a *assembly) isPrivate(r issuerReference) bool {
	for _, o := range a.all() {
		if o.source != "" && o.String() == r.String() {
			spec := lookup(o.root, "spec")
			return spec != nil && (lookup(spec, "ca") != nil || lookup(spec, "selfSigned") != nil)
		}
	}
	return false
}
