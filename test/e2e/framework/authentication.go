package framework

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
// another server. Continues a spec.
const edges = `
  shards: [{name: alpha}]
  frontProxies:
  - name: users
    authentication:
      clientCertificates: false
      tokenFile: {secret: tokens}
      oidc: %[1]s
  - name: admins
  - name: issuers
    authentication:
      dropGroups: ["second:secret*"]
      config: %[2]s
  - name: asking
    authentication:
      webhook: {secret: webhook, cacheTTL: 1s}
      passOnGroups: ["asked:*"]
    pathMappings: [%[3]s]
  - name: open
    authentication: {none: true}
    pathMappings: [%[3]s]
`

type Authenticated struct {
	*Setup
	Issuer, second *oidc.Issuer
	other          *otherServer
	// users and admins are the URLs of the front-proxies, shard that of the shard alpha.
	users, admins, shard string
	cluster              string
	Ca                   *x509.CertPool
	// pair is a client certificate of an administrator.
	pair tls.Certificate
	// Via is a proxy for requests. Without one they are sent directly.
	Via *neturl.URL
}

// NewAuthenticated adds a shard and the front-proxies that differ to an example without them, and makes what they need. The
// example has no spec, or ends with it. Up gets the flags.
func NewAuthenticated(t *testing.T, example string, up ...string) *Authenticated {
	t.Helper()
	s, issuer := NewLocal(t, example, up...), oidc.Start(t, "127.0.0.1")
	a := &Authenticated{Setup: s, Issuer: issuer, second: oidc.Start(t, "127.0.0.1"), other: startOther(t)}
	s.Text = strings.TrimSpace(s.Text)
	if !strings.Contains(s.Text, "\nspec:") {
		s.Text += "\nspec:"
	}
	s.Text += fmt.Sprintf(edges, AsJSON(t, map[string]any{
		"issuerURL": issuer.URL, "clientID": oidc.ClientID, "groupsClaim": "groups", "groupsPrefix": "oidc:", "ca": string(issuer.CA),
	}), a.twoIssuers(t), a.other.mapping(t))
	s.Write(t, s.Text)
	a.Beside(t, "secrets/tokens/tokens.csv", "fixed,carol,1,oidc:team\n")
	a.Beside(t, "secrets/webhook/kubeconfig", webhookKubeconfig(t, a.other.URL+"/tokens", a.other.ca()))
	return a
}

const Team = "root:team"

const TeamManifest = `---
apiVersion: tenancy.kcp.io/v1alpha1
kind: Workspace
metadata: {name: team}
spec:
  type: {name: universal, path: root}
  location: {selector: {matchLabels: {name: alpha}}}
`

const AccessManifest = `---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: team}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: system:kcp:workspace:access}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: Group, name: "oidc:team"}
- {apiGroup: rbac.authorization.k8s.io, kind: Group, name: "second:team"}
- {apiGroup: rbac.authorization.k8s.io, kind: Group, name: "asked:team"}
`

// Admin is a kubeconfig of an administrator in the workspace.
var Admin = []string{"--user", "e2e", "--group", "system:kcp:admin", "--workspace", Team}

func (a *Authenticated) Apply(t *testing.T, manifest string, kubeconfig ...string) {
	t.Helper()
	c := a.Command("kubeconfig", append(kubeconfig, "--", "kubectl", "apply", "--filename", "-")...)
	c.Stdin = manifest
	Eventually(t.Context(), t, func() error { // a front-proxy learns of a workspace after a moment
		if r := c.Run(t.Context(), t); r.Code != 0 {
			return fmt.Errorf("%s: exit code %d: %s", r.Line, r.Code, r.Stderr)
		}
		return nil
	})
}

func (a *Authenticated) CreateWorkspace(t *testing.T) {
	a.Apply(t, TeamManifest, "admin")
	a.Kubectl(t, "wait", "workspace", "team", "--for=jsonpath={.status.phase}=Ready", "--timeout=3m").OK(t)
	a.Apply(t, AccessManifest, Admin...)

	a.users = a.Status(t).URL
	a.Ca = x509.NewCertPool()
	a.shard = a.Connect(t, "--user", "e2e", "--group", "system:masters", "--target", "shard/alpha")
	a.admins = a.Connect(t, Admin...) // the last one, because its certificate is used
	var w Workspace
	require.NoError(t, json.Unmarshal([]byte(a.Kubectl(t, "get", "workspace", "team", "--output", "json").OK(t).Stdout), &w))
	a.cluster = w.Spec.Cluster
	require.NotEqual(t, a.users, a.admins)
}

