package render

import (
	"slices"

	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// encryptionKey is the key of the configuration in its Secret. Its suffix marks files that have private keys.
const encryptionKey = "config.key"

// encryptionFlags returns the flag with which a shard encrypts objects in etcd (k8s:
// apiserver/pkg/server/options/etcd.go).
func encryptionFlags(t *topology.Topology, s *pki.State, c *topology.Component) []flag {
	if encryptionConfig(t, s.Encryption) == nil {
		return nil
	}
	return []flag{{"encryption-provider-config", c.Path(files.Encryption())}}
}

// encryptionConfiguration is an EncryptionConfiguration (k8s: apiserver/pkg/apis/apiserver/v1).
type encryptionConfiguration struct {
	APIVersion string               `json:"apiVersion"`
	Kind       string               `json:"kind"`
	Resources  []encryptedResources `json:"resources"`
}

// encryptedResources are resources and their providers. The first provider writes, and all of them read.
type encryptedResources struct {
	Resources []string             `json:"resources"`
	Providers []encryptionProvider `json:"providers"`
}

// encryptionProvider is one of three providers.
type encryptionProvider struct {
	Secretbox *secretbox `json:"secretbox,omitempty"`
	KMS       *kms       `json:"kms,omitempty"`
	Identity  *struct{}  `json:"identity,omitempty"`
}

// kms is a plugin. Its name is unique in a configuration.
type kms struct {
	APIVersion string `json:"apiVersion"`
	Name       string `json:"name"`
	Endpoint   string `json:"endpoint"`
}

// secretbox encrypts with its first key, and decrypts with all of them.
type secretbox struct {
	Keys []namedKey `json:"keys"`
}

type namedKey struct {
	Name   string `json:"name"`
	Secret string `json:"secret"`
}

// encryptionConfig returns the configuration for all shards of a setup, or nil if they have nothing to encrypt or to
// decrypt.
func encryptionConfig(t *topology.Topology, e pki.Encryption) []byte {
	wanted := pki.EncryptedResources(t)
	covered := e.Covers(wanted)
	if e.Key == "" || len(covered) == 0 {
		return nil
	}
	plain := []encryptionProvider{{Identity: &struct{}{}}}
	config := encryptionConfiguration{APIVersion: "apiserver.config.k8s.io/v1", Kind: "EncryptionConfiguration"}
	for _, resource := range covered {
		encrypts := encryptionProviders(e, resource)
		providers := slices.Concat(plain, encrypts)
		if e.Encrypts(resource, wanted) {
			providers = slices.Concat(encrypts, plain)
		}
		config.Resources = append(config.Resources, encryptedResources{[]string{resource}, providers})
	}
	return toYAML(config)
}

// encryptionProviders returns the providers of all keys for a resource, in their order.
func encryptionProviders(e pki.Encryption, resource string) []encryptionProvider {
	var out []encryptionProvider
	for _, key := range e.Keys() {
		name := pki.EncryptionKeyName(key)
		switch endpoint, last := e.KMS[key].Endpoint, len(out)-1; {
		case endpoint != "":
			out = append(out, encryptionProvider{KMS: &kms{"v2", name + "." + resource, endpoint}})
		case last >= 0 && out[last].Secretbox != nil:
			out[last].Secretbox.Keys = append(out[last].Secretbox.Keys, namedKey{name, key})
		default:
			out = append(out, encryptionProvider{Secretbox: &secretbox{[]namedKey{{name, key}}}})
		}
	}
	return out
}

// encryptionSecret adds the Secret with the configuration of the shards on a cluster.
func (b *objects) encryptionSecret() {
	if config := encryptionConfig(b.r.t, b.r.state.Encryption); config != nil {
		b.add(secretTemplate, b.data(b.r.t.Object(topology.EncryptionPart), "Opaque",
			map[string][]byte{encryptionKey: config}))
	}
}

// encryption returns the file of the configuration.
func (b *objects) encryption() []source {
	config := encryptionConfig(b.r.t, b.r.state.Encryption)
	if config == nil {
		return nil
	}
	return []source{{secret: b.r.t.Object(topology.EncryptionPart),
		items: []item{{encryptionKey, files.Encryption(), config}}}}
}
