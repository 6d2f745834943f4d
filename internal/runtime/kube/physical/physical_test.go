package physical_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kcpctl/kcpctl/internal/client/cluster"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/runtime/kube/physical"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeapi"
)

// server is an API server with one ServiceAccount, whose tokens are valid for a limited time.
type server struct {
	*httptest.Server
	uid    string
	now    time.Time
	issued int
}

const longest = 24 * time.Hour

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{uid: "first", now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	account := "/api/v1/namespaces/kcpctl-syncer/serviceaccounts/demo-syncer-c1-token"
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Method == http.MethodGet && r.URL.Path == account && s.uid != "":
			fmt.Fprintf(w, `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"demo-syncer-c1-token","uid":%q}}`, s.uid)
		case r.Method == http.MethodPost && r.URL.Path == account+"/token":
			s.issued++
			claims, err := json.Marshal(map[string]any{
				"iat": s.now.Unix(), "exp": s.now.Add(longest).Unix(),
				"kubernetes.io": map[string]any{"serviceaccount": map[string]any{"uid": s.uid}},
			})
			if err != nil {
				panic(err)
			}
			w.WriteHeader(http.StatusCreated)
			fmt.Fprintf(w, `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","status":{"token":"e30.%s.x"}}`, base64.RawURLEncoding.EncodeToString(claims))
		default:
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"NotFound","code":404}`)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *server) client(t *testing.T, url string) *physical.Client {
	t.Helper()
	return connect(t, s.URL, url, func() time.Time { return s.now })
}

// connect returns a client for the API server at an address, which others reach at a URL.
func connect(t *testing.T, address, url string, now func() time.Time) *physical.Client {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := strings.ReplaceAll(`{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}],
  clusters: [{name: a, cluster: {server: "URL", proxy-url: "URL", tls-server-name: api, disable-compression: true}}],
  users: [{name: a, user: {token: of-the-user}}]}`, "URL", address)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	c, err := physical.New(topology.Cluster{Name: "c1", Kubeconfig: path}, url, cluster.Options{Now: now, Notify: t.Logf})
	require.NoError(t, err)
	return c
}

// A credential that lives for months does not inherit that any server is accepted.
func TestCredentialForAnyServer(t *testing.T) {
	s := newServer(t)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := strings.ReplaceAll(`{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}],
  clusters: [{name: a, cluster: {server: "URL", insecure-skip-tls-verify: true}}], users: [{name: a, user: {token: of-the-user}}]}`, "URL",
		strings.Replace(s.URL, "http:", "https:", 1))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	c, err := physical.New(topology.Cluster{Name: "c1", Kubeconfig: path}, "", cluster.Options{
		Now: func() time.Time { return s.now }, Notify: t.Logf,
	})
	require.NoError(t, err)
	_, err = c.Issue(t.Context(), "kcpctl-syncer", "demo-syncer-c1-token", time.Hour)
	require.ErrorContains(t, err, "cluster c1: its kubeconfig accepts any server (insecure-skip-tls-verify)")
	require.Contains(t, clierr.Hint(err), "set the certificate authority")
}

func TestCredential(t *testing.T) {
	s := newServer(t)
	c := s.client(t, "")
	fits := func(c *physical.Client, kubeconfig []byte) bool {
		return c.Fits(t.Context(), kubeconfig, "kcpctl-syncer", "demo-syncer-c1-token")
	}
	issued, err := c.Issue(t.Context(), "kcpctl-syncer", "demo-syncer-c1-token", time.Hour)
	require.NoError(t, err)
	require.NotContains(t, string(issued), "of-the-user", "the credential of the user is not stored")
	cfg, err := clientcmd.Load(issued)
	require.NoError(t, err)
	require.Equal(t, &clientcmdapi.Cluster{
		Server: s.URL, ProxyURL: s.URL, TLSServerName: "api", DisableCompression: true, Extensions: map[string]runtime.Object{},
	}, cfg.Clusters["cluster"])
	require.True(t, fits(c, issued))

	require.False(t, fits(c, nil))
	require.False(t, fits(c, []byte("users: [{name: cluster, user: {token: x}}]")))
	require.False(t, fits(s.client(t, "https://api.example.com"), issued), "another server")

	s.now = s.now.Add(longest / 2)
	require.True(t, fits(c, issued))
	s.now = s.now.Add(longest / 4)
	require.False(t, fits(c, issued), "less than a third of its life is left")

	s.now = s.now.Add(-longest / 2)
	s.uid = "second"
	require.False(t, fits(c, issued), "the ServiceAccount was created again")
	s.uid = ""
	require.False(t, fits(c, issued), "the ServiceAccount is gone")
	s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second) // requests to a closed server are retried for longer
	defer cancel()
	require.True(t, c.Fits(ctx, issued, "kcpctl-syncer", "demo-syncer-c1-token"), "it is not known")
	require.Equal(t, 1, s.issued)
}

// A namespace that changes while kcpctl lists its objects stays, even if only its status has changed.
func TestDeleteNamespace(t *testing.T) {
	for name, meanwhile := range map[string]string{
		"unchanged": "", "another status": "{metadata: {name: web}, status: {phase: Active}}",
	} {
		t.Run(name, func(t *testing.T) {
			const path = "api/v1/namespaces"
			s := fakeapi.New(t)
			s.Serve("/api", "{kind: APIGroupDiscoveryList}")
			s.Serve("/apis", "{kind: APIGroupDiscoveryList}")
			s.Apply(t, "", path, "{apiVersion: v1, kind: Namespace, metadata: {name: kube-system}}")
			seen := s.Apply(t, "", path, "{apiVersion: v1, kind: Namespace, metadata: {name: web}}")
			c := connect(t, s.URL, "", time.Now)
			if meanwhile != "" {
				s.Apply(t, "", path, meanwhile)
			}
			rest, err := c.DeleteNamespace(t.Context(), seen)
			require.Empty(t, rest)
			if meanwhile == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, "cluster c1 (context a): Namespace/web was changed after this run read it")
			}
			require.Equal(t, meanwhile != "", s.Get("", path, "", "web") != nil)
		})
	}
}
