package local

import (
	"testing"

	"github.com/kcpctl/kcpctl/test/e2e/framework"
)

// TestLocalAuthentication compares front-proxies of one kcp: the tokens of an issuer are valid only at those that have
// it, and its users reach a shard with their own name and groups.
func TestLocalAuthentication(t *testing.T) {
	a := framework.NewAuthenticated(t)
	for _, part := range []struct {
		name string
		do   func(*testing.T)
	}{
		{"up", func(t *testing.T) { a.Up(t) }},
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
