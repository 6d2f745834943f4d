package topology

import (
	"cmp"
	"regexp"
	"slices"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
)

// Authentication is how a front-proxy or a shard authenticates its clients.
type Authentication struct {
	// ClientCertificates is set if it accepts client certificates of the client CA.
	ClientCertificates bool
	// TokenAuthentication are the tokens that it accepts, besides tokens of service accounts.
	v1alpha1.TokenAuthentication
	// ServiceAccounts is set if it accepts tokens of service accounts. A front-proxy that accepts no tokens at all
	// passes them on.
	ServiceAccounts bool
	// Anonymous is set if a shard accepts requests without credentials.
	Anonymous bool
	// DropGroups and PassOnGroups are the groups in the setup file that a front-proxy removes from identities, and the
	// only ones that it does not remove. Without PassOnGroups it passes on all groups.
	DropGroups, PassOnGroups []string
}

// AlwaysDropped are the groups that front-proxies remove in any case (kcp: pkg/proxy/options/authentication.go). The
// flag that adds to them replaces them. Releases before v0.32.3 do not know the groups of initializers and terminators,
// which do no harm there.
var AlwaysDropped = []string{
	"system:masters", "system:kcp:logical-cluster-admin", "system:kcp:initializer:*", "system:kcp:terminator:*",
}

// HealthPaths are the paths of a shard that never need credentials, because kubelets probe without credentials.
var HealthPaths = []string{"/healthz", "/livez", "/readyz"}

// Tokens reports whether it accepts tokens of users.
func (a Authentication) Tokens() bool {
	return a.OIDC != nil || a.Config != nil || a.Webhook != nil || a.TokenFile != nil
}

// UsesFile reports whether the settings need a file with an AuthenticationConfiguration, which excludes the flags for
// OIDC (k8s: pkg/kubeapiserver/options/authentication.go). Only the file can restrict anonymous requests to some paths.
func (a Authentication) UsesFile() bool { return a.Config != nil || !a.Anonymous }

// Login is how users of an OpenID Connect issuer get a token.
type Login struct {
	IssuerURL, ClientID string
	// KeysURL is the issuer, or where its discovery document is if that is elsewhere: what servers dial for its keys.
	KeysURL string
	// CA are the certificates that the issuer is verified with, in PEM format. Empty: the certificates of the system,
	// unless CAFrom has them.
	CA     string
	CAFrom *v1alpha1.KeyReference
	// Scopes are the scopes that a client requests besides openid.
	Scopes []string
}

// Logins returns the issuers of the tokens that it accepts.
func (a Authentication) Logins() []Login {
	var out []Login
	if o := a.OIDC; o != nil {
		out = append(out, Login{
			IssuerURL: o.IssuerURL, KeysURL: o.IssuerURL, ClientID: o.ClientID, CA: o.CA,
			CAFrom: o.CAFrom, Scopes: o.Scopes,
		})
	}
	if a.Config == nil {
		return out
	}
	for _, j := range a.Config.JWT {
		claims := []string{j.ClaimMappings.Username.Claim, j.ClaimMappings.Username.Expression}
		if g := j.ClaimMappings.Groups; g != nil {
			claims = append(claims, g.Claim, g.Expression)
		}
		out = append(out, Login{
			IssuerURL: j.Issuer.URL, KeysURL: cmp.Or(j.Issuer.DiscoveryURL, j.Issuer.URL),
			ClientID: j.Issuer.Audiences[0],
			CA:       j.Issuer.CertificateAuthority, Scopes: Scopes(claims...),
		})
	}
	return out
}

// scopes are the claims that issuers put into tokens only on request, and the scopes to request. The first are from
// OpenID Connect Core 1.0, section 5.4; groups is the name that many issuers use.
var scopes = []struct{ claim, scope string }{
	{"email", "email"}, {"name", "profile"}, {"preferred_username", "profile"}, {"nickname", "profile"},
	{"groups", "groups"},
}

// Scopes returns the scopes that a client requests, so that tokens have some claims. Each is the name of a claim, or a
// CEL expression.
func Scopes(claims ...string) []string {
	var out []string
	for _, s := range scopes {
		wanted := slices.ContainsFunc(claims, func(c string) bool {
			return c == s.claim || regexp.MustCompile(`\bclaims\.`+s.claim+`\b`).MatchString(c)
		})
		if wanted && !slices.Contains(out, s.scope) {
			out = append(out, s.scope)
		}
	}
	return out
}

// FrontProxyAuthentication returns how a front-proxy authenticates its clients: its own settings take precedence over
// the settings of the setup.
func FrontProxyAuthentication(base v1alpha1.Authentication, own v1alpha1.FrontProxyAuthentication) Authentication {
	if own.None || base.None && own.IsZero() {
		return Authentication{Anonymous: true}
	}
	tokens := base.TokenAuthentication
	if own.OIDC != nil || own.Config != nil {
		tokens.OIDC = own.OIDC
		tokens.Config = own.Config
	}
	tokens.Webhook = cmp.Or(own.Webhook, tokens.Webhook)
	tokens.TokenFile = cmp.Or(own.TokenFile, tokens.TokenFile)
	a := Authentication{
		ClientCertificates:  *cmp.Or(own.ClientCertificates, base.ClientCertificates, new(!base.None)),
		TokenAuthentication: tokens,
		Anonymous:           true, // kcp-front-proxy has no such setting
		DropGroups:          slices.Concat(base.DropGroups, own.DropGroups),
		PassOnGroups:        slices.Concat(base.PassOnGroups, own.PassOnGroups),
	}
	a.ServiceAccounts = *cmp.Or(own.ServiceAccounts, base.ServiceAccounts, new(a.Tokens()))
	return a
}

// ShardAuthentication returns how shards authenticate their clients.
func ShardAuthentication(base v1alpha1.Authentication) Authentication {
	a := Authentication{ClientCertificates: true, ServiceAccounts: true, Anonymous: *cmp.Or(base.Anonymous, new(true))}
	if base.Mode == v1alpha1.AuthenticationModeEverywhere {
		a.TokenAuthentication = base.TokenAuthentication
	}
	return a
}

// AcceptsClientCertificates reports whether a server accepts the client certificates of users and components.
func (c *Component) AcceptsClientCertificates() bool {
	return c.Authentication == nil || c.Authentication.ClientCertificates
}

// FrontProxyChoice is a front-proxy that components may dial.
type FrontProxyChoice struct {
	Name, Cluster string
	// ClientCertificates is set if it accepts client certificates.
	ClientCertificates bool
}

// ChooseFrontProxy returns the index of the front-proxy that a component dials: the one with a name or, without a name,
// the first one that accepts client certificates on the component's own cluster, because that needs no DNS entry and no
// hairpin, else the first one that accepts them. It is 0 if there is no such front-proxy.
func ChooseFrontProxy(all []FrontProxyChoice, name, cluster string) int {
	for _, fits := range []func(FrontProxyChoice) bool{
		func(f FrontProxyChoice) bool { return f.Name == name },
		func(f FrontProxyChoice) bool { return name == "" && f.ClientCertificates && f.Cluster == cluster },
		func(f FrontProxyChoice) bool { return name == "" && f.ClientCertificates },
	} {
		if i := slices.IndexFunc(all, fits); i >= 0 {
			return i
		}
	}
	return 0
}

// OwnFrontProxy returns the front-proxy that kcpctl itself dials: the first one that accepts client certificates.
func (t *Topology) OwnFrontProxy() *Component {
	proxies := t.FrontProxies()
	return proxies[max(0, slices.IndexFunc(proxies, (*Component).AcceptsClientCertificates))]
}
