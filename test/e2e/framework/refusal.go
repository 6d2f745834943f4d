package framework

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// KubeconfigWith writes a kubeconfig that differs from the administrator's, and returns the flags to use it.
func (c *Cluster) KubeconfigWith(t *testing.T, change func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo)) []string {
	t.Helper()
	all, err := clientcmd.LoadFromFile(c.Kubeconfig)
	require.NoError(t, err)
	require.NoError(t, clientcmdapi.MinifyConfig(all))
	require.NoError(t, clientcmdapi.FlattenConfig(all))
	current := all.Contexts[all.CurrentContext]
	change(all.Clusters[current.Cluster], all.AuthInfos[current.AuthInfo])
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*all, file))
	return []string{"--kubeconfig", file}
}

// As returns flags for a user without rights: a new service account of a new namespace.
func (c *Cluster) As(t *testing.T, namespace string) []string {
	t.Helper()
	other := &Cluster{Setup: namespace, Namespace: namespace, Kubeconfig: c.Kubeconfig}
	other.MakeNamespace(t)
	t.Cleanup(func() { other.remove(t) })
	c.Kubectl("create", "serviceaccount", "user", "--namespace", namespace).Run(t.Context(), t).OK(t)
	token := c.Kubectl("create", "token", "user", "--namespace", namespace).Run(t.Context(), t).OK(t).Stdout
	return c.KubeconfigWith(t, func(_ *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) {
		*user = clientcmdapi.AuthInfo{Token: strings.TrimSpace(token)}
	})
}
