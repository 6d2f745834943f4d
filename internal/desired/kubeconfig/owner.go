package kubeconfig

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net/url"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd/api"
)

// extension is the name of the kubeconfig extension that marks entries of kcpctl with their owner.
const extension = "kcpctl.dev"

// marker is the content of the extension. Earlier releases wrote no installation.
type marker struct {
	Setup        string `json:"setup"`
	Installation string `json:"installation,omitempty"`
	Local        bool   `json:"local,omitempty"`
}

// Owner is an installation of a setup. Setups of the same name, for instance on a cluster and with --local, are
// different installations.
type Owner struct {
	// Setup is the setup's name.
	Setup string
	// Installation is its ID. It is empty if the installation has no ID.
	Installation string
	// Local means that it runs on a machine. A copy there, restored from a backup, has the ID of the original.
	Local bool
}

func (o Owner) mark() map[string]runtime.Object {
	raw, err := json.Marshal(marker(o))
	if err != nil {
		panic("encode a name: " + err.Error())
	}
	return map[string]runtime.Object{extension: &runtime.Unknown{Raw: raw, ContentType: runtime.ContentTypeJSON}}
}

// ownerOf returns the owner of an entry. Setup is empty if kcpctl did not create the entry.
func ownerOf(ext map[string]runtime.Object) Owner {
	u, ok := ext[extension].(*runtime.Unknown)
	if !ok {
		return Owner{}
	}
	var m marker
	if json.Unmarshal(u.Raw, &m) != nil {
		return Owner{}
	}
	return Owner(m)
}

// owns reports whether an entry belongs to an installation. If one of the two has no ID, the clusters of the entry
// decide: there must be at least one, and ours must report true for all of them.
func (o Owner) owns(ext map[string]runtime.Object, clusters []*api.Cluster, ours func(*api.Cluster) bool) bool {
	is := ownerOf(ext)
	switch {
	case o.Setup == "" || is.Setup != o.Setup:
		return false
	case is.Installation != "" && o.Installation != "":
		return is.Installation == o.Installation && is.Local == o.Local
	}
	return len(clusters) > 0 && !slices.ContainsFunc(clusters, func(c *api.Cluster) bool { return !ours(c) })
}

// item is an entry of a kubeconfig with the clusters that it is used for.
type item struct {
	kind, name string
	ext        map[string]runtime.Object
	clusters   []*api.Cluster
}

func (it item) String() string { return fmt.Sprintf("%s %q", it.kind, it.name) }

// sharesServer reports whether a cluster has the same host as a cluster of the entry, and a CA in common with it.
func (it item) sharesServer(c *api.Cluster) bool {
	return slices.ContainsFunc(it.clusters, func(mine *api.Cluster) bool {
		return sameHost(c.Server, mine.Server) && shares(c.CertificateAuthorityData, mine.CertificateAuthorityData)
	})
}

// items returns the entries of a kubeconfig, sorted by kind and name.
func items(cfg *api.Config) []item {
	var out []item
	for _, n := range slices.Sorted(maps.Keys(cfg.Clusters)) {
		c := cfg.Clusters[n]
		out = append(out, item{kindCluster, n, c.Extensions, []*api.Cluster{c}})
	}
	of := func(c *api.Context) []*api.Cluster {
		if cluster := cfg.Clusters[c.Cluster]; cluster != nil {
			return []*api.Cluster{cluster}
		}
		return nil
	}
	used := map[string][]*api.Cluster{}
	for _, n := range slices.Sorted(maps.Keys(cfg.Contexts)) {
		c := cfg.Contexts[n]
		out = append(out, item{kindContext, n, c.Extensions, of(c)})
		used[c.AuthInfo] = append(used[c.AuthInfo], of(c)...)
	}
	for _, n := range slices.Sorted(maps.Keys(cfg.AuthInfos)) {
		out = append(out, item{kindUser, n, cfg.AuthInfos[n].Extensions, used[n]})
	}
	return out
}

// The kinds of items.
const (
	kindCluster = "cluster"
	kindContext = "context"
	kindUser    = "user"
)

// sameHost reports whether two URLs have the same host and port.
func sameHost(a, b string) bool {
	x, errX := url.Parse(a)
	y, errY := url.Parse(b)
	return errX == nil && errY == nil && x.Host == y.Host
}

// shares reports whether two PEM bundles have a certificate in common. Bundles of different installations do not.
// Comparing whole bundles is not enough, because the bundle of an installation changes during a CA rotation.
func shares(a, b []byte) bool {
	certificates := func(bundle []byte) (out [][]byte) {
		for p, rest := pem.Decode(bundle); p != nil; p, rest = pem.Decode(rest) {
			out = append(out, p.Bytes)
		}
		return out
	}
	others := certificates(b)
	return slices.ContainsFunc(certificates(a), func(one []byte) bool {
		return slices.ContainsFunc(others, func(other []byte) bool { return bytes.Equal(one, other) })
	})
}
