package day2

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/test/e2e/framework"
	"github.com/kcpctl/kcpctl/test/oidc"
)

// TestClusterGuideComer runs examples/comer.yaml: users log in through an edge that terminates TLS, administrators and
// shards use client certificates at the other front-proxy.
func TestClusterGuideComer(t *testing.T) {
	g := newGuide(t, "comer", nil)
	e := newEdge(t, "api.comer.example.com")
	g.Text = strings.Replace(g.Text, "serving: {edge: true}", "serving: {edge: true, ca: "+framework.AsJSON(t, string(e.ca))+"}", 1)
	g.Write(t, g.Text)
	const users, internal = "https://api.comer.example.com:443", "https://internal.comer.example.com:6443"
	for _, part := range []struct {
		name string
		do   func(t *testing.T)
	}{
		{"up shows the DNS records while it waits for them", func(t *testing.T) {
			require.Equal(t, []string{"alpha.comer.example.com", "api.comer.example.com", "internal.comer.example.com", "root.comer.example.com"},
				g.upWithRecords(t))
			g.Lead(t, map[string]string{
				"internal.comer.example.com:6443": "front-proxy-internal", "root.comer.example.com:6443": "root", "alpha.comer.example.com:6443": "shard-alpha",
			})
			require.Equal(t, []string{"front-proxy-internal", "front-proxy-users", "root", "shard-alpha"}, g.openly(t))
		}},
		{"status", func(t *testing.T) { framework.IsReady(t, g.Setup) }},
		{"checks pass", func(t *testing.T) { g.Check(t, "--wait", "1m").Passes(t) }},
		{"workspaces on every shard", func(t *testing.T) { g.CreateWorkspaces(t, "root", "alpha") }},
		{"virtual workspaces are reached from outside", func(t *testing.T) {
			require.Equal(t, internal, g.Connect(t, "--user", "e2e", "--group", "system:kcp:admin", "--workspace", "root"))
			const path = ".comer.example.com:6443/services/apiexport/root/tenancy.kcp.io"
			g.hasVirtualWorkspaces(t, "https://alpha"+path, "https://root"+path)
		}},
		{"users log in through the edge", func(t *testing.T) {
			e.Start(t, g)
			g.access(t)
			g.Ca.AppendCertsFromPEM(e.ca)
			g.logsIn(t, users)
			require.Equal(t, http.StatusUnauthorized, g.WhoAmI(t, internal, framework.Team, g.alice(t)).Code, "the other front-proxy does not know the issuer")
		}},
		{"client certificates end at the edge", func(t *testing.T) {
			require.Equal(t, http.StatusCreated, g.WhoAmI(t, internal, framework.Team, framework.Request{Certificate: true}).Code)
			require.Equal(t, http.StatusUnauthorized, g.WhoAmI(t, users, framework.Team, framework.Request{Certificate: true}).Code)
			g.Kcpctl(t, "kubeconfig", "--user", "e2e", "--target", "front-proxy/users").Refused(t, 2, "front-proxy/users", "--oidc")
			g.Lead(t, map[string]string{"api.comer.example.com:443": "front-proxy-users"}) // past the edge
			require.Equal(t, http.StatusUnauthorized, g.WhoAmI(t, users, framework.Team, framework.Request{Certificate: true}).Code)
			e.Lead(g)
		}},
		{"identities cannot be forged", func(t *testing.T) {
			forged := g.alice(t)
			forged.Headers = map[string]string{"X-Remote-User": "root", "X-Remote-Group": "system:masters"}
			got := g.WhoAmI(t, users, framework.Team, forged)
			require.Equal(t, "oidc:alice@example.com", got.Name)
			require.NotContains(t, got.Groups, "system:masters")
			for _, server := range []string{users, internal} {
				require.Equal(t, http.StatusUnauthorized, g.WhoAmI(t, server, framework.Team, framework.Request{Headers: forged.Headers}).Code)
			}
		}},
		{"a second up writes nothing", func(t *testing.T) { framework.ChangesNothing(t, g.Setup) }},
		{"down --purge leaves nothing", func(t *testing.T) { framework.LeavesNothing(t, g.Setup) }},
	} {
		framework.Step(t, part.name, part.do)
	}
}

// edge terminates TLS with a certificate of its own, and sends requests to a front-proxy, as a CDN does.
type edge struct {
	*httptest.Server
	host    string
	ca      []byte
	serving tls.Certificate
}

func newEdge(t *testing.T, host string) *edge {
	t.Helper()
	e := &edge{host: host}
	e.ca, e.serving = oidc.Certificates(t, host)
	t.Cleanup(func() {
		if e.Server != nil {
			e.Close()
		}
	})
	return e
}

// Start starts the edge in front of the front-proxy users, which it verifies with the server CA of the setup.
func (e *edge) Start(t *testing.T, g *guide) {
	t.Helper()
	dir, roots := filepath.Join(t.TempDir(), "pki"), x509.NewCertPool()
	g.Certs(t, "export", dir).OK(t)
	ca, err := os.ReadFile(filepath.Join(dir, "ca", "server.crt"))
	require.NoError(t, err)
	require.True(t, roots.AppendCertsFromPEM(ca))
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{
		Scheme: "https", Host: net.JoinHostPort(balancer(g.services(t)["front-proxy-users"]), "443"),
	})
	proxy.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: e.host, MinVersion: tls.VersionTLS12}}
	e.Server = httptest.NewUnstartedServer(proxy)
	// It asks for client certificates, and does not pass them on.
	e.TLS = &tls.Config{Certificates: []tls.Certificate{e.serving}, ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
	e.StartTLS()
	e.Lead(g)
}

// Lead lets clients of the host find the edge.
func (e *edge) Lead(g *guide) {
	g.names.Set(net.JoinHostPort(e.host, "443"), e.Listener.Addr().String())
}
