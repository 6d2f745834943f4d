package pki

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"maps"
	"slices"
)

// Fingerprints identify the authorities or the keys of one rotation without revealing them: the SHA-256 of each
// certificate, public key, or random key. A missing one has no fingerprint.
type Fingerprints struct {
	// Current signs.
	Current string `json:"current,omitempty"`
	// Next is trusted and will sign.
	Next string `json:"next,omitempty"`
	// Previous are trusted and no longer sign, oldest last.
	Previous []string `json:"previous,omitempty"`
	// More are trusted and never sign: the further certificates of the bundle, sorted.
	More []string `json:"more,omitempty"`
}

// All returns all fingerprints: the current one, the next one, the previous ones, the further ones.
func (f Fingerprints) All() []string {
	all := slices.Concat([]string{f.Current, f.Next}, f.Previous, f.More)
	return slices.DeleteFunc(all, func(s string) bool { return s == "" })
}

// Fingerprints returns the fingerprints of all authorities and keys, by Rotation.Key.
func (s *State) Fingerprints() map[string]Fingerprints {
	out := map[string]Fingerprints{}
	for ca, a := range s.CAs {
		out[RotationOf(ca).Key()] = a.fingerprints()
	}
	if f, ok := s.ServiceAccount.fingerprints(); ok {
		out[KeyRotation{}.Key()] = f
	}
	if s.Encryption.Key != "" {
		out[EncryptionRotation{}.Key()] = s.Encryption.fingerprints()
	}
	return out
}

func (a Authority) fingerprints() Fingerprints {
	f := Fingerprints{Current: first(a.Cert), Next: first(a.Next.Cert), Previous: fingerprintsOf(a.Previous)}
	others := f.All()
	more := slices.DeleteFunc(fingerprintsOf(a.Bundle), func(s string) bool { return slices.Contains(others, s) })
	slices.Sort(more)
	f.More = slices.Compact(more)
	return f
}

// Keyed returns the fingerprints of the authorities whose private keys are in the store, sorted.
func (s *State) Keyed() []string {
	var out []string
	for _, a := range s.CAs {
		if f := first(a.Cert); f != "" && len(a.Key) > 0 {
			out = append(out, f)
		}
	}
	slices.Sort(out)
	return out
}

// Names returns the common names of all certificates that are trusted, by their fingerprints.
func (s *State) Names() map[string]string {
	out := map[string]string{}
	for _, a := range s.CAs {
		maps.Copy(out, NamesIn(a.Trusted()))
	}
	return out
}

// NamesIn returns the common names of PEM certificates, by their fingerprints. It ignores keys.
func NamesIn(bundle []byte) map[string]string {
	out := map[string]string{}
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
			out[fingerprint(block.Bytes)] = cert.Subject.CommonName
		}
	}
	return out
}

func (sa ServiceAccount) fingerprints() (f Fingerprints, ok bool) {
	current, errCurrent := publicOf(sa.Key)
	next, errNext := publicOf(sa.Next)
	if len(sa.Key) == 0 || errCurrent != nil || errNext != nil {
		return f, false
	}
	f.Current = first(current)
	if n := first(next); n != f.Current {
		f.Next = n
	}
	for _, p := range fingerprintsOf(sa.Public) {
		if p != f.Current && p != f.Next {
			f.Previous = append(f.Previous, p)
		}
	}
	return f, true
}

// fingerprintsOf returns the fingerprints of PEM certificates or keys, in their order.
func fingerprintsOf(data []byte) []string {
	var out []string
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		out = append(out, fingerprint(block.Bytes))
	}
	return out
}

func fingerprint(der []byte) string {
	sum := sha256.Sum256(der)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func first(data []byte) string {
	if all := fingerprintsOf(data); len(all) > 0 {
		return all[0]
	}
	return ""
}

// BundleFingerprints returns the fingerprints of a bundle from a rendered or live object: the first certificate or key
// signs, the others are trusted.
func BundleFingerprints(bundle []byte) Fingerprints {
	all := fingerprintsOf(bundle)
	if len(all) == 0 {
		return Fingerprints{}
	}
	return Fingerprints{Current: all[0], Previous: all[1:]}
}