// Connect returns the URL in a minted kubeconfig, and takes over its certificates.
func (a *Authenticated) Connect(t *testing.T, minted ...string) string {
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
	require.NoError(t, yaml.Unmarshal([]byte(a.Kcpctl(t, "kubeconfig", minted...).OK(t).Stdout), &config))
	decode := func(text string) []byte {
		raw, err := base64.StdEncoding.DecodeString(text)
		require.NoError(t, err)
		return raw
	}
	var err error
	a.pair, err = tls.X509KeyPair(decode(config.Users[0].User.Cert), decode(config.Users[0].User.Key))
	require.NoError(t, err)
	require.True(t, a.Ca.AppendCertsFromPEM(decode(config.Clusters[0].Cluster.CA)))
	server, _, _ := strings.Cut(config.Clusters[0].Cluster.Server, "/clusters/")
	return server
}

// Identity is the answer to a request for the identity of the client.
type Identity struct {
	Code   int
	Name   string
	Groups []string
	Body   string
}

// Request has the credentials of a request.
type Request struct {
	Token   string
	Headers map[string]string
	// Certificate presents the client certificate, even if the server does not ask for one of its authority.
	Certificate bool
}

// WhoAmI asks a server who the client is, in a workspace.
func (a *Authenticated) WhoAmI(t *testing.T, server, workspace string, r Request) Identity {
	t.Helper()
	code, body := a.Send(t, http.MethodPost, server+"/clusters/"+workspace+"/apis/authentication.k8s.io/v1/selfsubjectreviews", r)
	var review struct {
		Status struct {
			UserInfo struct {
				Username string
				Groups   []string
			}
		}
	}
	_ = json.Unmarshal(body, &review) // an error is text or a Status
	return Identity{code, review.Status.UserInfo.Username, review.Status.UserInfo.Groups, string(body)}
}

// accepted waits until a server accepts a request for the identity of the client. After a start, a front-proxy discovers
// issuers and learns of workspaces, and a shard learns of roles.
func (a *Authenticated) accepted(t *testing.T, server, workspace string, r Request) (got Identity) {
	t.Helper()
	Eventually(t.Context(), t, func() error {
		if got = a.WhoAmI(t, server, workspace, r); got.Code != http.StatusCreated {
			return fmt.Errorf("HTTP %d: %s", got.Code, got.Body)
		}
		return nil
	})
	return got
}

// Send sends a request with the body of a SelfSubjectReview, and returns the response.
func (a *Authenticated) Send(t *testing.T, method, url string, r Request) (code int, body []byte) {
	t.Helper()
	config := &tls.Config{RootCAs: a.Ca, MinVersion: tls.VersionTLS12}
	if r.Certificate {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &a.pair, nil }
	}
	transport := &http.Transport{TLSClientConfig: config, Proxy: func(*http.Request) (*neturl.URL, error) { return a.Via, nil }}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), method, url,
		bytes.NewBufferString(`{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}`))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	if r.Token != "" {
		req.Header.Set("Authorization", "Bearer "+r.Token)
	}
	for k, v := range r.Headers {
		req.Header.Set(k, v)
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return 0, []byte(err.Error())
	}
	defer resp.Body.Close()
	if body, err = io.ReadAll(resp.Body); err != nil {
		return 0, []byte(err.Error())
	}
	return resp.StatusCode, body
}

func (a *Authenticated) Tokens(t *testing.T) {
	alice := Request{Token: a.Issuer.Token(t, "alice", map[string]any{"groups": []string{"team", "system:masters"}})}
	got := a.accepted(t, a.users, Team, alice)
	require.Equal(t, a.Issuer.URL+"#alice", got.Name)
	require.ElementsMatch(t, []string{"oidc:team", "oidc:system:masters", "system:authenticated"}, got.Groups)
	require.Equal(t, http.StatusUnauthorized, a.WhoAmI(t, a.admins, Team, alice).Code, "the other front-proxy does not know the issuer")
	require.Equal(t, http.StatusUnauthorized, a.WhoAmI(t, a.shard, a.cluster, alice).Code, "shards do not know it either")

	carol := a.accepted(t, a.users, Team, Request{Token: "fixed"})
	require.Equal(t, "carol", carol.Name)
	require.Equal(t, http.StatusUnauthorized, a.WhoAmI(t, a.admins, Team, Request{Token: "fixed"}).Code)
	bob := Request{Token: a.Issuer.Token(t, "bob", map[string]any{"groups": []string{"other"}})}
	require.Equal(t, http.StatusForbidden, a.WhoAmI(t, a.users, Team, bob).Code, "a user without permissions")
	other := oidc.Start(t, "127.0.0.1")
	for _, wrong := range []struct{ name, token string }{
		{"signed by another issuer", other.Token(t, "alice", map[string]any{"iss": a.Issuer.URL})},
		{"for another client", a.Issuer.Token(t, "alice", map[string]any{"aud": "other"})},
		{"that has expired", a.Issuer.Token(t, "alice", map[string]any{"exp": time.Now().Add(-time.Hour).Unix()})},
	} {
		require.Equal(t, http.StatusUnauthorized, a.WhoAmI(t, a.users, Team, Request{Token: wrong.token}).Code, "a token "+wrong.name)
	}
}

