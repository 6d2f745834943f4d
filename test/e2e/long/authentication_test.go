package long

import (
	"testing"

	"github.com/kcpctl/kcpctl/test/e2e/framework"
)

// authenticates compares the front-proxies of a kcp that runs.
func authenticates(t *testing.T, a *framework.Authenticated) {
	t.Helper()
	for _, part := range []struct {
		name string
		do   func(*testing.T)
	}{
		{"a workspace for a group of the issuer", a.CreateWorkspace},
		{"tokens of the issuer", a.Tokens},
		{"forged identities", a.Forged},
		{"tokens of service accounts", a.ServiceAccounts},
		{"client certificates", a.Certificates},
		{"two issuers, and groups that are dropped", a.Issuers},
		{"a webhook, and the only groups that are passed on", a.Webhook},
		{"paths of another server", a.OtherPaths},
		{"a front-proxy without authentication", a.Open},
		{"a kubeconfig to log in with", a.Login},
	} {
		framework.Step(t, part.name, part.do)
	}
}
