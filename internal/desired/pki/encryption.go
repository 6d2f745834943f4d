package pki

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// encryptionKeySize is the size of a key in bytes (Kubernetes: apiserver/pkg/apis/apiserver/validation, secretbox).
const encryptionKeySize = 32

// Encryption holds the keys with which shards encrypt objects in etcd. Each of them decrypts: without them, the objects
// cannot be read. All shards have the same keys, because a workspace that moves takes its objects along as they are
// stored.
type Encryption struct {
	// Key is the key that encrypts, in base64. It is empty if the setup has never encrypted anything.
	Key string `json:"key"`
	// Next will encrypt. It is set while the rotation is in PhaseDistribute, but not if Key is the first one.
	Next string `json:"next,omitempty"`
	// Previous has encrypted before. It is set while the rotation is in PhaseSwitch.
	Previous string `json:"previous,omitempty"`
	// KMS has the KMS of each key that does not encrypt, but only gives its name to what a KMS encrypts.
	KMS map[string]v1alpha1.KMS `json:"kms,omitempty"`
	// Resources are the resources that shards encrypt: secrets. They can read others that are encrypted.
	Resources []string `json:"resources,omitempty"`
	// Phase is the phase of the rotation. In PhaseSwitch, objects may still be stored as they were before.
	Phase Phase `json:"phase,omitempty"`
}

// Keys returns the key that encrypts, and then those that only decrypt.
func (e Encryption) Keys() []string {
	return slices.DeleteFunc([]string{e.Key, e.Next, e.Previous}, func(k string) bool { return k == "" })
}

// Covers returns the resources of which objects are encrypted, or may be, given those that the setup wants.
func (e Encryption) Covers(wanted []string) []string {
	all := slices.Concat(wanted, e.Resources)
	slices.Sort(all)
	return slices.Compact(all)
}

// Encrypts reports whether shards encrypt new objects of a resource.
func (e Encryption) Encrypts(resource string, wanted []string) bool {
	return slices.Contains(wanted, resource) && slices.Contains(e.Resources, resource)
}

// PreviousKMS returns the names of the KMS that a setup no longer has, and that have encrypted objects which may not be
// written again yet.
func (e Encryption) PreviousKMS(wanted *v1alpha1.Encryption) []string {
	now := ""
	if wanted != nil && wanted.KMS != nil {
		now = wanted.KMS.Name
	}
	var keys, out []string
	if len(e.Resources) > 0 {
		keys = append(keys, e.Key)
	}
	for _, key := range append(keys, e.Previous) {
		if k := e.KMS[key]; k.Endpoint != "" && k.Name != now && !slices.Contains(out, k.Name) {
			out = append(out, k.Name)
		}
	}
	return out
}

// EncryptionKeyName returns the name of a key, which is stored with each object that the key has encrypted.
func EncryptionKeyName(key string) string { return EncryptionKeyWith(fingerprint([]byte(key))) }

// EncryptionKeyWith returns the name of the key with a fingerprint.
func EncryptionKeyWith(fingerprint string) string {
	return "key-" + strings.TrimPrefix(fingerprint, "sha256:")[:16]
}

// EncryptedWith returns how a value in etcd begins that a key has encrypted (Kubernetes:
// apiserver/pkg/server/options/encryptionconfig/config.go).
func (e Encryption) EncryptedWith(key string) []byte {
	if e.KMS[key].Endpoint != "" {
		return []byte("k8s:enc:kms:v2:" + EncryptionKeyName(key) + ".") // the resource follows
	}
	return []byte("k8s:enc:secretbox:v1:" + EncryptionKeyName(key) + ":")
}

// uses reports whether the key that encrypts belongs to the KMS of a setup or, without one, to kcpctl.
func (e Encryption) uses(wanted *v1alpha1.Encryption) bool {
	name := ""
	if wanted.KMS != nil {
		name = wanted.KMS.Name
	}
	return e.KMS[e.Key].Name == name
}

// dial sets where the KMS of a setup is now, and forgets each KMS whose keys are gone.
func (e *Encryption) dial(wanted *v1alpha1.Encryption) {
	known := map[string]v1alpha1.KMS{}
	for _, key := range e.Keys() {
		k, ok := e.KMS[key]
		if wanted != nil && wanted.KMS != nil && k.Name == wanted.KMS.Name {
			k = *wanted.KMS
		}
		if ok {
			known[key] = k
		}
	}
	if e.KMS = known; len(known) == 0 {
		e.KMS = nil
	}
}

// newKey returns a new key for what a setup wants.
func (e *Encryption) newKey(wanted *v1alpha1.Encryption) string {
	key := make([]byte, encryptionKeySize)
	_, _ = rand.Read(key) // it never fails
	text := base64.StdEncoding.EncodeToString(key)
	e.assign(text, wanted)
	return text
}

// assign makes a key that has encrypted nothing yet one of the KMS of a setup or, without one, of kcpctl.
func (e *Encryption) assign(key string, wanted *v1alpha1.Encryption) {
	all := map[string]v1alpha1.KMS{}
	maps.Copy(all, e.KMS)
	delete(all, key)
	if wanted != nil && wanted.KMS != nil {
		all[key] = *wanted.KMS
	}
	if e.KMS = all; len(all) == 0 {
		e.KMS = nil
	}
}

