package importer

import (
	"encoding/base64"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/file/setup"
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
		switch {
		case !v.decode(&r), v.empty():
		case r.Name == "":
			v.fail("required: the name of the issuer", "")
		default:
			who(v.o).issuer, who(v.o).issuerFrom = &r, v
		}
	}
}

// serving returns the certificate of another authority that a front-proxy serves for its hostname, or nil. Issuers with
// a CA in the cluster are authorities of the installation, which kcpctl's own replace.
func (a *assembly) serving(o *object, name string) *v1alpha1.Serving {
	if o.issuer == nil || a.isPrivate(*o.issuer, o.file) {
		if o.issuer != nil {
			o.issuerFrom.find(NotMapped, ownPKI, ownCA)
		}
		if o.caBundle.node != nil {
			o.caBundle.find(NotMapped, "kcpctl's own authority signs the certificate of the front-proxy",
				"if something in front of the front-proxy terminates TLS, set serving.edge and serving.ca")
		}
		return nil
	}
	serving := &v1alpha1.Serving{Secret: name + servingSuffix}
	if o.caBundle.node != nil {
		a.servingCA(o, serving)
	}
	o.issuerFrom.find(Review, "the certificate of "+o.issuer.String()+" has to be in a Secret that stays",
		fmt.Sprintf("create a Certificate of cert-manager for the hostname, with this issuerRef and secretName: %s; if the issuer is not a public one, "+
			"write the certificate of its CA into serving.ca", serving.Secret))
	return serving
}

// servingCA sets the authorities with which clients verify the certificate of another authority.
func (a *assembly) servingCA(o *object, serving *v1alpha1.Serving) {
	name := o.caBundle.node.Value
	if serving.CA = a.content("Secret", name, "tls.crt"); serving.CA == "" {
		o.caBundle.find(Review, "the setup file has the certificates of the authorities themselves, and the input "+
			"does not have Secret "+name,
			"write its key tls.crt into serving.ca, or import the Secret together with the other objects")
	}
}

// content returns a key of a Secret or a ConfigMap of the input, or "".
func (a *assembly) content(kind, name, key string) string {
	for _, o := range a.reader.others {
		if o.kind != kind || o.name != name {
			continue
		}
		o.findings = nil
		o.find(NotNeeded, "the setup file has its certificates or issuers", "")
		if text := scalar(lookup(o.root, "stringData"), key); text != "" {
			return text
		}
		text := scalar(lookup(o.root, "data"), key)
		if kind != "Secret" {
			return text
		}
		raw, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return ""
		}
		return string(raw)
	}
	return ""
}

// issuersOf returns the issuers of an AuthenticationConfiguration of Kubernetes, or nil if it has something else that a
// setup file cannot say.
func issuersOf(content string) *v1alpha1.AuthenticationConfig {
	docs, problem := setup.Documents([]byte(content))
	if problem != nil || len(docs) != 1 {
		return nil
	}
	config := &v1alpha1.AuthenticationConfig{}
	fields, _ := setup.Fields(docs[0], nil)
	for _, f := range fields {
		switch f.Key.Value {
		case "apiVersion", "kind":
		case "jwt":
			if len(setup.Decode(f.Value, field.NewPath("jwt"), &config.JWT)) > 0 {
				return nil
			}
		default:
			return nil
		}
	}
	return config
}

// isPrivate reports whether the input has an issuer, and it signs with a CA in the cluster or not at all. If several
// files have the issuer, because each is for another cluster, the one in the file of the front-proxy counts.
func (a *assembly) isPrivate(r issuerReference, file string) bool {
	private := false
	found := false
	for _, o := range a.all() {
		if o.source != "" && o.String() == r.String() && (!found || o.file == file) {
			spec := lookup(o.root, "spec")
			private, found = spec != nil && (lookup(spec, "ca") != nil || lookup(spec, "selfSigned") != nil), true
		}
	}
	return private
}
