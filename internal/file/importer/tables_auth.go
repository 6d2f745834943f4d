package importer

import (
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
)

// defaultVersion is the version of the TokenReview API that kcp uses without a flag (k8s:
// pkg/kubeapiserver/options/authentication.go).
const defaultVersion = "v1beta1"

// tokenRows returns the rows of the authentication of tokens, which shards and front-proxies have.
func tokenRows(to string) []row {
	const oidc = "spec.auth.oidc."
	oidcText := func(name string, field func(*v1alpha1.OIDC) *string) row {
		return mapped(oidc+name, to+"oidc."+name, into(func(o *object) *string { return field(o.oidc()) }))
	}
	return []row{
		oidcText("issuerURL", func(o *v1alpha1.OIDC) *string { return &o.IssuerURL }),
		oidcText("clientID", func(o *v1alpha1.OIDC) *string { return &o.ClientID }),
		oidcText("usernameClaim", func(o *v1alpha1.OIDC) *string { return &o.UsernameClaim }),
		oidcText("usernamePrefix", func(o *v1alpha1.OIDC) *string { return &o.UsernamePrefix }),
		oidcText("groupsClaim", func(o *v1alpha1.OIDC) *string { return &o.GroupsClaim }),
		oidcText("groupsPrefix", func(o *v1alpha1.OIDC) *string { return &o.GroupsPrefix }),
		mapped(oidc+"caFileRef", to+"oidc.caFrom", secretKey(func(o *object, name, key string) {
			o.oidc().CAFrom = &v1alpha1.KeyReference{Secret: name, Key: key}
		})),
		mapped("spec.auth.tokenAuthFile", to+"tokenFile", secretKey(func(o *object, name, key string) {
			if key == "" {
				key = "token.csv" // the default of kcp-operator
			}
			o.auth.TokenFile = &v1alpha1.SecretKey{Secret: name, Key: key}
		})),
		mapped("spec.auth.webhook.configSecretName", to+"webhook.secret",
			into(func(o *object) *string { return &o.webhook().Secret })),
		mapped("spec.auth.webhook.version", to+"webhook.version",
			into(func(o *object) *string { return &o.webhook().Version })),
		mapped("spec.auth.webhook.cacheAuthenticationTTL", to+"webhook.cacheTTL",
			into(func(o *object) *metav1.Duration { return &o.webhook().CacheTTL })),
	}
}

// What dropped groups mean.
const (
	replacesGroups = "the input replaces kcp's list of removed groups, and kcpctl adds to it"
	checkGroups    = "check that no client needs one of kcp's groups"
)

// frontProxyAuthRows returns the rows of the authentication of front-proxies.
func frontProxyAuthRows() []row {
	return append(tokenRows("authentication."),
		needless("spec.auth.oidc.clientSecret", "no server uses it"),
		mapped("spec.auth.dropGroups", "authentication.dropGroups",
			into(func(o *object) *[]string { return &o.auth.DropGroups })).
			but(replacesGroups, checkGroups),
		mapped("spec.auth.passOnGroups", "authentication.passOnGroups",
			into(func(o *object) *[]string { return &o.auth.PassOnGroups })).
			but("kcpctl adds the groups that the setup needs", "check the list with kcpctl render"),
		mapped("spec.auth.serviceAccount.enabled", "authentication.serviceAccounts", enabled))
}

// shardAuthRows returns the rows of the authentication of shards: the authentication of the setup, or flags of each
// shard.
func shardAuthRows() []row {
	flags := newBranch(shardAuthFlags())
	rows := tokenRows("spec.authentication.")
	for i := range rows {
		set := rows[i].set
		path := rows[i].path
		rows[i].note = "if all shards and front-proxies authenticate the same tokens, else extraArgs"
		rows[i].set = func(v value) {
			set(v)
			v.o.authFlags = append(v.o.authFlags, func() {
				at := flags
				for segment := range strings.SplitSeq(path, ".") {
					at = at.child(segment)
				}
				at.row.set(v)
				v.o.origins[at.row.to] = v
			})
		}
	}
	const ignored = "kcp-operator ignores it on shards"
	return append(rows,
		needless("spec.auth.oidc.clientSecret", "no server uses it"),
		needless("spec.auth.dropGroups", ignored), needless("spec.auth.passOnGroups", ignored),
		needless("spec.auth.serviceAccount.enabled",
			"all shards of a setup accept the service-account tokens of each other"))
}

