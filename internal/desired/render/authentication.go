package render

import (
	"bytes"
	"encoding/csv"
	"maps"
	"slices"
	"strings"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// Files of a component's configuration, and their keys in its ConfigMap.
const (
	authenticationFile = "authentication.yaml"
	oidcCAFile         = "oidc-ca.crt"
	webhookFile        = "authentication-webhook.kubeconfig"
	tokensFile         = "tokens.csv"
)

// tokenFlags returns the flags with which a front-proxy or a shard accepts tokens of users (k8s:
// pkg/kubeapiserver/options/authentication.go). Cache servers and servers of virtual workspaces do not know them.
func tokenFlags(c *topology.Component) []flag {
	a := c.Authentication
	var fl []flag
	switch {
	case a.UsesFile():
		fl = append(fl, flag{"authentication-config", c.Path(files.Config(authenticationFile))})
	case a.OIDC != nil:
		fl = append(fl, oidcFlags(c, a.OIDC)...)
	}
	if w := a.Webhook; w != nil {
		fl = append(fl,
			flag{"authentication-token-webhook-config-file", c.Path(files.Config(webhookFile))},
			flag{"authentication-token-webhook-version", w.Version},
			flag{"authentication-token-webhook-cache-ttl", w.CacheTTL.Duration.String()})
	}
	if a.TokenFile != nil {
		fl = append(fl, flag{"token-auth-file", c.Path(files.Config(tokensFile))})
	}
	return fl
}

func oidcFlags(c *topology.Component, o *v1alpha1.OIDC) []flag {
	var fl []flag
	add := func(name, value string) {
		if value != "" {
			fl = append(fl, flag{name, value})
		}
	}
	add("oidc-issuer-url", o.IssuerURL)
	add("oidc-client-id", o.ClientID)
	add("oidc-username-claim", o.UsernameClaim)
	add("oidc-username-prefix", o.UsernamePrefix)
	add("oidc-groups-claim", o.GroupsClaim)
	add("oidc-groups-prefix", o.GroupsPrefix)
	add("oidc-signing-algs", strings.Join(o.SigningAlgs, ","))
	for _, claim := range slices.Sorted(maps.Keys(o.RequiredClaims)) {
		add("oidc-required-claim", claim+"="+o.RequiredClaims[claim])
	}
	if o.CA != "" || o.CAFrom != nil {
		add("oidc-ca-file", c.Path(files.Config(oidcCAFile)))
	}
	return fl
}

// frontProxyAuthentication returns the flags with which a front-proxy authenticates its clients (kcp:
// pkg/proxy/options/authentication.go).
func frontProxyAuthentication(t *topology.Topology, c *topology.Component) []flag {
	a := c.Authentication
	var fl []flag
	if a.ClientCertificates {
		fl = append(fl, flag{"client-ca-file", c.Path(files.CA(topology.ClientCA))})
	}
	fl = append(fl, tokenFlags(c)...)
	if a.ServiceAccounts {
		fl = append(fl,
			flag{"service-account-key-file", c.Path(files.ServiceAccount(serviceAccountPublic))},
			// A front-proxy would look for every service account in the root shard.
			flag{"service-account-lookup", "false"})
	}
	if len(a.DropGroups) > 0 {
		fl = append(fl, flag{"authentication-drop-groups", commaSeparated(topology.AlwaysDropped, a.DropGroups)})
	}
	if len(a.PassOnGroups) > 0 {
		fl = append(fl, flag{"authentication-pass-on-groups", commaSeparated(neededGroups(t, c), a.PassOnGroups)})
	}
	return fl
}

// neededGroups returns the groups that a front-proxy must pass on for the setup itself: the groups of its clients, and
// the groups that kcp's roles are bound to.
func neededGroups(t *topology.Topology, proxy *topology.Component) []string {
	groups := map[string]bool{
		"system:authenticated": true, "system:serviceaccounts": true, "system:serviceaccounts:*": true,
		pki.GroupAdmin: true,
	}
	for _, e := range t.Edges() {
		if e.Accept != topology.ClientCA ||
			!slices.ContainsFunc(e.Servers, func(s topology.Endpoint) bool { return s.Component == proxy.ID() }) {
			continue
		}
		for _, id := range e.Clients {
			if id == topology.Self {
				continue
			}
			for _, cert := range pki.CertsOf(t, t.Component(id)) {
				for _, g := range cert.Orgs {
					groups[g] = groups[g] || cert.Name == e.Cert
				}
			}
		}
	}
	maps.DeleteFunc(groups, func(_ string, needed bool) bool { return !needed })
	return slices.Sorted(maps.Keys(groups))
}

// commaSeparated joins lists for a flag that reads a line of CSV, each value once. Quoting the whole value, as in a
// shell, would make it a single group.
func commaSeparated(lists ...[]string) string {
	var values []string
	for _, v := range slices.Concat(lists...) {
		if !slices.Contains(values, v) {
			values = append(values, v)
		}
	}
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	_ = w.Write(values) // a buffer does not fail
	w.Flush()
	return strings.TrimSuffix(b.String(), "\n")
}

// config adds the ConfigMap with the configuration files of a component, if there are any. It returns the sources of
// these files, and of those that are in Secrets and ConfigMaps of the user.
func (b *objects) config() []source {
	var items []item
	var srcs []source
	for _, files := range []func() ([]item, []source){b.proxying, b.tokens, b.authorization, b.audit, b.custom} {
		own, referred := files()
		items, srcs = append(items, own...), append(referred, srcs...)
	}
	if len(items) > 0 {
		name, content := b.c.Object(topology.ConfigPart), map[string]string{}
		for _, i := range items {
			content[i.key] = string(i.content)
		}
		b.add(configMapTemplate, b.data(name, "", content))
		srcs = append([]source{{configMap: name, items: items}}, srcs...)
	}
	return srcs
}

// proxying returns the files with which a front-proxy dials servers and verifies service accounts.
func (b *objects) proxying() (items []item, srcs []source) {
	if b.c.Kind != topology.FrontProxy {
		return nil, nil
	}
	items = append(items, item{pathMappingFile, files.Config(pathMappingFile), b.pathMapping()})
	mapped, referred := mappedFiles(b.c)
	items, srcs = append(items, mapped...), append(externalServing(b.c), referred...)
	if b.c.Authentication.ServiceAccounts {
		// Not from the Secret, which has the private key too.
		items = append(items, item{serviceAccountPublic, files.ServiceAccount(serviceAccountPublic),
			b.r.state.ServiceAccount.Public})
	}
	return items, srcs
}

// tokens returns the files with which a front-proxy or a shard authenticates tokens of users.
func (b *objects) tokens() (items []item, srcs []source) {
	a := b.c.Authentication
	switch {
	case a == nil:
		return nil, nil
	case a.UsesFile():
		items = append(items, item{authenticationFile, files.Config(authenticationFile),
			toYAML(authenticationConfiguration(*a))})
	case a.OIDC != nil && a.OIDC.CA != "":
		items = append(items, item{oidcCAFile, files.Config(oidcCAFile), []byte(a.OIDC.CA)})
	}
	return items, userFiles(*a)
}

// userFiles are the files that the setup file refers to.
func userFiles(a topology.Authentication) []source {
	var srcs []source
	if o := a.OIDC; o != nil && o.CAFrom != nil && !a.UsesFile() {
		srcs = append(srcs, fromKey(*o.CAFrom, files.Config(oidcCAFile)))
	}
	if w := a.Webhook; w != nil {
		srcs = append(srcs, source{secret: w.Secret, items: []item{{key: w.Key, path: files.Config(webhookFile)}}})
	}
	if f := a.TokenFile; f != nil {
		srcs = append(srcs, source{secret: f.Secret, items: []item{{key: f.Key, path: files.Config(tokensFile)}}})
	}
	return srcs
}

// authenticationConfiguration returns the content of an AuthenticationConfiguration. All supported releases of kcp read
// v1beta1.
func authenticationConfiguration(a topology.Authentication) dict {
	out := dict{"apiVersion": "apiserver.config.k8s.io/v1beta1", "kind": "AuthenticationConfiguration"}
	switch {
	case a.Config != nil:
		out["jwt"] = a.Config.JWT
	case a.OIDC != nil:
		out["jwt"] = []v1alpha1.JWTAuthenticator{jwtOf(a.OIDC)}
	}
	if !a.Anonymous {
		var paths []dict
		for _, p := range topology.HealthPaths {
			paths = append(paths, dict{"path": p})
		}
		out["anonymous"] = dict{"enabled": true, "conditions": paths}
	}
	return out
}

// jwtOf returns what the flags for OIDC mean in an AuthenticationConfiguration (k8s:
// pkg/kubeapiserver/options/authentication.go). It accepts all algorithms of signatures.
func jwtOf(o *v1alpha1.OIDC) v1alpha1.JWTAuthenticator {
	prefix := o.UsernamePrefix
	if prefix == "-" {
		prefix = ""
	}
	j := v1alpha1.JWTAuthenticator{
		Issuer: v1alpha1.Issuer{URL: o.IssuerURL, CertificateAuthority: o.CA, Audiences: []string{o.ClientID}},
		ClaimMappings: v1alpha1.ClaimMappings{Username: v1alpha1.PrefixedClaim{Claim: o.UsernameClaim,
			Prefix: &prefix}},
	}
	if o.GroupsClaim != "" {
		j.ClaimMappings.Groups = &v1alpha1.PrefixedClaim{Claim: o.GroupsClaim, Prefix: &o.GroupsPrefix}
	}
	for _, claim := range slices.Sorted(maps.Keys(o.RequiredClaims)) {
		j.ClaimValidationRules = append(j.ClaimValidationRules,
			v1alpha1.ClaimValidationRule{Claim: claim, RequiredValue: o.RequiredClaims[claim]})
	}
	return j
}
