package pki

import (
	"cmp"
	"slices"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// KeyInUse is a key of a live configuration. Its Text is empty if a KMS has it: then only its name is known.
type KeyInUse struct{ Name, Text string }

// EncryptionInUse is the live configuration with which the shards of a cluster encrypt and decrypt.
type EncryptionInUse struct {
	// Keys are all keys. The first one is the one that encrypts, if one does.
	Keys []KeyInUse
	// Decrypted are the resources that may be encrypted. Of the Encrypted ones, new objects are encrypted.
	Decrypted, Encrypted []string
}

// Missing returns the names of the keys in use that the PKI lacks.
func (e Encryption) Missing(used EncryptionInUse) []string {
	var out []string
	for _, key := range used.Keys {
		if e.text(key) == "" {
			out = append(out, key.Name)
		}
	}
	return out
}

// text returns a key in use from a PKI; empty if the PKI lacks it.
func (e Encryption) text(key KeyInUse) string {
	i := slices.IndexFunc(e.Keys(), func(k string) bool { return EncryptionKeyName(k) == key.Name })
	if i < 0 {
		return ""
	}
	return e.Keys()[i]
}

// RecoverEncryption returns the PKI with all keys that shards use: it has lost some of them. With two keys, a rotation
// was in progress, and it continues. Which of its steps was the last one does not matter, because all objects are
// written again before a key is removed.
func RecoverEncryption(t *topology.Topology, s *State, used []EncryptionInUse) (*State, error) {
	keys, err := s.Encryption.recoveredKeys(used)
	if err != nil {
		return nil, err
	}
	wanted := EncryptedResources(t)
	resources, pending := slices.Clone(s.Encryption.Resources), false
	for _, u := range used {
		for _, resource := range u.Decrypted {
			begins := slices.Contains(wanted, resource) && !slices.Contains(u.Encrypted, resource)
			if pending = pending || begins; !begins {
				resources = append(resources, resource)
			}
		}
	}
	slices.Sort(resources)
	out := s.clone()
	out.Encryption = Encryption{Key: keys[0], KMS: s.Encryption.KMS, Resources: slices.Compact(resources)}
	switch e := &out.Encryption; {
	case len(keys) == 2 && pending: // shards do not encrypt all resources yet
		e.Next = keys[1]
		e.Phase = PhaseDistribute
	case len(keys) == 2:
		e.Previous = keys[1]
		e.Phase = PhaseSwitch
	}
	return out, nil
}

// recoveredKeys returns all keys in use, and all keys of the PKI: first the one that encrypts.
func (e Encryption) recoveredKeys(used []EncryptionInUse) ([]string, error) {
	var firsts, others []string
	for _, u := range used {
		for i, key := range u.Keys {
			text := cmp.Or(key.Text, e.text(key))
			switch {
			case text == "":
				return nil, clierr.New(clierr.Failed, "restore the PKI store from a backup with kcpctl certs import",
					"shards use key %s of a KMS, which the PKI store has lost, and which is nowhere else", key.Name)
			case i == 0:
				firsts = append(firsts, text)
			default:
				others = append(others, text)
			}
		}
	}
	// A key that all shards know is before one that only some know.
	everywhere := func(key string) bool {
		return !slices.ContainsFunc(used, func(u EncryptionInUse) bool {
			return !slices.ContainsFunc(u.Keys, func(k KeyInUse) bool { return k.Name == EncryptionKeyName(key) })
		})
	}
	if i := slices.IndexFunc(firsts, everywhere); i > 0 {
		firsts = slices.Insert(firsts, 0, firsts[i])
	}
	var out []string
	for _, key := range slices.Concat(firsts, others, e.Keys()) {
		if !slices.Contains(out, key) {
			out = append(out, key)
		}
	}
	if len(out) > 2 {
		return nil, clierr.New(clierr.Failed, "restore the PKI store from a backup with kcpctl certs import",
			"shards and the PKI store have %d encryption keys: which of them are needed is not known", len(out))
	}
	return out, nil
}
