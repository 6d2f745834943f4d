package render_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/api/release"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// customServers has kcp's server of virtual workspaces, and the user's own servers with all fields and without.
const customServers = `spec:
  cacheServer: {}
  virtualWorkspaces:
  - {name: kcp}
  - {name: plain, command: [/server, run]}
  - {name: mapped, command: [/server], path: /services/mapped/, kubeconfigSecret: reader,
     image: {repository: registry.example.com/server, tag: v0.1.0}, extraArgs: [--own-flag=1]}
`

func TestServersOfTheUser(t *testing.T) {
	top, state, objects := rendered(t, customServers)
	pod := func(name string) (command, args []string) {
		for _, o := range objects {
			if p, ok := podOf(t, o); ok && o.GetName() == name {
				return p.Spec.Containers[0].Command, p.Spec.Containers[0].Args
			}
		}
		t.Fatalf("no workload %s", name)
		return nil, nil
	}
	own, flags := pod("demo-vw-kcp")
	require.Equal(t, []string{"/virtual-workspaces"}, own)
	command, args := pod("demo-vw-plain")
	require.Equal(t, []string{"/server", "run"}, command)
	require.Equal(t, flags, args)
	command, args = pod("demo-vw-mapped")
	require.Equal(t, []string{"/server"}, command)
	require.Contains(t, args, "--own-flag=1")
	require.Equal(t, release.Default, top.Component("virtual-workspaces/mapped").Version, "the tag is not a release of kcp")
	require.Contains(t, args, "--kubeconfig=/etc/kcp/kubeconfig/shard.kubeconfig")
	require.False(t, has(args, "--external-logical-cluster-admin-kubeconfig="))
	require.False(t, has(args, "--cache-kubeconfig="))

	root := argsOf(t, objects, "demo-root")
	require.Contains(t, root, "--shard-virtual-workspace-url=https://demo-vw-kcp.kcp.svc.cluster.local:6443")
	mapping := textOf(t, objects, "ConfigMap", "demo-front-proxy-main-config")
	require.Contains(t, mapping, "path: /services/mapped/")
	require.Contains(t, mapping, "backend: https://demo-vw-mapped.kcp.svc.cluster.local:6443")
	require.NotContains(t, mapping, "demo-vw-plain")

	// With a kubeconfig of the user, its pods have no certificate of a client and no kubeconfig of kcpctl.
	mapped := textOf(t, objects, "Deployment", "demo-vw-mapped")
	plain := textOf(t, objects, "Deployment", "demo-vw-plain")
	require.Contains(t, mapped, "name: reader")
	require.NotContains(t, mapped, "demo-vw-mapped-client")
	require.NotContains(t, mapped, "demo-vw-mapped-kubeconfig")
	require.Contains(t, plain, "demo-vw-plain-client")
	require.Contains(t, top.Component("virtual-workspaces/mapped").Needs, topology.ID("root-shard"))
	require.NoError(t, render.Prove(top, state, now))
}

// textOf returns an object as text.
func textOf(t *testing.T, objects []render.Object, kind, name string) string {
	t.Helper()
	for _, o := range objects {
		if o.GetKind() == kind && o.GetName() == name {
			text, err := o.YAML()
			require.NoError(t, err)
			return string(text)
		}
	}
	t.Fatalf("no %s %s", kind, name)
	return ""
}
