package kubeconfig

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/testutil"
	"github.com/kcpctl/kcpctl/internal/testutil/pkitest"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

const full = `spec:
  external: {hostname: kcp.example.com, port: 8443}
  clusters: [{name: eu}, {name: us, namespace: kcp-us}]
  cacheServer: {url: "https://cache.example.com:6443"}
  rootShard: {url: "https://root.example.com:6443"}
  shards: [{name: beta, cluster: us, url: "https://beta.example.com:6443"}]
  virtualWorkspaces: [{name: extra, shard: beta, cluster: us, url: "https://vw.example.com"}]
  kubeconfigs:
  - {name: admin, user: kcp-admin}
  - {name: dev, user: dev, workspace: "root:team"}
  - {name: ops, user: ops, target: {shard: beta}}
`

func issued(t *testing.T, yaml string) (*topology.Topology, *pki.State) {
	t.Helper()
	tp := topologytest.Build(t, yaml)
	return tp, pkitest.Issue(t, tp, testutil.Start())
}

func TestForComponent(t *testing.T) {
	var out bytes.Buffer
	for _, setup := range []string{full, "spec: {shards: [{name: alpha}]}"} {
		tp := topologytest.Build(t, setup)
		for _, c := range tp.Components {
			for _, f := range ForComponent(tp, c, nil) {
				fmt.Fprintf(&out, "# %s %s\n%s", c.ID(), f.Name, f.Data)
			}
		}
	}
	testutil.Golden(t, "component.yaml", out.Bytes())
}

// The files in a component's kubeconfigs are those of its certificates.
func TestForComponentUsesItsOwnFiles(t *testing.T) {
	tp := topologytest.Build(t, full)
	var files topology.Files
	for _, c := range tp.Components {
		own := map[string]bool{}
		for _, cert := range pki.CertsOf(tp, c) {
			own[c.Path(files.Cert(cert.Name))], own[c.Path(files.Key(cert.Name))] = true, true
		}
		for _, ca := range tp.Bundles(c) {
			own[c.Path(files.CA(ca))] = true
		}
		for _, f := range ForComponent(tp, c, nil) {
			cfg, err := clientcmd.Load(f.Data)
			require.NoError(t, err)
			for _, u := range cfg.AuthInfos {
				require.True(t, own[u.ClientCertificate] && own[u.ClientKey], "%s of %s: %s", f.Name, c.ID(), u.ClientCertificate)
			}
			for _, cl := range cfg.Clusters {
				require.True(t, own[cl.CertificateAuthority], "%s of %s: %s", f.Name, c.ID(), cl.CertificateAuthority)
			}
		}
	}
}

func TestForUser(t *testing.T) {
	tp, s := issued(t, full)
	ca := s.CAs[topology.ServerCA].Trusted()
	for name, tc := range map[string]struct {
		current string
		servers map[string]string
	}{
		"admin": {"root", map[string]string{
			"root": "https://kcp.example.com:8443/clusters/root",
			"base": "https://kcp.example.com:8443",
		}},
		"dev": {"root:team", map[string]string{
			"root:team": "https://kcp.example.com:8443/clusters/root:team",
			"base":      "https://kcp.example.com:8443",
		}},
		"ops": {"root", map[string]string{
			"root":         "https://beta.example.com:6443/clusters/root",
			"base":         "https://beta.example.com:6443",
			"shard-base":   "https://beta.example.com:6443",
			"system:admin": "https://beta.example.com:6443/clusters/system:admin",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c := tp.Component(topology.IDOf(topology.Kubeconfig, name))
			pair := s.Leaves[pki.LeafKey{Cluster: "eu", Secret: c.Object()}]
			data := ForUser(*c.Access, ca, pair)
			cfg, err := clientcmd.Load(data)
			require.NoError(t, err)
			require.NoError(t, clientcmd.Validate(*cfg))
			require.Equal(t, tc.current, cfg.CurrentContext)
			servers := map[string]string{}
			for context := range cfg.Contexts {
				rest, err := clientcmd.NewNonInteractiveClientConfig(*cfg, context, nil, nil).ClientConfig()
				require.NoError(t, err)
				servers[context] = rest.Host
				require.Equal(t, ca, rest.CAData)
				require.Equal(t, pair.Cert, rest.CertData)
				require.Equal(t, pair.Key, rest.KeyData)
			}
			require.Empty(t, cmp.Diff(tc.servers, servers))
		})
	}
}

func TestWithProxy(t *testing.T) {
	data, err := WithProxy(user("admin", "https://kcp"), "http://127.0.0.1:1")
	require.NoError(t, err)
	cfg, err := clientcmd.Load(data)
	require.NoError(t, err)
	require.Len(t, cfg.Clusters, 2)
	for _, c := range cfg.Clusters {
		require.Equal(t, "http://127.0.0.1:1", c.ProxyURL)
	}
	_, err = WithProxy([]byte("- x"), "http://127.0.0.1:1")
	require.ErrorContains(t, err, "read the kubeconfig")
}

func TestWriteFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	require.NoError(t, os.WriteFile(path, []byte("old"), 0o644))
	require.NoError(t, WriteFile(path, []byte("new")))
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "new", string(got))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	entries, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, entries, 1, "nothing else is left")
	require.ErrorContains(t, WriteFile(filepath.Join(path, "x"), nil), "write kubeconfig: ")
}