func (e Encryption) encode() []byte {
	if e.Key == "" {
		return nil
	}
	raw, err := json.Marshal(e)
	if err != nil {
		panic("encode texts: " + err.Error())
	}
	return raw
}

// decodeEncryption does not return the cause of a failure, which could quote a key.
func decodeEncryption(raw []byte) (e Encryption, err error) {
	if len(raw) == 0 {
		return e, nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields() // a PKI is refused rather than written back without a part of it
	if d.Decode(&e) != nil || e.Key == "" {
		return Encryption{}, errors.New("it is not what kcpctl has written")
	}
	for _, key := range e.Keys() {
		if raw, err := base64.StdEncoding.DecodeString(key); err != nil || len(raw) != encryptionKeySize {
			return Encryption{}, fmt.Errorf("a key does not have %d bytes", encryptionKeySize)
		}
	}
	return e, nil
}

func (e Encryption) fingerprints() Fingerprints {
	f := Fingerprints{Current: fingerprint([]byte(e.Key))}
	if e.Next != "" {
		f.Next = fingerprint([]byte(e.Next))
	}
	if e.Previous != "" {
		f.Previous = []string{fingerprint([]byte(e.Previous))}
	}
	return f
}

// ensureEncryption creates the key of a setup that encrypts for the first time. If there is an installation already, of
// this setup or of a kcp-operator, the key only decrypts at first: a replica without it could not read what others
// encrypt, and stored objects must be written again.
func (e *ensurer) ensureEncryption() {
	wanted := e.t.Setup.Spec.Encryption
	state := &e.result.State.Encryption
	if state.Next != "" {
		state.assign(state.Next, wanted) // no shard needs a KMS that the setup no longer has, and that may not answer
	}
	switch {
	case wanted == nil:
		return
	case state.Key == "" && e.isNew() && e.t.Setup.Spec.TakeOver == nil:
		state.Key, state.Resources = state.newKey(wanted), wanted.Resources
	case state.Key == "":
		state.Key, state.Phase = state.newKey(wanted), PhaseDistribute
	case state.Phase != PhaseNone:
	case !state.uses(wanted):
		state.Next, state.Phase = state.newKey(wanted), PhaseDistribute
	case len(state.Resources) == 0: // the setup encrypts again
		state.Phase = PhaseDistribute
	}
	state.dial(wanted)
}

// isNew reports whether the installation has neither an identity nor a certificate yet. Certificates alone do not tell:
// down deletes them, and keeps what is stored.
func (e *ensurer) isNew() bool {
	return e.result.State.Installation.ID == "" && e.o.Installation.ID == "" && !e.hasLeaf()
}

// hasLeaf reports whether a certificate of the setup was issued before.
func (e *ensurer) hasLeaf() bool {
	return slices.ContainsFunc(e.table, func(c Cert) bool { _, ok := e.result.State.Leaves[c.Key()]; return ok })
}

// EncryptionRotation is the rotation of the key that encrypts objects in etcd. In a setup that runs, it is also the way
// to encrypt other resources, and to end the encryption.
type EncryptionRotation struct{}

// String returns the name that users see.
func (EncryptionRotation) String() string { return "encryption key" }

// Key returns the name in JSON.
func (EncryptionRotation) Key() string { return "encryption-key" }

// Phase returns the phase of the rotation in a state.
func (EncryptionRotation) Phase(s *State) Phase { return s.Encryption.Phase }

// Advance moves the rotation from a phase to the next. Before it ends PhaseSwitch, all objects must have been written
// again. The PKI keeps the last key: backups may need it.
func (r EncryptionRotation) Advance(t *topology.Topology, s *State, from Phase, _ time.Time) (*State, error) {
	if err := inPhase(r, s, from); err != nil {
		return nil, err
	}
	if s.Encryption.Key == "" {
		return nil, clierr.New(clierr.Failed,
			"set spec.encryption in the setup file, and run kcpctl up: it creates the key",
			"rotate the %s: the setup has none", r)
	}
	out := s.clone()
	e := &out.Encryption
	spec, wanted := t.Setup.Spec.Encryption, EncryptedResources(t)
	switch from {
	case PhaseNone:
		if spec != nil {
			e.Next = e.newKey(spec)
		}
		e.Phase = PhaseDistribute
	case PhaseDistribute:
		if e.Next != "" {
			e.assign(e.Next, spec)
			e.Previous = e.Key
			e.Key = e.Next
			e.Next = ""
		}
		e.Resources = e.Covers(wanted)
		e.Phase = PhaseSwitch
	case PhaseSwitch:
		*e = Encryption{Key: e.Key, KMS: e.KMS, Resources: wanted}
	}
	e.dial(spec)
	return out, nil
}

// EncryptedResources returns the resources that a setup encrypts.
func EncryptedResources(t *topology.Topology) []string {
	if e := t.Setup.Spec.Encryption; e != nil {
		return e.Resources
	}
	return nil
}
