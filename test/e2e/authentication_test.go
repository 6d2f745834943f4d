//go:build e2e

package e2e

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	neturl "net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/kcpctl/kcpctl/test/oidc"
)

// edges has front-proxies that differ: one for users of an issuer, one for client certificates, one for users of two
// issuers, one that asks a server about tokens, and one that leaves everything to shards. Two of them have paths of
// another server.
const edges = `apiVersion: kcpctl.dev/v1alpha1
kind: Setup
metadata: {name: %[1]s}
spec:
  shards: [{name: alpha}]
  frontProxies:
  - name: users
    authentication:
      clientCertificates: false
      tokenFile: {secret: tokens}
      oidc: %[2]s
  - name: admins
  - name: issuers
    authentication:
      dropGroups: ["second:secret*"]
      config: %[3]s
  - name: asking
    authentication:
      webhook: {secret: webhook, cacheTTL: 1s}
      passOnGroups: ["asked:*"]
    pathMappings: [%[4]s]
  - name: open
    authentication: {none: true}
    pathMappings: [%[4]s]
`

// TestLocalAuthentication compares front-proxies of one kcp: the tokens of an issuer are valid only at those that have
// it, and its users reach a shard with their own name and groups.
func TestLocalAuthentication(t *testing.T) {
	onMachine(t)
	a := newAuthenticated(t)
	for _, part := range []struct {
		name string
		do   func(*testing.T)
	}{
		{"up", func(t *testing.T) { a.up(t) }},
		{"a workspace for a group of the issuer", a.createWorkspace},
		{"tokens of the issuer", a.tokens},
		{"forged identities", a.forged},
		{"tokens of service accounts", a.serviceAccounts},
		{"client certificates", a.certificates},
		{"two issuers, and groups that are dropped", a.issuers},
		{"a webhook, and the only groups that are passed on", a.webhook},
		{"paths of another server", a.otherPaths},
		{"a front-proxy without authentication", a.open},
		{"a kubeconfig to log in with", a.login},
	} {
		step(t, part.name, part.do)
	}
}

type authenticated struct {
	*setup
	issuer, second *oidc.Issuer
	other          *otherServer
	// users and admins are the URLs of the front-proxies, shard that of the shard alpha.
	users, admins, shard string
	cluster              string
	ca                   *x509.CertPool
	// pair is a client certificate of an administrator.
	pair tls.Certificate
	// via is a proxy for requests. Without one they are sent directly.
	via *neturl.URL
}

// newAuthenticated makes a setup with the front-proxies that differ, and what they need.
func newAuthenticated(t *testing.T) *authenticated {
	t.Helper()
	s, issuer := newLocal(t, "minimal"), oidc.Start(t, "127.0.0.1")
	a := &authenticated{setup: s, issuer: issuer, second: oidc.Start(t, "127.0.0.1"), other: startOther(t)}
	s.text = fmt.Sprintf(edges, s.name, asJSON(t, map[string]any{
		"issuerURL": issuer.URL, "clientID": oidc.ClientID, "groupsClaim": "groups", "groupsPrefix": "oidc:", "ca": string(issuer.CA),
	}), a.twoIssuers(t), a.other.mapping(t))
	s.write(t, s.text)
	a.secret(t, "tokens", "tokens.csv", "fixed,carol,1,oidc:team\n")
	a.secret(t, "webhook", "kubeconfig", a.other.kubeconfig(t))
	return a
}

const team = "root:team"

const teamManifest = `---
apiVersion: tenancy.kcp.io/v1alpha1
kind: Workspace
metadata: {name: team}
spec:
  type: {name: universal, path: root}
  location: {selector: {matchLabels: {name: alpha}}}
`

const accessManifest = `---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: team}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: system:kcp:workspace:access}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: Group, name: "oidc:team"}
- {apiGroup: rbac.authorization.k8s.io, kind: Group, name: "second:team"}
- {apiGroup: rbac.authorization.k8s.io, kind: Group, name: "asked:team"}
`

// secret writes a key of a Secret, for which a directory stands.
func (a *authenticated) secret(t *testing.T, name, key, content string) {
	t.Helper()
	dir := filepath.Join(filepath.Dir(a.file), "secrets", name)
	require.NoError(t, os.MkdirAll(dir, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, key), []byte(content), 0o600))
}

// admin is a kubeconfig of an administrator in the workspace.
var admin = []string{"--user", "e2e", "--group", "system:kcp:admin", "--workspace", team}

func (a *authenticated) apply(t *testing.T, manifest string, kubeconfig ...string) {
	t.Helper()
	c := a.command("kubeconfig", append(kubeconfig, "--", "kubectl", "apply", "--filename", "-")...)
	c.stdin = manifest
	eventually(t.Context(), t, func() error { // a front-proxy learns of a workspace after a moment
		if r := c.run(t.Context(), t); r.code != 0 {
			return fmt.Errorf("%s: exit code %d: %s", r.line, r.code, r.stderr)
		}
		return nil
	})
}

