// Package kubeconfig creates the kubeconfigs with which components dial each other, and the kubeconfigs of users, which
// it can also merge into a user's own file.
package kubeconfig

import (
	"encoding/json"

	"go.yaml.in/yaml/v2"
	"k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/tools/clientcmd/api/latest"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// File is a kubeconfig of a component.
type File struct {
	// Name is the name of the kubeconfig within the component.
	Name string
	Data []byte
}

// ForComponent returns the kubeconfigs that a component reads. They contain no keys, but paths of the component's
// files. trusted returns the bundle of an authority: a kubeconfig contains one only together with certificates of the
// user.
func ForComponent(t *topology.Topology, c *topology.Component, trusted func(topology.CA) []byte) []File {
	var out []File
	for _, e := range t.EdgesFrom(c) {
		if e.Kubeconfig != "" {
			out = append(out, File{Name: e.Kubeconfig,
				Data: encode(configOf(c, e, t.TrustOf(c, e.Kubeconfig), trusted))})
		}
	}
	return out
}

func configOf(
	c *topology.Component, e topology.Edge, trust topology.Trust, trusted func(topology.CA) []byte,
) *api.Config {
	var files topology.Files
	cluster := &api.Cluster{Server: e.URLFor(c.ID())}
	switch {
	case trust.System: // those of the image
	case trust.Own != "":
		cluster.CertificateAuthorityData = trust.Bundle(trusted)
	default:
		cluster.CertificateAuthority = c.Path(files.CA(trust.CA))
	}
	return &api.Config{
		CurrentContext: e.Context,
		Contexts:       map[string]*api.Context{e.Context: {Cluster: e.Context, AuthInfo: e.Cert}},
		Clusters:       map[string]*api.Cluster{e.Context: cluster},
		AuthInfos: map[string]*api.AuthInfo{e.Cert: {
			ClientCertificate: c.Path(files.Cert(e.Cert)),
			ClientKey:         c.Path(files.Key(e.Cert)),
		}},
	}
}

// encode returns the YAML of a kubeconfig, the same as clientcmd.Write, which parses its own JSON as YAML and so needs
// three times as long. It cannot fail: every value of these types can be encoded.
func encode(cfg *api.Config) []byte {
	out, err := encodeV1(cfg)
	if err != nil {
		panic("encode a kubeconfig: " + err.Error())
	}
	return out
}

func encodeV1(cfg *api.Config) ([]byte, error) {
	v1, err := latest.Scheme.ConvertToVersion(cfg, latest.ExternalVersion)
	if err != nil {
		return nil, err
	}
	js, err := json.Marshal(v1)
	if err != nil {
		return nil, err
	}
	var fields map[string]any
	if err := json.Unmarshal(js, &fields); err != nil {
		return nil, err
	}
	return yaml.Marshal(fields)
}
