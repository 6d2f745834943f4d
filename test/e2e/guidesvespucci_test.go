//go:build e2e && long

package e2e

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/test/oidc"
)

// publicCA matches the certificate of the public authority in the example.
var publicCA = regexp.MustCompile(`(?m)^ {6}ca: \|\n(?: {8}.*\n)+`)

// TestClusterGuideVespucci runs examples/vespucci.yaml: the front-proxy has a certificate that is not of the setup, as
// one of Let's Encrypt, and clients reach the shards.
func TestClusterGuideVespucci(t *testing.T) {
	g := newGuide(t, "vespucci", nil)
	const host, server = "api.vespucci.example.com", "https://api.vespucci.example.com:6443"
	ca, serving := oidc.Certificates(t, host)
	g.text = publicCA.ReplaceAllString(g.text, "      ca: "+asJSON(t, string(ca))+"\n")
	g.write(t, g.text)
	place := g.places[0]
	for _, part := range []struct {
		name string
		do   func(t *testing.T)
	}{
		{"up needs the certificate", func(t *testing.T) {
			g.kcpctl(t, "up").refused(t, 1, "api-tls")
			require.Empty(t, g.left(t.Context(), t))
		}},
		{"up shows the DNS records while it waits for them", func(t *testing.T) {
			key, err := x509.MarshalPKCS8PrivateKey(serving.PrivateKey)
			require.NoError(t, err)
			secret := object("v1", "Secret", "api-tls")
			secret["type"] = "kubernetes.io/tls"
			secret["stringData"] = map[string]string{
				"tls.crt": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: serving.Certificate[0]})),
				"tls.key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})),
			}
			place.makeNamespace(t)
			place.apply(t, "e2e", secret)
			require.Equal(t, []string{"alpha.vespucci.example.com", host, "root.vespucci.example.com"}, g.upWithRecords(t))
			g.lead(t, map[string]string{
				host + ":6443": "front-proxy-main", "root.vespucci.example.com:6443": "root", "alpha.vespucci.example.com:6443": "shard-alpha",
			})
		}},
		{"status", func(t *testing.T) { isReady(t, g.setup) }},
		{"checks pass", func(t *testing.T) { g.check(t, "--wait", "1m").passes(t) }},
		{"workspaces on every shard", func(t *testing.T) { g.createWorkspaces(t, "root", "alpha") }},
		{"users log in, and verify the certificate with its own authority", func(t *testing.T) {
			g.access(t)
			g.ca = x509.NewCertPool()
			require.True(t, g.ca.AppendCertsFromPEM(ca))
			g.logsIn(t, server)
		}},
		{"virtual workspaces are reached from outside", func(t *testing.T) {
			require.Equal(t, server, g.connect(t, "--user", "e2e", "--group", "system:kcp:admin", "--workspace", "root"))
			const path = ".vespucci.example.com:6443/services/apiexport/root/tenancy.kcp.io"
			g.hasVirtualWorkspaces(t, "https://alpha"+path, "https://root"+path)
		}},
		{"a second up writes nothing", func(t *testing.T) { changesNothing(t, g.setup) }},
		{"down --purge leaves what it has not created", func(t *testing.T) {
			g.kcpctl(t, "down", "--yes", "--purge").ok(t).quiet(t)
			eventually(t.Context(), t, func() error { // volumes are deleted after their claims
				if left := g.left(t.Context(), t); !slices.Equal(left, []string{"Secret/api-tls", "Namespace/" + place.namespace}) {
					return fmt.Errorf("left: %v", left)
				}
				return nil
			})
			place.kubectl("delete", "namespace", place.namespace).run(t.Context(), t).ok(t)
		}},
	} {
		step(t, part.name, part.do)
	}
}