func (a *authenticated) createWorkspace(t *testing.T) {
	a.apply(t, teamManifest, "admin")
	a.kubectl(t, "wait", "workspace", "team", "--for=jsonpath={.status.phase}=Ready", "--timeout=3m").ok(t)
	a.apply(t, accessManifest, admin...)

	a.users = a.status(t).URL
	a.ca = x509.NewCertPool()
	a.shard = a.connect(t, "--user", "e2e", "--group", "system:masters", "--target", "shard/alpha")
	a.admins = a.connect(t, admin...) // the last one, because its certificate is used
	var w workspace
	require.NoError(t, json.Unmarshal([]byte(a.kubectl(t, "get", "workspace", "team", "--output", "json").ok(t).stdout), &w))
	a.cluster = w.Spec.Cluster
	require.NotEqual(t, a.users, a.admins)
}

// connect returns the URL in a minted kubeconfig, and takes over its certificates.
func (a *authenticated) connect(t *testing.T, minted ...string) string {
	t.Helper()
	var config struct {
		Clusters []struct {
			Cluster struct {
				Server string
				CA     string `json:"certificate-authority-data"`
			}
		}
		Users []struct {
			User struct {
				Cert string `json:"client-certificate-data"`
				Key  string `json:"client-key-data"`
			}
		}
	}
	require.NoError(t, yaml.Unmarshal([]byte(a.kcpctl(t, "kubeconfig", minted...).ok(t).stdout), &config))
	decode := func(text string) []byte {
		raw, err := base64.StdEncoding.DecodeString(text)
		require.NoError(t, err)
		return raw
	}
	var err error
	a.pair, err = tls.X509KeyPair(decode(config.Users[0].User.Cert), decode(config.Users[0].User.Key))
	require.NoError(t, err)
	require.True(t, a.ca.AppendCertsFromPEM(decode(config.Clusters[0].Cluster.CA)))
	server, _, _ := strings.Cut(config.Clusters[0].Cluster.Server, "/clusters/")
	return server
}

// identity is the answer to a request for the identity of the client.
type identity struct {
	code   int
	name   string
	groups []string
	body   string
}

// request has the credentials of a request.
type request struct {
	token   string
	headers map[string]string
	// certificate presents the client certificate, even if the server does not ask for one of its authority.
	certificate bool
}

// whoAmI asks a server who the client is, in a workspace.
func (a *authenticated) whoAmI(t *testing.T, server, workspace string, r request) identity {
	t.Helper()
	code, body := a.send(t, http.MethodPost, server+"/clusters/"+workspace+"/apis/authentication.k8s.io/v1/selfsubjectreviews", r)
	var review struct {
		Status struct {
			UserInfo struct {
				Username string
				Groups   []string
			}
		}
	}
	_ = json.Unmarshal(body, &review) // an error is text or a Status
	return identity{code, review.Status.UserInfo.Username, review.Status.UserInfo.Groups, string(body)}
}

// accepted waits until a server accepts a request for the identity of the client. After a start, a front-proxy discovers
// issuers and learns of workspaces, and a shard learns of roles.
func (a *authenticated) accepted(t *testing.T, server, workspace string, r request) (got identity) {
	t.Helper()
	eventually(t.Context(), t, func() error {
		if got = a.whoAmI(t, server, workspace, r); got.code != http.StatusCreated {
			return fmt.Errorf("HTTP %d: %s", got.code, got.body)
		}
		return nil
	})
	return got
}

// send sends a request with the body of a SelfSubjectReview, and returns the response.
func (a *authenticated) send(t *testing.T, method, url string, r request) (code int, body []byte) {
	t.Helper()
	config := &tls.Config{RootCAs: a.ca, MinVersion: tls.VersionTLS12}
	if r.certificate {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &a.pair, nil }
	}
	transport := &http.Transport{TLSClientConfig: config, Proxy: func(*http.Request) (*neturl.URL, error) { return a.via, nil }}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), method, url,
		bytes.NewBufferString(`{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}`))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	if r.token != "" {
		req.Header.Set("Authorization", "Bearer "+r.token)
	}
	for k, v := range r.headers {
		req.Header.Set(k, v)
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, body
}

