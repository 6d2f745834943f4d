package cluster

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// kubeconfigFor writes a kubeconfig for a server.
func kubeconfigFor(t *testing.T, url string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(file, []byte(`apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "`+url+`"}}]
users: [{name: u, user: {}}]
`), 0o600))
	return file
}

// The context of kcp in a kubeconfig is easily taken for the context of the cluster that it runs on.
func TestAWorkspaceIsNotACluster(t *testing.T) {
	for url, refused := range map[string]bool{
		"https://kcp.example.com:6443/clusters/root":           true,
		"https://kcp.example.com:6443/clusters/root:team-a":    true,
		"https://rancher.example.com/k8s/clusters/c-m-x7k2m9q": false,
		"https://10.0.0.1:6443":                                false,
	} {
		home := topology.Cluster{Name: "default", Namespace: "kcp", Kubeconfig: kubeconfigFor(t, url)}
		cl, err := New(home, Options{Now: time.Now})
		require.NoError(t, err, "an agent can publish the APIs of a workspace")
		err = cl.MayHost()
		if !refused {
			require.NoError(t, err, url)
			continue
		}
		require.ErrorContains(t, err, "context c leads to a workspace of kcp")
		require.Contains(t, clierr.Hint(err), "add --local")
	}
}

func TestNoCurrentContext(t *testing.T) {
	file := kubeconfigFor(t, "https://10.0.0.1:6443")
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, []byte(strings.Replace(string(raw), "current-context: c\n", "", 1)), 0o600))
	_, err = New(topology.Cluster{Name: "default", Kubeconfig: file}, Options{Now: time.Now})
	require.ErrorContains(t, err, "the kubeconfig has no current context")
	require.Contains(t, clierr.Hint(err), "--context")
}

func TestImpersonation(t *testing.T) {
	var got http.Header
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Header
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, `{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system", "uid": "1"}}`)
	}))
	t.Cleanup(srv.Close)
	file := kubeconfigFor(t, srv.URL)
	for name, tc := range map[string]struct {
		c       topology.Cluster
		o       Options
		user    []string
		groups  []string
		kubectl string
	}{
		"no one else": {kubectl: "kubectl --kubeconfig " + file + " --context c get pods"},
		"a user":      {o: Options{As: "ann"}, user: []string{"ann"}, kubectl: "kubectl --kubeconfig " + file + " --context c --as ann get pods"},
		"a user with groups": {
			o: Options{As: "ann", AsGroups: []string{"a", "b"}}, user: []string{"ann"}, groups: []string{"a", "b"},
			kubectl: "kubectl --kubeconfig " + file + " --context c --as ann --as-group a --as-group b get pods",
		},
		"the user of the setup": {
			c: topology.Cluster{As: "ops", AsGroups: []string{"c"}}, user: []string{"ops"}, groups: []string{"c"},
			kubectl: "kubectl --kubeconfig " + file + " --context c --as ops --as-group c get pods",
		},
		"flags before the setup": {
			c: topology.Cluster{As: "ops", AsGroups: []string{"c"}}, o: Options{As: "ann"}, user: []string{"ann"},
			kubectl: "kubectl --kubeconfig " + file + " --context c --as ann get pods",
		},
	} {
		t.Run(name, func(t *testing.T) {
			tc.o.Now, tc.o.Notify = time.Now, t.Logf
			tc.c.Name, tc.c.Kubeconfig = "eu", file
			s, err := New(tc.c, tc.o)
			require.NoError(t, err)
			require.NoError(t, s.Connect(t.Context()))
			require.Equal(t, tc.user, got["Impersonate-User"])
			require.Equal(t, tc.groups, got["Impersonate-Group"])
			require.Equal(t, tc.kubectl, s.Kubectl("get pods"))
		})
	}
}
