package framework

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/test/oidc"
)

// AsJSON returns a value for a setup file, in one line.
func AsJSON(t *testing.T, value any) string {
	t.Helper()
	raw, err := json.Marshal(value)
	require.NoError(t, err)
	return string(raw)
}

// otherPath is the beginning of the paths of a server that is not kcp.
const otherPath = "/services/other/"

// otherServer is a server that is not kcp. Front-proxies ask it about tokens, and send it requests for its own paths,
// which it answers with what it knows about the client.
type otherServer struct {
	*httptest.Server
	// asked is how many tokens it was asked about.
	asked atomic.Int32
}

// seen is what the server knows about a request.
type seen struct {
	Path string
	// Certificate is the client certificate, in DER format.
	Certificate []byte
	Headers     http.Header
}

func startOther(t *testing.T) *otherServer {
	t.Helper()
	o := &otherServer{}
	mux := http.NewServeMux()
	mux.HandleFunc("/tokens", o.review)
	mux.HandleFunc(otherPath, func(w http.ResponseWriter, r *http.Request) {
		s := seen{Path: r.URL.Path, Headers: r.Header}
		if len(r.TLS.PeerCertificates) > 0 {
			s.Certificate = r.TLS.PeerCertificates[0].Raw
		}
		_ = json.NewEncoder(w).Encode(s)
	})
	o.Server = httptest.NewUnstartedServer(mux)
	o.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
	o.StartTLS()
	t.Cleanup(o.Close)
	return o
}

// review answers that the token letmein is that of dave.
func (o *otherServer) review(w http.ResponseWriter, r *http.Request) {
	o.asked.Add(1)
	var review struct{ Spec struct{ Token string } }
	_ = json.NewDecoder(r.Body).Decode(&review) // the answer is no
	status := map[string]any{"authenticated": false}
	if review.Spec.Token == "letmein" {
		status = map[string]any{"authenticated": true, "user": map[string]any{
			"username": "dave", "groups": []string{"asked:team", "elsewhere"},
		}}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "status": status,
	})
}

// ca is the certificate that its own is verified with.
func (o *otherServer) ca() string { return pemOf(o.Server) }

// mapping is an entry of pathMappings.
func (o *otherServer) mapping(t *testing.T) string {
	t.Helper()
	return AsJSON(t, map[string]any{"path": otherPath, "backend": o.URL, "ca": o.ca()})
}

// twoIssuers are the settings for both issuers. Users of the second one need a claim, and their name is an expression.
func (a *Authenticated) twoIssuers(t *testing.T) string {
	t.Helper()
	type object = map[string]any
	issuer := func(i *oidc.Issuer) object {
		return object{"url": i.URL, "certificateAuthority": string(i.CA), "audiences": []string{oidc.ClientID}}
	}
	groups := func(prefix string) object { return object{"claim": "groups", "prefix": prefix} }
	return AsJSON(t, object{"jwt": []object{
		{"issuer": issuer(a.Issuer), "claimMappings": object{"username": object{"claim": "sub", "prefix": "first:"}, "groups": groups("oidc:")}},
		{
			"issuer":               issuer(a.second),
			"claimValidationRules": []object{{"expression": "claims.tenant == 'blue'", "message": "another tenant"}},
			"claimMappings":        object{"username": object{"expression": "'second:' + claims.sub"}, "groups": groups("second:")},
		},
	}})
}

// proxy returns the URL of a front-proxy.
func (a *Authenticated) proxy(t *testing.T, name string) string {
	t.Helper()
	for _, c := range a.Status(t).Components {
		if c.ID == "front-proxy/"+name {
			return strings.TrimSuffix(c.URL, "/")
		}
	}
	require.Fail(t, "no front-proxy "+name)
	return ""
}

func (a *Authenticated) Issuers(t *testing.T) {
	proxy := a.proxy(t, "issuers")
	groups := []string{"team", "secret-plans"}
	for _, want := range []struct {
		token, name string
		groups      []string
	}{
		{a.Issuer.Token(t, "alice", map[string]any{"groups": groups}), "first:alice", []string{"oidc:team", "oidc:secret-plans"}},
		{a.second.Token(t, "bob", map[string]any{"groups": groups, "tenant": "blue"}), "second:bob", []string{"second:team"}},
	} {
		got := a.accepted(t, proxy, Team, Request{Token: want.token})
		require.Equal(t, want.name, got.Name)
		require.ElementsMatch(t, append(want.groups, "system:authenticated"), got.Groups)
	}
	other := Request{Token: a.second.Token(t, "bob", map[string]any{"groups": groups, "tenant": "green"})}
	require.Equal(t, http.StatusUnauthorized, a.WhoAmI(t, proxy, Team, other).Code, "another tenant")
	a.accepted(t, proxy, Team, Request{Certificate: true})
}