func (a *authenticated) tokens(t *testing.T) {
	alice := request{token: a.issuer.Token(t, "alice", map[string]any{"groups": []string{"team", "system:masters"}})}
	got := a.accepted(t, a.users, team, alice)
	require.Equal(t, a.issuer.URL+"#alice", got.name)
	require.ElementsMatch(t, []string{"oidc:team", "oidc:system:masters", "system:authenticated"}, got.groups)
	require.Equal(t, http.StatusUnauthorized, a.whoAmI(t, a.admins, team, alice).code, "the other front-proxy does not know the issuer")
	require.Equal(t, http.StatusUnauthorized, a.whoAmI(t, a.shard, a.cluster, alice).code, "shards do not know it either")

	carol := a.accepted(t, a.users, team, request{token: "fixed"})
	require.Equal(t, "carol", carol.name)
	require.Equal(t, http.StatusUnauthorized, a.whoAmI(t, a.admins, team, request{token: "fixed"}).code)
	bob := request{token: a.issuer.Token(t, "bob", map[string]any{"groups": []string{"other"}})}
	require.Equal(t, http.StatusForbidden, a.whoAmI(t, a.users, team, bob).code, "a user without permissions")
	other := oidc.Start(t, "127.0.0.1")
	for _, wrong := range []struct{ name, token string }{
		{"signed by another issuer", other.Token(t, "alice", map[string]any{"iss": a.issuer.URL})},
		{"for another client", a.issuer.Token(t, "alice", map[string]any{"aud": "other"})},
		{"that has expired", a.issuer.Token(t, "alice", map[string]any{"exp": time.Now().Add(-time.Hour).Unix()})},
	} {
		require.Equal(t, http.StatusUnauthorized, a.whoAmI(t, a.users, team, request{token: wrong.token}).code, "a token "+wrong.name)
	}
}

// forged sends the headers with which front-proxies pass an identity on to shards.
func (a *authenticated) forged(t *testing.T) {
	headers := map[string]string{
		"X-Remote-User": "root", "X-Remote-Group": "system:masters", "X-Remote-Extra-Authentication.kcp.io%2fcluster-Name": "root",
	}
	require.Equal(t, http.StatusUnauthorized, a.whoAmI(t, a.users, team, request{headers: headers}).code)
	require.Equal(t, http.StatusUnauthorized, a.whoAmI(t, a.admins, team, request{headers: headers}).code)
	anonymous := a.whoAmI(t, a.shard, a.cluster, request{headers: headers})
	require.Equal(t, http.StatusForbidden, anonymous.code)
	require.Contains(t, anonymous.body, "system:anonymous")

	alice := request{token: a.issuer.Token(t, "alice", map[string]any{"groups": []string{"team"}}), headers: headers}
	got := a.accepted(t, a.users, team, alice)
	require.Equal(t, a.issuer.URL+"#alice", got.name)
	require.NotContains(t, got.groups, "system:masters")
	require.NotContains(t, got.body, "cluster-name")
	got = a.accepted(t, a.admins, team, request{certificate: true, headers: headers})
	require.NotEqual(t, "root", got.name)
	require.NotContains(t, got.groups, "system:masters")
}

func (a *authenticated) serviceAccounts(t *testing.T) {
	a.kubectlAs(t, admin, "create", "serviceaccount", "e2e").ok(t)
	account := request{token: strings.TrimSpace(a.kubectlAs(t, admin, "create", "token", "e2e").ok(t).stdout)}
	for _, server := range []string{a.users, a.admins} {
		got := a.accepted(t, server, team, account)
		require.Equal(t, "system:serviceaccount:default:e2e", got.name, server)
		require.Contains(t, got.groups, "system:authenticated", server)
	}
}

func (a *authenticated) certificates(t *testing.T) {
	a.accepted(t, a.admins, team, request{certificate: true})
	require.Equal(t, http.StatusUnauthorized, a.whoAmI(t, a.users, team, request{certificate: true}).code)
	a.kcpctl(t, "kubeconfig", "--user", "e2e", "--target", "front-proxy/users").refused(t, 2, "front-proxy/users", "--oidc")
	a.kcpctl(t, "check", "--wait", "2m").ok(t)
}

// plugin stands for kubelogin, which would open a browser. It records its arguments, and returns a token.
const plugin = `#!/bin/sh
echo "$@" >>%[1]s/arguments
echo '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "%[2]s"}}'
`

func (a *authenticated) login(t *testing.T) {
	dir := t.TempDir()
	token := a.issuer.Token(t, "alice", map[string]any{"groups": []string{"team"}})
	require.NoError(t, os.WriteFile(filepath.Join(dir, "kubectl-oidc_login"), fmt.Appendf(nil, plugin, dir, token), 0o700))
	whoAmI := a.command("kubeconfig", "--oidc", "--workspace", team, "--", "kubectl", "auth", "whoami", "--output", "json")
	whoAmI.env = append(slices.Clone(whoAmI.env), "PATH="+dir+":"+os.Getenv("PATH"))
	got := whoAmI.run(t.Context(), t).ok(t).stdout
	require.Contains(t, got, a.issuer.URL+"#alice")
	require.Contains(t, got, "oidc:team")
	arguments, err := os.ReadFile(filepath.Join(dir, "arguments"))
	require.NoError(t, err)
	require.Contains(t, string(arguments),
		"get-token --oidc-issuer-url="+a.issuer.URL+" --oidc-client-id=kcp --oidc-extra-scope=groups --certificate-authority-data=")
	content := a.kcpctl(t, "kubeconfig", "--oidc").ok(t).stdout
	require.NotContains(t, content, "client-certificate")
	require.NotContains(t, content, "client-key")
	require.Contains(t, content, "server: "+a.users)
	a.kcpctl(t, "kubeconfig", "--oidc", "--target", "front-proxy/admins").refused(t, 2, "front-proxy/users")
}
