// Package kubeconfig makes kubeconfigs: those with which components reach each other, and those of users, which it can
// also merge into a user's own file.
package kubeconfig

import (
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/kcpctl/kcpctl/internal/pki"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// Names of the kubeconfigs of components (see topology.Files), besides those that are called after their certificate.
const (
	RootShard = "root-shard"
	Cache     = "cache"
	Shards    = "shards"
	Shard     = "shard"
)

// Contexts that kcp or its tools know by name.
const (
	// ContextBase is a server without a path.
	ContextBase = "base"
	// ContextShardBase is a shard without a path. kcp reads no other context of --root-shard-kubeconfig-file (kcp:
	// pkg/server/config.go).
	ContextShardBase = "shard-base"
	// ContextSystemAdmin is a shard's own logical cluster.
	ContextSystemAdmin = "system:admin"
)

// File is a kubeconfig of a component.
type File struct {
	// Name is its name within the component.
	Name string
	Data []byte
}

// row is a kubeconfig of a component: whom it dials, with which of the component's certificates.
type row struct {
	name, context, server, cert string
}

// ForComponent returns the kubeconfigs that a component reads. They hold no keys, but paths of the component's files.
func ForComponent(t *topology.Topology, c *topology.Component) []File {
	var out []File
	for _, r := range rows(t, c) {
		out = append(out, File{Name: r.name, Data: encode(r.config(c))})
	}
	return out
}

func rows(t *topology.Topology, c *topology.Component) []row {
	var out []row
	switch root := t.Root(); c.Kind {
	case topology.RootShard, topology.Shard:
		out = []row{
			// kcp puts the URL of each shard in place of this one (kcp: pkg/server/config.go).
			{pki.CertLogicalClusterAdmin, ContextBase, c.URL, pki.CertLogicalClusterAdmin},
			{pki.CertExternalLogicalClusterAdmin, ContextBase, c.FrontProxyURL, pki.CertExternalLogicalClusterAdmin},
		}
		if c != root {
			out = append(out, row{RootShard, ContextShardBase, root.URLFrom(c.Cluster), pki.CertClient})
		}
	case topology.FrontProxy:
		// kcp dials the root shard with it and, with each shard's URL in its place, all shards (kcp: pkg/proxy/config.go).
		out = []row{{Shards, ContextSystemAdmin, root.URLFrom(c.Cluster), pki.CertShardClient}}
	case topology.VirtualWorkspaces:
		out = []row{
			{Shard, ContextShardBase, t.Component(c.Serves).URLFrom(c.Cluster), pki.CertClient},
			{pki.CertExternalLogicalClusterAdmin, ContextBase, c.FrontProxyURL, pki.CertFrontProxyClient},
		}
	}
	if cache := t.Cache(); cache != nil && (c.IsShard() || c.Kind == topology.VirtualWorkspaces) {
		out = append(out, row{Cache, Cache, cache.URLFrom(c.Cluster), pki.CertClient})
	}
	return out
}

func (r row) config(c *topology.Component) *api.Config {
	var files topology.Files
	return &api.Config{
		CurrentContext: r.context,
		Contexts:       map[string]*api.Context{r.context: {Cluster: r.context, AuthInfo: r.cert}},
		Clusters: map[string]*api.Cluster{r.context: {
			Server:               r.server,
			CertificateAuthority: c.Path(files.CA(string(pki.ServerCA))),
		}},
		AuthInfos: map[string]*api.AuthInfo{r.cert: {
			ClientCertificate: c.Path(files.Cert(r.cert)),
			ClientKey:         c.Path(files.Key(r.cert)),
		}},
	}
}

// encode writes a kubeconfig. The types hold nothing that cannot be written.
func encode(cfg *api.Config) []byte {
	data, err := clientcmd.Write(*cfg)
	if err != nil {
		panic("encode a kubeconfig: " + err.Error())
	}
	return data
}
