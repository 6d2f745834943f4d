package model_test

import (
	"encoding/base64"
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
)

// encryption is what a process has read from its file when it started: the key that encrypts, and the keys that decrypt,
// by their names. Without a key, objects are stored as they are.
type encryption struct {
	key  string
	keys []string
}

// encryptionOf returns the encryption of a new pod.
func encryptionOf(c *cluster, namespace string, o *unstructured.Unstructured) encryption {
	pod := podOf(o)
	if argOf(pod, "encryption-provider-config") == "" {
		return encryption{}
	}
	i := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Projected != nil })
	var out encryption
	for _, s := range pod.Volumes[i].Projected.Sources {
		if s.Secret == nil || !strings.HasSuffix(s.Secret.Name, "-encryption") {
			continue
		}
		secret := c.objects[key{secrets, namespace, s.Secret.Name}]
		if secret == nil {
			continue // the pod would wait
		}
		text, _, _ := unstructured.NestedString(secret.Object, "data", "config.key")
		raw, _ := base64.StdEncoding.DecodeString(text)
		out = readEncryption(raw)
	}
	return out
}

// readEncryption reads what an EncryptionConfiguration says of Secrets.
func readEncryption(raw []byte) encryption {
	var config struct {
		Resources []struct {
			Resources []string
			Providers []struct {
				Secretbox *struct{ Keys []struct{ Name string } }
			}
		}
	}
	if err := yaml.Unmarshal(raw, &config); err != nil {
		panic(err)
	}
	var out encryption
	for _, r := range config.Resources {
		if !slices.Contains(r.Resources, "secrets") {
			continue
		}
		for n, p := range r.Providers {
			if p.Secretbox == nil {
				continue
			}
			for _, k := range p.Secretbox.Keys {
				out.keys = append(out.keys, k.Name)
			}
			if n == 0 {
				out.key = out.keys[0]
			}
		}
	}
	return out
}

// reads reports whether a process can read an object that a key has encrypted.
func (e encryption) reads(key string) bool { return key == "" || slices.Contains(e.keys, key) }

// checkReadable reports Secrets that a shard cannot read. A user who accepts a restored record accepts its keys.
func (w *world) checkReadable(p *process) {
	for _, s := range w.of(p.owner, p.id) {
		switch {
		case s.store != p.store || p.encryption.reads(s.sealed):
		case w.actor != nil && w.actor.has("--allow=restored-record"):
			w.forget(s)
		default:
			w.violate("%s has %v, and cannot read %s, which %s has encrypted", p.id, p.encryption.keys, s.name, s.sealed)
		}
	}
}

// answerSecrets handles requests for Secrets, of which each workspace has one.
func (w *world) answerSecrets(p *process, r *http.Request, cluster string) answer {
	secret := func(s *workspace) map[string]any {
		return map[string]any{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": map[string]any{
			"name": "data", "namespace": "default", "annotations": map[string]any{"kcp.io/cluster": strings.ReplaceAll(s.name, " ", "-")},
		}}
	}
	items := []any{}
	for _, s := range w.holding(p.store) {
		switch at := strings.ReplaceAll(s.name, " ", "-"); {
		case !p.encryption.reads(s.sealed):
			return refuse(http.StatusInternalServerError, "InternalError")
		case r.Method == http.MethodPatch && at == cluster:
			s.sealed = p.encryption.key
			return answer{http.StatusOK, secret(s)}
		default:
			items = append(items, secret(s))
		}
	}
	if r.Method == http.MethodPatch {
		return refuse(http.StatusNotFound, "NotFound")
	}
	return listOf("meta.k8s.io/v1", "PartialObjectMetadataList", items)
}

// rotateEncryption brings a change of the encryption into effect, or replaces the key.
func (g *game) rotateEncryption(who *operator) {
	g.run(who, g.mishap(who), append([]string{"encryption", "rotate"}, bring...)...)
}

// editEncryption edits what the setup encrypts.
func (g *game) editEncryption(who *operator) {
	s := who.setup()
	s.Spec.Encryption = nil
	if resources := g.draw("encrypted", "", "secrets", "secrets configmaps", "configmaps"); resources != "" {
		s.Spec.Encryption = &v1alpha1.Encryption{Resources: strings.Fields(resources)}
	}
	who.save(s)
	g.logf("%s: encryption: %s", who.name, jsonOf(s.Spec.Encryption))
}

// encrypting are the steps of a game with encryption.
var encrypting = []step{
	{8, "edit encryption", (*game).editEncryption},
	{12, "rotate encryption", (*game).rotateEncryption},
}
