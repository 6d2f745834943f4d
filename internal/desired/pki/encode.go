package pki

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// Keys of an encoded PKI besides the keys of the authorities.
const (
	keyServiceAccount       = "sa.key"
	keyServiceAccountPublic = "sa.pub"
	keyServiceAccountNext   = "sa.next.key"
)

// hintRestore is the next step for an inconsistent PKI.
const hintRestore = "restore the PKI store from a backup, " +
	"or import the certificate and the key of an authority together"

// part is one value of an encoded PKI.
type part struct {
	key string
	val *[]byte
}

func (a *Authority) parts(ca topology.CA) []part {
	name := string(ca) + "-ca"
	return []part{
		{name + ".crt", &a.Cert}, {name + ".key", &a.Key}, {name + ".bundle", &a.Bundle},
		{name + ".next.crt", &a.Next.Cert}, {name + ".next.key", &a.Next.Key},
		{name + ".previous.crt", &a.Previous}, {name + ".cross.crt", &a.Cross},
	}
}

func (sa *ServiceAccount) parts() []part {
	return []part{{keyServiceAccount, &sa.Key}, {keyServiceAccountPublic, &sa.Public},
		{keyServiceAccountNext, &sa.Next}}
}

// Keys of the installation, of users and of the encryption in an encoded PKI.
const (
	keyInstallation = "installation.json"
	keyUsers        = "users.json"
	keyEncryption   = "encryption.key"
)

// Encode returns the authorities and the keys as values of a Secret: server-ca.crt, server-ca.key, server-ca.bundle,
// and so on; sa.key, sa.pub; during a rotation also server-ca.next.crt, server-ca.next.key, server-ca.previous.crt,
// server-ca.cross.crt, sa.next.key; encryption.key; installation.json; users.json. A missing part has no value.
func Encode(s *State) map[string][]byte {
	out := map[string][]byte{}
	put := func(parts []part) {
		for _, p := range parts {
			if len(*p.val) > 0 {
				out[p.key] = *p.val
			}
		}
	}
	for ca, a := range s.CAs {
		put(a.parts(ca))
	}
	sa := s.ServiceAccount
	put(sa.parts())
	maps.Copy(out, s.documents())
	return out
}

// documents returns the parts of an encoded PKI that are JSON.
func (s *State) documents() map[string][]byte {
	out := map[string][]byte{
		keyInstallation: s.Installation.encode(), keyUsers: encodeUsers(s.Users), keyEncryption: s.Encryption.encode(),
	}
	maps.DeleteFunc(out, func(_ string, raw []byte) bool { return raw == nil })
	return out
}

// Decode parses the result of Encode, or a user-supplied PKI. It ignores nothing: half of a pair, a key that does not
// belong to its certificate, and an unknown value are errors.
func Decode(data map[string][]byte) (*State, error) {
	s := &State{CAs: map[topology.CA]Authority{}, Leaves: map[LeafKey]Pair{}}
	rest := maps.Clone(data)
	take := func(parts []part) {
		for _, p := range parts {
			*p.val = nil
			if len(data[p.key]) > 0 {
				*p.val = bytes.Clone(data[p.key])
			}
			delete(rest, p.key)
		}
	}
	for _, ca := range topology.CAs {
		var a Authority
		take(a.parts(ca))
		if a.empty() {
			continue
		}
		if err := a.check(); err != nil {
			return nil, clierr.New(clierr.BadInput, hintRestore, "the %s CA: %w", ca, err)
		}
		s.CAs[ca] = a
	}
	take(s.ServiceAccount.parts())
	if err := s.ServiceAccount.check(); err != nil {
		return nil, clierr.New(clierr.BadInput, hintRestore, "the service-account keys: %w", err)
	}
	var err error
	if s.Installation, err = decodeInstallation(data[keyInstallation]); err != nil {
		return nil, clierr.New(clierr.BadInput, hintRestore, "%s: %w", keyInstallation, err)
	}
	if s.Encryption, err = decodeEncryption(data[keyEncryption]); err != nil {
		return nil, clierr.New(clierr.BadInput, "restore the PKI store from a backup", "%s: %w", keyEncryption, err)
	}
	if s.Users, err = decodeUsers(data[keyUsers]); err != nil {
		return nil, clierr.New(clierr.BadInput, "restore the PKI store from a backup", "%s: %w", keyUsers, err)
	}
	for _, document := range []string{keyInstallation, keyUsers, keyEncryption} {
		delete(rest, document)
	}
	for _, unknown := range slices.Sorted(maps.Keys(rest)) {
		return nil, clierr.New(clierr.BadInput, "remove it, or use the kcpctl release that wrote it",
			"%q is not part of a PKI", unknown)
	}
	return s, nil
}

// empty reports whether no part of an authority exists.
func (a *Authority) empty() bool {
	return !slices.ContainsFunc(a.parts(""), func(p part) bool { return len(*p.val) > 0 })
}

func (a Authority) check() error {
	if len(a.Cert) == 0 {
		return errors.New("a key or a bundle exists, but no certificate")
	}
	if _, _, err := parseAuthority(a.Pair); err != nil {
		return err
	}
	if n := a.Next; len(n.Cert)+len(n.Key) > 0 {
		if _, _, err := parsePair(n); err != nil {
			return fmt.Errorf("the next authority: %w", err)
		}
	}
	for _, more := range []struct {
		what string
		pem  []byte
	}{{"bundle", a.Bundle}, {"previous authority", a.Previous}, {"cross-signed certificate", a.Cross}} {
		if len(more.pem) == 0 {
			continue
		}
		if _, err := parseCerts(more.pem); err != nil {
			return fmt.Errorf("the %s: %w", more.what, err)
		}
	}
	return nil
}

func (sa ServiceAccount) check() error {
	if len(sa.Key) == 0 {
		switch {
		case len(sa.Public) > 0:
			return errors.New("a public key exists, but no private key")
		case len(sa.Next) > 0:
			return errors.New("a next key exists, but no key that signs")
		}
		return nil
	}
	if _, err := parseKey(sa.Key); err != nil {
		return err
	}
	if len(sa.Next) > 0 {
		if _, err := parseKey(sa.Next); err != nil {
			return fmt.Errorf("the next key: %w", err)
		}
	}
	for block, rest := pem.Decode(sa.Public); block != nil; block, rest = pem.Decode(rest) {
		if _, err := x509.ParsePKIXPublicKey(block.Bytes); err != nil {
			return fmt.Errorf("the public keys: %w", err)
		}
	}
	return nil
}
