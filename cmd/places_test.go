package cmd

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/examples"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/file/setup"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// sessionOf returns a session with a setup, which has no runtime.
func sessionOf(t *testing.T, text string) *session {
	t.Helper()
	file, err := setup.Load(setup.Stdin, strings.NewReader(text))
	require.NoError(t, err)
	s := &session{env: &Env{}, flags: &setupFlags{}}
	require.NoError(t, s.use(file))
	return s
}

func TestOnlyAcceptsWhatIsCompleted(t *testing.T) {
	for _, example := range examples.Names() {
		text, err := examples.Read(example)
		require.NoError(t, err)
		s := sessionOf(t, string(text))
		all := withPlaces(selectableIDs, anyComponent)(s)
		require.NotEmpty(t, all)
		for _, name := range all {
			got, err := (&upOptions{only: []string{name}}).selected(s)
			require.NoError(t, err, "%s of %s", name, example)
			require.NotEmpty(t, got, "%s of %s", name, example)
		}
	}
}

// A cluster of spec.workloads may have the name of one of spec.clusters.
func TestOnlyOneOfTwoClustersOfAName(t *testing.T) {
	s := sessionOf(t, `
apiVersion: kcpctl.dev/v1alpha1
kind: Setup
metadata: {name: demo}
spec:
  external: {hostname: kcp.example.com}
  etcd: {embedded: {}}
  clusters: [{name: eu, context: eu}, {name: us, context: us}]
  rootShard: {cluster: eu, url: "https://root.example.com:6443", expose: LoadBalancer}
  frontProxies: [{name: main, cluster: eu}]
  shards: [{name: alpha, cluster: us, url: "https://alpha.example.com:6443", expose: LoadBalancer}]
  workloads:
    cluster: eu
    clusters: [{name: us, kubeconfig: us.kubeconfig}]
`)
	require.Len(t, s.topology.OfKind(topology.Physical), 1)
	only := func(name string) []topology.ID {
		got, err := (&upOptions{only: []string{name}}).selected(s)
		require.NoError(t, err)
		return got
	}
	require.Contains(t, only("cluster/us"), topology.ID("cluster/us"))
	require.NotContains(t, only("cluster/us"), topology.ID("shard/alpha"))
	require.Contains(t, only("place/eu"), topology.ID("root-shard"))
	require.Contains(t, only("place/us"), topology.ID("shard/alpha"))
	_, err := (&upOptions{only: []string{"cluster/eu"}}).selected(s)
	require.ErrorContains(t, err, `there is no component "cluster/eu"`)
	require.Equal(t, "use place/eu for all on this cluster of spec.clusters", clierr.Hint(err))
}
