package framework

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Everywhere has shards accept the tokens too. They refuse anonymous requests, except those of probes, without which up
// would fail.
func (a *Authenticated) Everywhere(t *testing.T) {
	settings, _, _ := strings.Cut(a.Text[strings.Index(a.Text, "oidc: ")+len("oidc: "):], "\n")
	a.Edit(t, "\nspec:\n", "\nspec:\n  authentication: {mode: Everywhere, anonymous: false, oidc: "+settings+"}\n")
	a.Up(t)
	IsReady(t, a.Setup)
	alice := Request{Token: a.Issuer.Token(t, "alice", map[string]any{"groups": []string{"team"}})}
	for _, at := range []struct{ name, server string }{
		{"users", a.users}, {"admins", a.admins}, {"open", a.proxy(t, "open")}, {"the shard", a.shard},
	} {
		Eventually(t.Context(), t, func() error {
			if got := a.WhoAmI(t, at.server, a.cluster, alice); got.Code != http.StatusCreated || got.Name != a.Issuer.URL+"#alice" {
				return fmt.Errorf("%s: HTTP %d: %s", at.name, got.Code, got.Body)
			}
			return nil
		})
		require.Equal(t, http.StatusUnauthorized, a.WhoAmI(t, at.server, a.cluster, Request{}).Code, "%s: no credentials", at.name)
	}
	ChangesNothing(t, a.Setup)
}
