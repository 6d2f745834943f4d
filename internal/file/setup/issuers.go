package setup

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
)

// maxIssuers is the limit of kcp (k8s.io/apiserver: pkg/apis/apiserver/validation).
const maxIssuers = 64

// issuers checks an AuthenticationConfiguration as kcp does when it starts (k8s.io/apiserver:
// pkg/apis/apiserver/validation), except that it does not compile expressions.
func (v authenticationFields) issuers(p *field.Path, all []v1alpha1.JWTAuthenticator) {
	switch {
	case len(all) == 0:
		v.required(p, "at least one issuer")
	case len(all) > maxIssuers:
		v.invalid(p, len(all), "must have at most %d issuers", maxIssuers)
	}
	for i := range all {
		j, at := &all[i], p.Index(i)
		v.issuer(at.Child("issuer"), j.Issuer)
		v.unique(at.Child("issuer", "url"), j.Issuer.URL)
		v.unique(at.Child("issuer", "discoveryURL"), j.Issuer.DiscoveryURL)
		v.claimRules(at.Child("claimValidationRules"), j.ClaimValidationRules)
		v.claimMappings(at.Child("claimMappings"), j)
		for n, r := range j.UserValidationRules {
			v.expression(at.Child("userValidationRules").Index(n).Child("expression"), r.Expression)
		}
	}
}

func (v authenticationFields) issuer(p *field.Path, i v1alpha1.Issuer) {
	v.issuerURL(p.Child("url"), i.URL)
	if i.DiscoveryURL != "" {
		v.issuerURL(p.Child("discoveryURL"), i.DiscoveryURL)
		if strings.TrimRight(i.DiscoveryURL, "/") == strings.TrimRight(i.URL, "/") {
			v.invalid(p.Child("discoveryURL"), i.DiscoveryURL, "must be different from url")
		}
	}
	if len(i.Audiences) == 0 {
		v.required(p.Child("audiences"), "the clients that tokens are issued for")
	}
	for n, a := range i.Audiences {
		v.expression(p.Child("audiences").Index(n), a)
	}
	switch policy := i.AudienceMatchPolicy; {
	case policy != "" && policy != matchAny:
		oneOf(v.fields, p.Child("audienceMatchPolicy"), policy, matchAny)
	case policy == "" && len(i.Audiences) > 1:
		v.required(p.Child("audienceMatchPolicy"), "must be %s for several audiences", matchAny)
	}
	v.certificates(p.Child("certificateAuthority"), i.CertificateAuthority)
}

const matchAny = "MatchAny"

// expression requires a value that no earlier item of the list has.
func (v authenticationFields) expression(p *field.Path, s string) {
	if s == "" {
		v.required(p, "")
	}
	v.unique(p, s)
}

func (v authenticationFields) claimRules(p *field.Path, rules []v1alpha1.ClaimValidationRule) {
	for i, r := range rules {
		at := p.Index(i)
		switch {
		case (r.Claim == "") == (r.Expression == ""):
			v.forbidden(at, "%s", oneClaim)
		case r.Claim != "" && r.Message != "":
			v.forbidden(at.Child("message"), "only an expression has a message")
		case r.Expression != "" && r.RequiredValue != "":
			v.forbidden(at.Child("requiredValue"), "only a claim has a required value")
		}
		v.unique(at.Child("claim"), r.Claim)
		v.unique(at.Child("expression"), r.Expression)
	}
}

const oneClaim = "must have exactly one of claim and expression"

func (v authenticationFields) claimMappings(p *field.Path, j *v1alpha1.JWTAuthenticator) {
	m := j.ClaimMappings
	v.prefixedClaim(p.Child("username"), m.Username)
	if m.Groups != nil {
		v.prefixedClaim(p.Child("groups"), *m.Groups)
	}
	if u := m.UID; u != nil && (u.Claim == "") == (u.Expression == "") {
		v.forbidden(p.Child("uid"), "%s", oneClaim)
	}
	for i, e := range m.Extra {
		at := p.Child("extra").Index(i)
		domain, _, prefixed := strings.Cut(e.Key, "/")
		switch {
		case !prefixed || domain == "" || e.Key != strings.ToLower(e.Key):
			v.invalid(at.Child("key"), e.Key, "must be a lower-case name with a domain, such as example.com/tenant")
		case slices.ContainsFunc([]string{"k8s.io", "kubernetes.io"}, func(d string) bool {
			return domain == d || strings.HasSuffix(domain, "."+d)
		}):
			v.invalid(at.Child("key"), e.Key, "k8s.io and kubernetes.io are reserved")
		}
		v.unique(at.Child("key"), e.Key)
		if e.ValueExpression == "" {
			v.required(at.Child("valueExpression"), "")
		}
	}
	v.emailVerified(p.Child("username", "expression"), j)
}

func (v authenticationFields) prefixedClaim(p *field.Path, c v1alpha1.PrefixedClaim) {
	switch {
	case (c.Claim == "") == (c.Expression == ""):
		v.forbidden(p, "%s", oneClaim)
	case c.Claim != "" && c.Prefix == nil:
		v.required(p.Child("prefix"), `use "" for no prefix`)
	case c.Expression != "" && c.Prefix != nil:
		v.forbidden(p.Child("prefix"), "only a claim has a prefix")
	case c.Prefix != nil:
		v.issuerPrefix(p.Child("prefix"), *c.Prefix)
	}
}

// emailVerified requires that a name from the claim email is used only if the issuer has verified it.
func (v authenticationFields) emailVerified(p *field.Path, j *v1alpha1.JWTAuthenticator) {
	const email, verified = "claims.email", "claims.email_verified"
	name := j.ClaimMappings.Username.Expression
	if !v.matches(`(?s).*claims\.email\b.*`, strings.ReplaceAll(name, verified, "")) {
		return
	}
	texts := []string{name}
	for _, e := range j.ClaimMappings.Extra {
		texts = append(texts, e.ValueExpression)
	}
	for _, r := range j.ClaimValidationRules {
		texts = append(texts, r.Expression)
	}
	if !slices.ContainsFunc(texts, func(s string) bool { return strings.Contains(s, verified) }) {
		v.invalid(p, name, "uses %s, so %s must be in this expression, in one of extra or in claimValidationRules",
			email, verified)
	}
}