// shardAuthFlags returns the rows of the flags of a shard for the authentication of tokens.
func shardAuthFlags() []row {
	rows := append(
		flagRows("spec.auth.oidc.", "oidc-", [][2]string{
			{"clientID", "client-id"}, {"groupsClaim", "groups-claim"}, {"groupsPrefix", "groups-prefix"},
			{"issuerURL", "issuer-url"},
			{"usernameClaim", "username-claim"}, {"usernamePrefix", "username-prefix"},
		}),
		mapped("spec.auth.oidc.caFileRef", "extraArgs", oidcCA("ca.crt").referred()),
		mapped("spec.auth.tokenAuthFile", "extraArgs",
			mountedFile{flag: "token-auth-file", volume: "token-auth-file", key: "token.csv"}.referred()),
		mapped("spec.auth.webhook.configSecretName", "extraArgs", mountedFile{
			flag: "authentication-token-webhook-config-file", volume: "authentication-webhook", key: "kubeconfig",
		}.named()))
	return append(rows, flagRows("spec.auth.webhook.", "authentication-token-webhook-", [][2]string{
		{"cacheAuthenticationTTL", "cache-ttl"}, {"version", "version"},
	})...)
}

// oidc returns the issuer of an object, and adds it if there is none yet.
func (o *object) oidc() *v1alpha1.OIDC {
	if o.auth.OIDC == nil {
		o.auth.OIDC = &v1alpha1.OIDC{}
	}
	return o.auth.OIDC
}

// webhook returns the webhook of an object, and adds it if there is none yet.
func (o *object) webhook() *v1alpha1.AuthenticationWebhook {
	if o.auth.Webhook == nil {
		o.auth.Webhook = &v1alpha1.AuthenticationWebhook{Version: defaultVersion}
	}
	return o.auth.Webhook
}

// secretKey returns the mapping of a field with the name of a Secret and a key.
func secretKey(set func(o *object, name, key string)) func(value) {
	return func(v value) {
		var r reference
		switch {
		case !v.decode(&r):
		case r.Name+r.SecretName == "":
			v.fail("required: the name of the Secret", "")
		default:
			set(v.o, r.Name+r.SecretName, r.Key)
		}
	}
}

// enabled maps service-account tokens.
func enabled(v value) {
	var on bool
	if v.decode(&on) {
		v.o.auth.ServiceAccounts = &on
	}
}

// withoutServiceAccounts refuses the tokens of service accounts at a front-proxy of kcp-operator that does not enable
// them: by default, a front-proxy of kcpctl that authenticates other tokens accepts them, too. Without them and without
// other tokens, kcp ignores a webhook (kcp: pkg/proxy/options/authentication.go, AdditionalAuthEnabled).
func (o *object) withoutServiceAccounts() {
	accepts := o.auth.ServiceAccounts != nil && *o.auth.ServiceAccounts
	if o.auth.Webhook != nil && o.auth.OIDC == nil && o.auth.TokenFile == nil && !accepts {
		o.findAt("authentication.webhook.", "kcp ignores the webhook of a front-proxy that accepts no other tokens",
			"to use it, set authentication.webhook of the front-proxy, and serviceAccounts: true")
		o.auth.Webhook = nil
	}
	if o.auth.ServiceAccounts == nil && o.auth.TokenAuthentication != (v1alpha1.TokenAuthentication{}) {
		o.auth.ServiceAccounts = new(false)
	}
}

// authentication decides how shards authenticate tokens. If all shards and front-proxies of kcp-operator authenticate
// the same ones, that is the authentication of the setup. Otherwise each shard has flags, because a setup has only one
// authentication for all shards.
func (a *assembly) authentication() {
	shards := append([]*object{a.root}, a.reader.of(kindShard)...)
	proxies := a.reader.of(kindFrontProxy)
	for _, o := range proxies {
		o.withoutServiceAccounts()
	}
	tokens := a.root.auth.TokenAuthentication
	differs := func(o *object) bool { return !reflect.DeepEqual(o.auth.TokenAuthentication, tokens) }
	if tokens == (v1alpha1.TokenAuthentication{}) || len(proxies) == 0 ||
		slices.ContainsFunc(slices.Concat(shards, proxies), differs) {
		for _, o := range shards {
			for _, set := range o.authFlags {
				set()
			}
		}
		return
	}
	a.everywhere(a.root, tokens)
	for _, o := range proxies {
		o.auth.TokenAuthentication = v1alpha1.TokenAuthentication{}
	}
}

// everywhere sets the tokens that all shards and front-proxies authenticate.
func (a *assembly) everywhere(o *object, tokens v1alpha1.TokenAuthentication) {
	a.setup.Spec.Authentication.Mode = v1alpha1.AuthenticationModeEverywhere
	a.setup.Spec.Authentication.TokenAuthentication = tokens
	o.comment("spec.authentication.mode", "All shards and front-proxies authenticate the same tokens.")
}
