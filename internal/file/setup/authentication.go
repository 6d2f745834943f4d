package setup

import (
	"crypto/x509"
	"encoding/pem"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

const (
	defaultWebhookVersion  = "v1"
	defaultWebhookCacheTTL = 2 * time.Minute
	// Keys of Secrets and ConfigMaps.
	defaultWebhookKey = "kubeconfig"
	defaultTokenKey   = "tokens.csv"
	defaultCAKey      = "ca.crt"
)

// defaultAuthentication sets the defaults of spec.authentication and of the authentication of front-proxies.
func defaultAuthentication(spec *v1alpha1.Spec) {
	fill(&spec.Authentication.Mode, v1alpha1.AuthenticationModeEdge)
	fillPointer(&spec.Authentication.Anonymous, true)
	all := []*v1alpha1.TokenAuthentication{&spec.Authentication.TokenAuthentication}
	for i := range spec.FrontProxies {
		all = append(all, &spec.FrontProxies[i].Authentication.TokenAuthentication)
	}
	for _, t := range all {
		if o := t.OIDC; o != nil {
			defaultOIDC(o)
		}
		if w := t.Webhook; w != nil {
			fill(&w.Key, defaultWebhookKey)
			fill(&w.Version, defaultWebhookVersion)
			fill(&w.CacheTTL.Duration, defaultWebhookCacheTTL)
		}
		if f := t.TokenFile; f != nil {
			fill(&f.Key, defaultTokenKey)
		}
	}
}

// defaultOIDC sets what kcp and kubeconfigs derive from the claims. The prefix of names is the same as in kcp (k8s:
// pkg/kubeapiserver/options/authentication.go).
func defaultOIDC(o *v1alpha1.OIDC) {
	fill(&o.UsernameClaim, "sub")
	if o.UsernameClaim != "email" && o.IssuerURL != "" {
		fill(&o.UsernamePrefix, o.IssuerURL+"#")
	}
	if len(o.SigningAlgs) == 0 {
		o.SigningAlgs = []string{"RS256"}
	}
	if o.CAFrom != nil {
		fill(&o.CAFrom.Key, defaultCAKey)
	}
	if o.Scopes == nil {
		o.Scopes = topology.Scopes(o.UsernameClaim, o.GroupsClaim)
	}
}

// authenticationFields checks fields of spec.authentication and of the authentication of front-proxies.
type authenticationFields struct{ *fields }

// authentication checks spec.authentication, and the settings of every front-proxy.
func (v *validator) authentication() {
	base, path := v.setup.Spec.Authentication, field.NewPath("spec", "authentication")
	oneOf(v.fields, path.Child("mode"), base.Mode, v1alpha1.AuthenticationModeEdge,
		v1alpha1.AuthenticationModeEverywhere)
	v.frontProxyAuthentication(path, base.FrontProxyAuthentication)
	shards := topology.ShardAuthentication(base)
	if o := shards.OIDC; o != nil && o.CAFrom != nil && shards.UsesFile() {
		v.forbidden(path.Child("oidc", "caFrom"),
			"shards refuse anonymous requests and accept OIDC tokens by one file, which contains the "+
				"certificates: use ca")
	}
	for i := range v.setup.Spec.FrontProxies {
		own, at := v.setup.Spec.FrontProxies[i].Authentication, field.NewPath("spec",
			"frontProxies").Index(i).Child("authentication")
		v.frontProxyAuthentication(at, own)
		v.effective(path, at, base.FrontProxyAuthentication, own, topology.FrontProxyAuthentication(base, own))
	}
	accepts := func(f topology.FrontProxyChoice) bool { return f.ClientCertificates }
	choices := frontProxyChoices(&v.setup.Spec)
	if !slices.ContainsFunc(choices, accepts) {
		v.forbidden(v.refusal(),
			"no front-proxy accepts client certificates, and shards dial one that does: add another front-proxy")
		return
	}
	v.neededGroups(path.Child("dropGroups"), base.DropGroups)
	for _, p := range v.parts {
		if p.frontProxy != "" {
			v.accepting(p.path.Child("frontProxy"), p.frontProxy, choices)
		}
	}
}

// accepting requires the name of a front-proxy that accepts client certificates.
func (v authenticationFields) accepting(p *field.Path, name string, choices []topology.FrontProxyChoice) {
	var names, accepting []string
	for _, c := range choices {
		names = append(names, c.Name)
		if c.ClientCertificates {
			accepting = append(accepting, c.Name)
		}
	}
	v.reference(p, "front-proxy", name, names)
	if slices.Contains(names, name) && len(accepting) > 0 && !slices.Contains(accepting, name) {
		v.invalid(p, name, "this front-proxy refuses client certificates, these accept them: %s",
			strings.Join(accepting, ", "))
	}
}

// refusal is the first field that makes a front-proxy refuse client certificates.
func (v *validator) refusal() *field.Path {
	type place struct {
		path *field.Path
		v1alpha1.FrontProxyAuthentication
	}
	places := []place{{field.NewPath("spec", "authentication"), v.setup.Spec.Authentication.FrontProxyAuthentication}}
	for i := range v.setup.Spec.FrontProxies {
		places = append(places, place{
			field.NewPath("spec", "frontProxies").Index(i).Child("authentication"),
			v.setup.Spec.FrontProxies[i].Authentication,
		})
	}
	for _, p := range places {
		if p.ClientCertificates != nil && !*p.ClientCertificates {
			return p.path.Child("clientCertificates")
		}
		if p.None {
			return p.path.Child("none")
		}
	}
	return field.NewPath("spec", "authentication")
}

// effective checks what follows only from the settings of a front-proxy and of the setup together.
func (v authenticationFields) effective(basePath, path *field.Path, base, own v1alpha1.FrontProxyAuthentication,
	all topology.Authentication) {
	at := func(set func(v1alpha1.FrontProxyAuthentication) bool) *field.Path {
		if set(own) || !set(base) {
			return path
		}
		return basePath
	}
	// kcp looks at tokens only if one of these is set by its own flag (kcp: pkg/proxy/options/authentication.go,
	// AdditionalAuthEnabled). Otherwise it passes requests without a client certificate on.
	looks := all.ServiceAccounts || all.TokenFile != nil || all.OIDC != nil
	if (all.Config != nil || all.Webhook != nil) && !looks {
		v.forbidden(at(func(a v1alpha1.FrontProxyAuthentication) bool { return a.ServiceAccounts != nil }).Child("serviceAccounts"),
			"without it, kcp-front-proxy ignores config and webhook")
	}
	if all.ClientCertificates {
		v.neededGroups(path.Child("dropGroups"), own.DropGroups)
	}
}

// neededGroups rejects patterns of dropped groups that components of the setup are in.
func (v authenticationFields) neededGroups(p *field.Path, dropped []string) {
	for i, pattern := range dropped {
		for _, g := range []string{adminGroup, "system:kcp:external-logical-cluster-admin"} {
			if matchesGroup(pattern, g) {
				v.invalid(p.Index(i), pattern, "shards and kcpctl itself use the group %s", g)
				break
			}
		}
	}
}

func matchesGroup(pattern, group string) bool {
	prefix, wildcard := strings.CutSuffix(pattern, "*")
	return pattern == group || wildcard && strings.HasPrefix(group, prefix)
}

// frontProxyAuthentication checks settings on their own.
func (v authenticationFields) frontProxyAuthentication(p *field.Path, a v1alpha1.FrontProxyAuthentication) {
	if rest := a; rest.None {
		if rest.None = false; !rest.IsZero() {
			v.forbidden(p.Child("none"), "must be the only field")
		}
	}
	if a.OIDC != nil && a.Config != nil {
		v.forbidden(p.Child("config"), "must have only one of oidc and config: add the issuer to config")
	}
	if a.OIDC != nil {
		v.oidc(p.Child("oidc"), a.OIDC)
	}
	if a.Config != nil {
		v.issuers(p.Child("config", "jwt"), a.Config.JWT)
	}
	if w := a.Webhook; w != nil {
		v.secretKey(p.Child("webhook"), w.SecretKey)
		oneOf(v.fields, p.Child("webhook", "version"), w.Version, "v1", "v1beta1")
	}
	if a.TokenFile != nil {
		v.secretKey(p.Child("tokenFile"), *a.TokenFile)
	}
	v.groupPatterns(p.Child("dropGroups"), a.DropGroups)
	v.groupPatterns(p.Child("passOnGroups"), a.PassOnGroups)
}

func (v authenticationFields) groupPatterns(p *field.Path, groups []string) {
	for i, g := range groups {
		at := p.Index(i)
		switch {
		case g == "":
			v.required(at, "a group, or a prefix and *")
		case strings.Contains(strings.TrimSuffix(g, "*"), "*"):
			v.invalid(at, g, "must have * only at the end")
		case strings.ContainsAny(g, "\r\n"):
			v.invalid(at, g, "must be on one line")
		}
		v.unique(at, g)
	}
}

// signingAlgs are the algorithms that kcp knows (k8s.io/apiserver: plugin/pkg/authenticator/token/oidc).
var signingAlgs = []string{"RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "PS384", "PS512"}

func (v authenticationFields) oidc(p *field.Path, o *v1alpha1.OIDC) {
	v.issuerURL(p.Child("issuerURL"), o.IssuerURL)
	v.issuerPrefix(p.Child("usernamePrefix"), o.UsernamePrefix)
	v.issuerPrefix(p.Child("groupsPrefix"), o.GroupsPrefix)
	if o.ClientID == "" {
		v.required(p.Child("clientID"), "the client that users log in with, which tokens are issued for")
	}
	for i, a := range o.SigningAlgs {
		oneOf(v.fields, p.Child("signingAlgs").Index(i), a, signingAlgs...)
	}
	for _, claim := range slices.Sorted(maps.Keys(o.RequiredClaims)) {
		if claim == "" || strings.ContainsRune(claim, '=') {
			v.invalid(p.Child("requiredClaims").Key(claim), claim, "must be the name of a claim, without =")
		}
	}
	for i, s := range o.Scopes {
		if s == "" || strings.ContainsAny(s, " \t\r\n") {
			v.invalid(p.Child("scopes").Index(i), s, "must be a scope, without spaces")
		}
	}
	v.certificateAuthority(p, o.CA, o.CAFrom)
}

// certificateAuthority checks certificates that are either in the file or in another object.
func (v authenticationFields) certificateAuthority(p *field.Path, ca string, from *v1alpha1.KeyReference) {
	v.certificates(p.Child("ca"), ca)
	if from == nil {
		return
	}
	at := p.Child("caFrom")
	if ca != "" {
		v.forbidden(at, "must have only one of ca and caFrom")
	}
	switch {
	case (from.Secret == "") == (from.ConfigMap == ""):
		v.forbidden(at, "must have exactly one of secret and configMap")
	case from.Secret != "":
		v.subdomain(at.Child("secret"), from.Secret)
	default:
		v.subdomain(at.Child("configMap"), from.ConfigMap)
	}
	v.key(at.Child("key"), from.Key)
}

func (v authenticationFields) certificates(p *field.Path, text string) {
	rest, found := []byte(text), false
	for block := (*pem.Block)(nil); len(rest) > 0; {
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		found = true
		if _, err := x509.ParseCertificate(block.Bytes); block.Type != "CERTIFICATE" || err != nil {
			v.invalid(p, "…", "must contain only certificates in PEM format, not %s", strings.ToLower(block.Type))
			return
		}
	}
	if text != "" && !found {
		v.invalid(p, "…", "must be certificates in PEM format")
	}
}

func (v authenticationFields) secretKey(p *field.Path, s v1alpha1.SecretKey) {
	v.secretName(p.Child("secret"), s.Secret)
	v.key(p.Child("key"), s.Key)
}

// key requires a key of a Secret or a ConfigMap.
func (v authenticationFields) key(p *field.Path, key string) {
	for _, problem := range validation.IsConfigMapKey(key) {
		v.invalid(p, key, "%s", problem)
	}
}

// serviceAccountIssuer is the issuer of the tokens of kcp's service accounts (kcp: pkg/server/options/options.go).
const serviceAccountIssuer = "https://kcp.default.svc"

// issuerURL requires a URL that kcp accepts for an issuer (k8s.io/apiserver: pkg/apis/apiserver/validation).
func (v authenticationFields) issuerURL(p *field.Path, s string) {
	if s == "" {
		v.required(p, "the https URL of the issuer")
		return
	}
	u, err := url.Parse(s)
	switch {
	case !strings.HasPrefix(s, "https://"):
		v.invalid(p, s, "must begin with https://, because kcp accepts no other issuers")
	case err != nil || u.Host == "" || strings.ContainsAny(s, " ,;"):
		v.invalid(p, s, "must be a URL such as https://login.example.com")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		v.invalid(p, s, "must have no user, query and fragment")
	case s == serviceAccountIssuer:
		v.invalid(p, s, "kcp itself issues the tokens of service accounts with this URL")
	}
}