var dave = Request{Token: "letmein"}

func (a *Authenticated) Webhook(t *testing.T) {
	proxy := a.proxy(t, "asking")
	got := a.accepted(t, proxy, Team, dave)
	require.Equal(t, "dave", got.Name)
	require.ElementsMatch(t, []string{"asked:team", "system:authenticated"}, got.Groups)
	require.Equal(t, http.StatusUnauthorized, a.WhoAmI(t, proxy, Team, Request{Token: "wrong"}).Code)
	require.Equal(t, http.StatusUnauthorized, a.WhoAmI(t, a.admins, Team, dave).Code, "the other front-proxy does not ask")
	require.GreaterOrEqual(t, int(a.other.asked.Load()), 2)

	before := a.pair
	a.Connect(t, append([]string{"--group", "elsewhere", "--target", "front-proxy/asking"}, Admin...)...)
	got = a.accepted(t, proxy, Team, Request{Certificate: true})
	require.ElementsMatch(t, []string{"system:kcp:admin", "system:authenticated"}, got.Groups, "what the setup needs is passed on")
	require.Contains(t, a.WhoAmI(t, a.admins, Team, Request{Certificate: true}).Groups, "elsewhere")
	a.pair = before
}

// OtherPaths sends requests for paths of another server. It learns who the client is from headers, which clients cannot
// forge.
func (a *Authenticated) OtherPaths(t *testing.T) {
	proxy, forged := a.proxy(t, "asking"), dave
	forged.Headers = map[string]string{
		"X-Remote-User": "root", "X-Remote-Group": "system:masters", "X-Remote-Extra-Authentication.kcp.io%2fcluster-Name": "root",
	}
	got := a.other.ask(t, a, proxy, forged)
	require.Equal(t, otherPath+"hello", got.Path)
	require.Equal(t, []string{"dave"}, got.Headers.Values("X-Remote-User"))
	require.ElementsMatch(t, []string{"asked:team", "system:authenticated"}, got.Headers.Values("X-Remote-Group"))
	require.NotContains(t, fmt.Sprint(got.Headers), "cluster-Name")

	dir, roots := t.TempDir(), x509.NewCertPool()
	a.Certs(t, "export", filepath.Join(dir, "pki")).OK(t)
	ca, err := os.ReadFile(filepath.Join(dir, "pki", "ca", "requestheader.crt"))
	require.NoError(t, err)
	require.True(t, roots.AppendCertsFromPEM(ca))
	client, err := x509.ParseCertificate(got.Certificate)
	require.NoError(t, err)
	_, err = client.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	require.NoError(t, err, "the server can verify that the headers are from a front-proxy")

	code, _ := a.Send(t, http.MethodGet, proxy+otherPath+"hello", Request{Headers: forged.Headers})
	require.Equal(t, http.StatusUnauthorized, code, "no credentials")
	anonymous := a.other.ask(t, a, a.proxy(t, "open"), Request{Headers: forged.Headers})
	require.NotContains(t, fmt.Sprint(anonymous.Headers), "X-Remote-")
}

// ask sends a request through a front-proxy, and returns what the server knows about it.
func (o *otherServer) ask(t *testing.T, a *Authenticated, proxy string, r Request) (got seen) {
	t.Helper()
	code, body := a.Send(t, http.MethodGet, proxy+otherPath+"hello", r)
	require.Equal(t, http.StatusOK, code, string(body))
	require.NoError(t, json.Unmarshal(body, &got))
	return got
}

// Open sends requests to a front-proxy that passes them on without an identity. Shards know service accounts, and not
// their clients' certificates, which end at the front-proxy.
func (a *Authenticated) Open(t *testing.T) {
	proxy := a.proxy(t, "open")
	account := strings.TrimSpace(a.KubectlAs(t, Admin, "create", "token", "e2e").OK(t).Stdout)
	got := a.accepted(t, proxy, Team, Request{Token: account})
	require.Equal(t, "system:serviceaccount:default:e2e", got.Name)
	forged := map[string]string{"X-Remote-User": "root", "X-Remote-Group": "system:masters"}
	for _, tc := range []struct {
		name string
		Request
	}{
		{"a client certificate", Request{Certificate: true}},
		{"a token of the issuer", Request{Token: a.Issuer.Token(t, "alice", map[string]any{"groups": []string{"team"}})}},
		{"no credentials", Request{}},
		{"a forged identity", Request{Headers: forged}},
		{"a token of the webhook", dave},
		{"a certificate and forged", Request{Certificate: true, Headers: forged}},
	} {
		require.Equal(t, http.StatusUnauthorized, a.WhoAmI(t, proxy, Team, tc.Request).Code, tc.name)
	}
}