// Forged sends the headers with which front-proxies pass an identity on to shards.
func (a *Authenticated) Forged(t *testing.T) {
	headers := map[string]string{
		"X-Remote-User": "root", "X-Remote-Group": "system:masters", "X-Remote-Extra-Authentication.kcp.io%2fcluster-Name": "root",
	}
	require.Equal(t, http.StatusUnauthorized, a.WhoAmI(t, a.users, Team, Request{Headers: headers}).Code)
	require.Equal(t, http.StatusUnauthorized, a.WhoAmI(t, a.admins, Team, Request{Headers: headers}).Code)
	anonymous := a.WhoAmI(t, a.shard, a.cluster, Request{Headers: headers})
	require.Equal(t, http.StatusForbidden, anonymous.Code)
	require.Contains(t, anonymous.Body, "system:anonymous")

	alice := Request{Token: a.Issuer.Token(t, "alice", map[string]any{"groups": []string{"team"}}), Headers: headers}
	got := a.accepted(t, a.users, Team, alice)
	require.Equal(t, a.Issuer.URL+"#alice", got.Name)
	require.NotContains(t, got.Groups, "system:masters")
	require.NotContains(t, got.Body, "cluster-name")
	got = a.accepted(t, a.admins, Team, Request{Certificate: true, Headers: headers})
	require.NotEqual(t, "root", got.Name)
	require.NotContains(t, got.Groups, "system:masters")
}

func (a *Authenticated) ServiceAccounts(t *testing.T) {
	a.KubectlAs(t, Admin, "create", "serviceaccount", "e2e").OK(t)
	account := Request{Token: strings.TrimSpace(a.KubectlAs(t, Admin, "create", "token", "e2e").OK(t).Stdout)}
	for _, server := range []string{a.users, a.admins} {
		got := a.accepted(t, server, Team, account)
		require.Equal(t, "system:serviceaccount:default:e2e", got.Name, server)
		require.Contains(t, got.Groups, "system:authenticated", server)
	}
}

func (a *Authenticated) Certificates(t *testing.T) {
	a.accepted(t, a.admins, Team, Request{Certificate: true})
	require.Equal(t, http.StatusUnauthorized, a.WhoAmI(t, a.users, Team, Request{Certificate: true}).Code)
	a.Kcpctl(t, "kubeconfig", "--user", "e2e", "--target", "front-proxy/users").Refused(t, 2, "front-proxy/users", "--oidc")
	a.Kcpctl(t, "check", "--wait", "2m").OK(t)
}

// Plugin stands for kubelogin, which would open a browser. It records its arguments, and returns a token.
const Plugin = `#!/bin/sh
echo "$@" >>%[1]s/arguments
echo '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "%[2]s"}}'
`

func (a *Authenticated) Login(t *testing.T) {
	dir := t.TempDir()
	token := a.Issuer.Token(t, "alice", map[string]any{"groups": []string{"team"}})
	require.NoError(t, os.WriteFile(filepath.Join(dir, "kubectl-oidc_login"), fmt.Appendf(nil, Plugin, dir, token), 0o700))
	whoAmI := a.Command("kubeconfig", "--oidc", "--workspace", Team, "--", "kubectl", "auth", "whoami", "--output", "json")
	whoAmI.Env = append(slices.Clone(whoAmI.Env), "PATH="+dir+":"+os.Getenv("PATH"))
	got := whoAmI.Run(t.Context(), t).OK(t).Stdout
	require.Contains(t, got, a.Issuer.URL+"#alice")
	require.Contains(t, got, "oidc:team")
	arguments, err := os.ReadFile(filepath.Join(dir, "arguments"))
	require.NoError(t, err)
	require.Contains(t, string(arguments),
		"get-token --oidc-issuer-url="+a.Issuer.URL+" --oidc-client-id=kcp --oidc-extra-scope=groups --certificate-authority-data=")
	content := a.Kcpctl(t, "kubeconfig", "--oidc").OK(t).Stdout
	require.NotContains(t, content, "client-certificate")
	require.NotContains(t, content, "client-key")
	require.Contains(t, content, "server: "+a.users)
	a.Kcpctl(t, "kubeconfig", "--oidc", "--target", "front-proxy/admins").Refused(t, 2, "front-proxy/users")
}
