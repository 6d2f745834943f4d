package cluster

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kcpctl/kcpctl/test/e2e/framework"
)

// silentLimit is the time limit of an up that meets a silent cluster, which it waits 10 s for.
const silentLimit = 2 * time.Minute

// TestClusterRefusals makes mistakes that up must report before it writes anything. It runs nothing.
func TestClusterRefusals(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, example string
		prepare       func(t *testing.T, c *framework.Cluster) (flags []string)
		limit         time.Duration
		facts         []string
	}{
		{
			"the cluster refuses connections",
			"minimal", func(t *testing.T, c *framework.Cluster) []string { return at(t, c, deadServer(t)) },
			silentLimit, []string{"https://127.0.0.1:", "connection refused", "hint: "},
		},
		{
			"the cluster is silent",
			"minimal", func(t *testing.T, c *framework.Cluster) []string { return at(t, c, silentServer(t)) },
			silentLimit, []string{"https://127.0.0.1:", "hint: "},
		},
		{
			"the user may do nothing",
			"minimal", func(t *testing.T, c *framework.Cluster) []string { return c.As(t, framework.NewName()) },
			0, []string{"patch deployments.apps", "create pods/portforward", "hint: "},
		},
		{
			"the user may only look",
			"minimal", func(t *testing.T, c *framework.Cluster) []string {
				name := framework.NewName()
				flags := c.As(t, name)
				t.Cleanup(func() {
					c.Kubectl("delete", "clusterrolebinding", name, "--ignore-not-found").Run(context.Background(), t).OK(t)
				})
				c.Kubectl("create", "clusterrolebinding", name, "--clusterrole=view", "--serviceaccount="+name+":user").Run(t.Context(), t).OK(t)
				return flags
			},
			0, []string{"create namespaces", "patch deployments.apps", "hint: "},
		},
		{
			"a Secret is missing",
			"external-etcd", func(t *testing.T, c *framework.Cluster) []string { c.MakeNamespace(t); return nil },
			0, []string{"/etcd-client", "Deployment/", "hint: "},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel() // one of them waits for 10 s
			s := framework.NewCluster(t, tc.example)
			flags := tc.prepare(t, s.Runtime.(*framework.Cluster))
			before := s.Written(t)
			up := s.Command("up", flags...)
			up.Limit = tc.limit
			up.Run(t.Context(), t).Refused(t, 1, tc.facts...)
			require.Equal(t, before, s.Written(t), "nothing was to be written")
		})
	}
}

// at returns flags for a cluster at another address.
func at(t *testing.T, c *framework.Cluster, address string) []string {
	t.Helper()
	return c.KubeconfigWith(t, func(cl *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { cl.Server = "https://" + address })
}

// deadServer returns an address that refuses connections.
func deadServer(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

// silentServer returns the address of a server that accepts connections and never answers.
func silentServer(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l.Addr().String()
}
