//go:build e2e && long

package e2e

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

	"github.com/kcpctl/kcpctl/test/oidc"
)

// TestClusterGuideComer runs examples/comer.yaml: users log in through an edge that terminates TLS, administrators and
// shards use client certificates at the other front-proxy.
func TestClusterGuideComer(t *testing.T) {
	g := newGuide(t, "comer", nil)
	e := newEdge(t, "api.comer.example.com")
	g.text = strings.Replace(g.text, "serving: {edge: true}", "serving: {edge: true, ca: "+asJSON(t, string(e.ca))+"}", 1)
	g.write(t, g.text)
	const users, internal = "https://api.comer.example.com:443", "https://internal.comer.example.com:6443"
	for _, part := range []struct {
		name string
		do   func(t *testing.T)
	}{
		{"up shows the DNS records while it waits for them", func(t *testing.T) {
			require.Equal(t, []string{"alpha.comer.example.com", "api.comer.example.com", "internal.comer.example.com", "root.comer.example.com"},
				g.upWithRecords(t))
			g.lead(t, map[string]string{
				"internal.comer.example.com:6443": "front-proxy-internal", "root.comer.example.com:6443": "root", "alpha.comer.example.com:6443": "shard-alpha",
			})
			require.Equal(t, []string{"front-proxy-internal", "front-proxy-users", "root", "shard-alpha"}, g.openly(t))
		}},
		{"status", func(t *testing.T) { isReady(t, g.setup) }},
		{"checks pass", func(t *testing.T) { g.check(t, "--wait", "1m").passes(t) }},
		{"workspaces on every shard", func(t *testing.T) { g.createWorkspaces(t, "root", "alpha") }},
		{"virtual workspaces are reached from outside", func(t *testing.T) {
			require.Equal(t, internal, g.connect(t, "--user", "e2e", "--group", "system:kcp:admin", "--workspace", "root"))
			const path = ".comer.example.com:6443/services/apiexport/root/tenancy.kcp.io"
			g.hasVirtualWorkspaces(t, "https://alpha"+path, "https://root"+path)
		}},
		{"users log in through the edge", func(t *testing.T) {
			e.start(t, g)
			g.access(t)
			g.ca.AppendCertsFromPEM(e.ca)
			g.logsIn(t, users)
			require.Equal(t, http.StatusUnauthorized, g.whoAmI(t, internal, team, g.alice(t)).code, "the other front-proxy does not know the issuer")
		}},
		{"client certificates end at the edge", func(t *testing.T) {
			require.Equal(t, http.StatusCreated, g.whoAmI(t, internal, team, request{certificate: true}).code)
			require.Equal(t, http.StatusUnauthorized, g.whoAmI(t, users, team, request{certificate: true}).code)
			g.kcpctl(t, "kubeconfig", "--user", "e2e", "--target", "front-proxy/users").refused(t, 2, "front-proxy/users", "--oidc")
			g.lead(t, map[string]string{"api.comer.example.com:443": "front-proxy-users"}) // past the edge
			require.Equal(t, http.StatusUnauthorized, g.whoAmI(t, users, team, request{certificate: true}).code)
			e.lead(g)
		}},
		{"identities cannot be forged", func(t *testing.T) {
			forged := g.alice(t)
			forged.headers = map[string]string{"X-Remote-User": "root", "X-Remote-Group": "system:masters"}
			got := g.whoAmI(t, users, team, forged)
			require.Equal(t, "oidc:alice@example.com", got.name)
			require.NotContains(t, got.groups, "system:masters")
			for _, server := range []string{users, internal} {
				require.Equal(t, http.StatusUnauthorized, g.whoAmI(t, server, team, request{headers: forged.headers}).code)
			}
		}},
		{"a second up writes nothing", func(t *testing.T) { changesNothing(t, g.setup) }},
		{"down --purge leaves nothing", func(t *testing.T) { leavesNothing(t, g.setup) }},
	} {
		step(t, part.name, part.do)
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

// start starts the edge in front of the front-proxy users, which it verifies with the server CA of the setup.
func (e *edge) start(t *testing.T, g *guide) {
	t.Helper()
	dir, roots := filepath.Join(t.TempDir(), "pki"), x509.NewCertPool()
	g.certs(t, "export", dir).ok(t)
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
	e.lead(g)
}

// lead lets clients of the host find the edge.
func (e *edge) lead(g *guide) {
	g.names.set(net.JoinHostPort(e.host, "443"), e.Listener.Addr().String())
}
