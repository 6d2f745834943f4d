package day2

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/test/e2e/framework"
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
	g.Text = publicCA.ReplaceAllString(g.Text, "      ca: "+framework.AsJSON(t, string(ca))+"\n")
	g.Write(t, g.Text)
	place := g.places[0]
	for _, part := range []struct {
		name string
		do   func(t *testing.T)
	}{
		{"up needs the certificate", func(t *testing.T) {
			g.Kcpctl(t, "up").Refused(t, 1, "api-tls")
			require.Empty(t, g.Left(t.Context(), t))
		}},
		{"up shows the DNS records while it waits for them", func(t *testing.T) {
			key, err := x509.MarshalPKCS8PrivateKey(serving.PrivateKey)
			require.NoError(t, err)
			secret := framework.Object("v1", "Secret", "api-tls")
			secret["type"] = "kubernetes.io/tls"
			secret["stringData"] = map[string]string{
				"tls.crt": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: serving.Certificate[0]})),
				"tls.key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})),
			}
			place.MakeNamespace(t)
			place.Apply(t, "e2e", secret)
			require.Equal(t, []string{"alpha.vespucci.example.com", host, "root.vespucci.example.com"}, g.upWithRecords(t))
			g.Lead(t, map[string]string{
				host + ":6443": "front-proxy-main", "root.vespucci.example.com:6443": "root", "alpha.vespucci.example.com:6443": "shard-alpha",
			})
		}},
		{"status", func(t *testing.T) { framework.IsReady(t, g.Setup) }},
		{"checks pass", func(t *testing.T) { g.Check(t, "--wait", "1m").Passes(t) }},
		{"workspaces on every shard", func(t *testing.T) { g.CreateWorkspaces(t, "root", "alpha") }},
		{"users log in, and verify the certificate with its own authority", func(t *testing.T) {
			g.access(t)
			g.Ca = x509.NewCertPool()
			require.True(t, g.Ca.AppendCertsFromPEM(ca))
			g.logsIn(t, server)
		}},
		{"virtual workspaces are reached from outside", func(t *testing.T) {
			require.Equal(t, server, g.Connect(t, "--user", "e2e", "--group", "system:kcp:admin", "--workspace", "root"))
			const path = ".vespucci.example.com:6443/services/apiexport/root/tenancy.kcp.io"
			g.hasVirtualWorkspaces(t, "https://alpha"+path, "https://root"+path)
		}},
		{"a second up writes nothing", func(t *testing.T) { framework.ChangesNothing(t, g.Setup) }},
		{"down --purge leaves what it has not created", func(t *testing.T) {
			g.Kcpctl(t, "down", "--yes", "--purge").OK(t).Quiet(t)
			framework.Eventually(t.Context(), t, func() error { // volumes are deleted after their claims
				if left := g.Left(t.Context(), t); !slices.Equal(left, []string{"Secret/api-tls", "Namespace/" + place.Namespace}) {
					return fmt.Errorf("left: %v", left)
				}
				return nil
			})
			place.Kubectl("delete", "namespace", place.Namespace).Run(t.Context(), t).OK(t)
		}},
	} {
		framework.Step(t, part.name, part.do)
	}
}
