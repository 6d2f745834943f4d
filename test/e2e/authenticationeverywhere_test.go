//go:build e2e && long && day2

package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLocalAuthenticationEverywhere has all servers of kcp accept tokens, after front-proxies that differ.
func TestLocalAuthenticationEverywhere(t *testing.T) {
	a := newAuthenticated(t)
	a.up(t)
	step(t, "a workspace for a group of the issuer", a.createWorkspace)
	step(t, "everywhere, without anonymous requests", a.everywhere)
}

// everywhere has shards accept the tokens too. They refuse anonymous requests, except those of probes, without which up
// would fail.
func (a *authenticated) everywhere(t *testing.T) {
	settings, _, _ := strings.Cut(a.text[strings.Index(a.text, "oidc: ")+len("oidc: "):], "\n")
	a.edit(t, "\nspec:\n", "\nspec:\n  authentication: {mode: Everywhere, anonymous: false, oidc: "+settings+"}\n")
	a.up(t)
	isReady(t, a.setup)
	alice := request{token: a.issuer.Token(t, "alice", map[string]any{"groups": []string{"team"}})}
	for _, at := range []struct{ name, server string }{
		{"users", a.users}, {"admins", a.admins}, {"open", a.proxy(t, "open")}, {"the shard", a.shard},
	} {
		eventually(t.Context(), t, func() error {
			if got := a.whoAmI(t, at.server, a.cluster, alice); got.code != http.StatusCreated || got.name != a.issuer.URL+"#alice" {
				return fmt.Errorf("%s: HTTP %d: %s", at.name, got.code, got.body)
			}
			return nil
		})
		require.Equal(t, http.StatusUnauthorized, a.whoAmI(t, at.server, a.cluster, request{}).code, "%s: no credentials", at.name)
	}
	changesNothing(t, a.setup)
}
