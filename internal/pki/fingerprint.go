package pki

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"slices"
)

// Fingerprints identify the authorities or the service-account keys of one rotation without revealing them: the
// SHA-256 of each certificate or public key. A missing one has no fingerprint.
type Fingerprints struct {
	// Current signs.
	Current string `json:"current,omitempty"`
	// Next is trusted and will sign.
	Next string `json:"next,omitempty"`
	// Previous are trusted and no longer sign, oldest last.
	Previous []string `json:"previous,omitempty"`
}

// All returns all fingerprints: the current one, the next one, the previous ones.
func (f Fingerprints) All() []string {
	return slices.DeleteFunc(slices.Concat([]string{f.Current, f.Next}, f.Previous), func(s string) bool { return s == "" })
}

// Fingerprints returns the fingerprints of all authorities and of the service-account keys, by Rotation.Key.
func (s *State) Fingerprints() map[string]Fingerprints {
	out := map[string]Fingerprints{}
	for ca, a := range s.CAs {
		out[RotationOf(ca).Key()] = Fingerprints{
			Current: first(a.Cert), Next: first(a.Next.Cert), Previous: fingerprintsOf(a.Previous),
		}
	}
	if f, ok := s.ServiceAccount.fingerprints(); ok {
		out[KeyRotation{}.Key()] = f
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
		sum := sha256.Sum256(block.Bytes)
		out = append(out, "sha256:"+hex.EncodeToString(sum[:]))
	}
	return out
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
