package connect_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/workload/server/connect"
)

const kubeconfig = `
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: k, user: u}}, {name: other, context: {cluster: other, user: u}}]
clusters:
- {name: k, cluster: {server: "https://kcp:6443/clusters/root:team"}}
- {name: other, cluster: {server: "https://other:6443/kcp/clusters/root"}}
users: [{name: u, user: {token: secret}}]
`

func TestContent(t *testing.T) {
	cfg, err := connect.Content([]byte(kubeconfig))
	require.NoError(t, err)
	require.Equal(t, "secret", cfg.BearerToken)
	for _, user := range []string{
		"exec: {apiVersion: client.authentication.k8s.io/v1, command: touch, interactiveMode: Never}", "tokenFile: /etc/passwd",
		"client-certificate: /c, client-key-data: aGk=", "client-certificate-data: aGk=, client-key: /k", "auth-provider: {name: gcp}",
	} {
		_, err := connect.Content([]byte(strings.Replace(kubeconfig, "token: secret", user, 1)))
		require.ErrorContains(t, err, "runs a program or reads a file", user)
	}
	_, err = connect.Content([]byte(strings.Replace(kubeconfig, `root:team"`, `root:team", certificate-authority: /ca`, 1)))
	require.ErrorContains(t, err, "runs a program or reads a file")
	for _, text := range []string{"", "hello", "{}"} {
		_, err := connect.Content([]byte(text))
		require.Error(t, err, text)
	}
}

func TestKCPHasNoWorkspace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(path, []byte(kubeconfig), 0o600))
	cfg, err := connect.KCP(path, "")
	require.NoError(t, err)
	require.Equal(t, "https://kcp:6443", cfg.Host)
	cfg, err = connect.KCP(path, "other")
	require.NoError(t, err)
	require.Equal(t, "https://other:6443/kcp", cfg.Host)
	_, err = connect.KCP(path, "missing")
	require.Equal(t, clierr.BadInput, clierr.Code(err))
}
