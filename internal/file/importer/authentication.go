package importer

import (
	"reflect"
	"slices"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
)

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
