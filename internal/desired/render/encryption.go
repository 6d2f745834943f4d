package render

import (
	"encoding/base64"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

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

const encryptionConfigurationKind = "EncryptionConfiguration"

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
	config := encryptionConfiguration{APIVersion: "apiserver.config.k8s.io/v1", Kind: encryptionConfigurationKind}
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

// EncryptionIn returns the keys of shards in a rendered or live object. It returns nothing for objects that are not the
// Secret with their configuration.
func EncryptionIn(o *unstructured.Unstructured) pki.EncryptionInUse {
	var out pki.EncryptionInUse
	data, _, _ := unstructured.NestedStringMap(o.Object, "data")
	raw, err := base64.StdEncoding.DecodeString(data[encryptionKey])
	config := encryptionConfiguration{}
	if err != nil || o.GetKind() != "Secret" || yaml.Unmarshal(raw, &config) != nil ||
		config.Kind != encryptionConfigurationKind {
		return out
	}
	for _, r := range config.Resources {
		for i, p := range r.Providers {
			keys := p.keys(r.Resources)
			if i == 0 && len(keys) > 0 {
				out.Encrypted = append(out.Encrypted, r.Resources...)
			}
			for _, key := range keys {
				if !slices.ContainsFunc(out.Keys, func(k pki.KeyInUse) bool { return k.Name == key.Name }) {
					out.Keys = append(out.Keys, key)
				}
			}
		}
		out.Decrypted = append(out.Decrypted, r.Resources...)
	}
	return out
}

// keys returns the keys of a provider of some resources. In a KMS, a key has another name for each resource.
func (p encryptionProvider) keys(resources []string) []pki.KeyInUse {
	var out []pki.KeyInUse
	if p.Secretbox != nil {
		for _, key := range p.Secretbox.Keys {
			out = append(out, pki.KeyInUse{Name: key.Name, Text: key.Secret})
		}
	}
	if p.KMS != nil {
		name := p.KMS.Name
		for _, resource := range resources {
			name = strings.TrimSuffix(name, "."+resource)
		}
		out = append(out, pki.KeyInUse{Name: name})
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
