package record

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kcpctl/kcpctl/internal/api/risk"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// CheckAuthorities fails if a PKI is not the PKI of the installation: a different or empty one, a copy from before the
// last rotation, or one that trusts more or fewer certificates. A PKI may be one step of a rotation ahead of the
// record. store is the location of the PKI. allowed are fingerprints of further certificates that may be added and
// removed, and of next authorities that may be removed.
func (r *Record) CheckAuthorities(s *pki.State, store string, allowed ...string) error {
	if r.Empty() {
		return nil
	}
	if s.Installation.ID != "" && s.Installation.ID != r.Installation {
		return clierr.New(clierr.Failed, hintStore,
			"%s does not hold the PKI of installation %s, but that of installation %s; nothing was changed",
			store, r.Installation, s.Installation.ID)
	}
	if err := r.checkEmpty(s, store); err != nil {
		return err
	}
	have, names := s.Fingerprints(), s.Names()
	var differences, bundles []string
	for _, rotation := range pki.AllRotations() {
		key := rotation.Key()
		was, ok := r.Authorities[key]
		if !ok {
			continue
		}
		if why := differs(was, have[key], r.Retired[key], allowed); why != "" {
			differences = append(differences, fmt.Sprintf("    %s: %s", rotation, why))
			continue
		}
		c := bundleChange{was: was, have: have[key], retired: r.Retired[key], names: names, allowed: allowed}
		if r.Serial > 0 {
			bundles = append(bundles, c.lines(rotation)...)
		}
	}
	switch {
	case len(differences) > 0:
		return clierr.New(clierr.Failed, hintStore,
			"%s does not hold the PKI of installation %s; nothing was changed\n%s",
			store, r.Installation, strings.Join(slices.Concat(differences, bundles), "\n"))
	case len(bundles) > 0:
		return clierr.New(clierr.Failed, "use the PKI store that the setup was applied with, or restore its bundle; "+
			"if the change is intended, run kcpctl up "+risk.TrustChange.Of("FINGERPRINT")+" with each fingerprint above",
			"%s does not trust the same certificates as installation %s; nothing was changed\n%s",
			store, r.Installation, strings.Join(bundles, "\n"))
	}
	return nil
}

// LostEncryptionKeys returns the names of the encryption keys that shards use and a PKI lacks. Keys that a rotation has
// removed are not lost: nothing needs them. removed are the fingerprints of further such keys.
func (r *Record) LostEncryptionKeys(s *pki.State, used pki.EncryptionInUse, removed ...string) []string {
	removed = slices.Concat(removed, r.Retired[pki.EncryptionRotation{}.Key()])
	return slices.DeleteFunc(s.Encryption.Missing(used), func(name string) bool {
		return slices.ContainsFunc(removed, func(f string) bool { return pki.EncryptionKeyWith(f) == name })
	})
}

// CheckEncryption fails if a PKI lacks the key that encrypts data of the installation: without it, the data cannot be
// read, so users cannot allow it. store is the location of the PKI.
func (r *Record) CheckEncryption(s *pki.State, store string) error {
	if r.Empty() {
		return nil
	}
	key := pki.EncryptionRotation{}.Key()
	was := r.Authorities[key].Current
	if was == "" || slices.Contains(s.Fingerprints()[key].All(), was) {
		return nil
	}
	return clierr.New(clierr.Failed, "import it from a backup with kcpctl certs import; if the Secret with the "+
		"configuration of the shards still has it, kcpctl up --"+FlagReplaceAuthorities+" takes it from there",
		"%s does not have the encryption key of installation %s, %s: without it, the data in etcd cannot be read; "+
			"nothing was changed", store, r.Installation, Short(was))
}

// checkEmpty fails if a PKI is empty: the store was deleted, or is another one. It is the message of every command that
// needs the PKI.
func (r *Record) checkEmpty(s *pki.State, store string) error {
	if len(s.CAs) > 0 || len(s.ServiceAccount.Key) > 0 || len(r.Authorities) == 0 {
		return nil
	}
	var lines []string
	for _, rotation := range pki.AllRotations() {
		if f, ok := r.Authorities[rotation.Key()]; ok {
			lines = append(lines,
				fmt.Sprintf("    %s: it is missing; the installation uses %s", rotation, Short(f.Current)))
		}
	}
	return clierr.New(clierr.Failed, hintStore,
		"the PKI store (%s) is empty; installation %s uses other authorities\n%s",
		store, r.Installation, strings.Join(lines, "\n"))
}

// LostKeys returns the authorities in use whose private keys were in the PKI store, and are no longer. An authority
// that was imported without its key is not included.
func (r *Record) LostKeys(s *pki.State) []topology.CA {
	if r.Empty() {
		return nil
	}
	have, fingerprints := s.Keyed(), s.Fingerprints()
	var out []topology.CA
	for _, ca := range topology.CAs {
		f := fingerprints[pki.RotationOf(ca).Key()].Current
		if slices.Contains(r.Keyed, f) && !slices.Contains(have, f) {
			out = append(out, ca)
		}
	}
	return out
}

// LostKeysMessage says which keys are lost, and what to do; "" if none is. Without the key of the client CA kcpctl
// cannot call kcp, so that CA cannot be rotated.
func (r *Record) LostKeysMessage(s *pki.State, store string) (message, next string) {
	lost := r.LostKeys(s)
	if len(lost) == 0 {
		return "", ""
	}
	var names, arguments []string
	for _, ca := range lost {
		names = append(names, pki.RotationOf(ca).String())
		arguments = append(arguments, string(ca))
	}
	what := "private key"
	if len(lost) > 1 {
		what = "private keys"
	}
	replace := "replace the authority with kcpctl certs rotate-ca " + strings.Join(arguments, " ")
	if slices.Contains(lost, topology.ClientCA) {
		replace = "run kcpctl up --" + FlagReplaceAuthorities + ", which creates a new one: existing kubeconfigs and " +
			"certificates that depend on it then stop working"
	}
	return fmt.Sprintf("the PKI store (%s) lacks the %s of the %s, which installation %s has used", store, what,
			strings.Join(names, ", "), r.Installation),
		"restore it from a backup with kcpctl certs import; if it is lost, " + replace
}

// keyed returns the fingerprints of the current authorities of a PKI whose keys it has, or had: a lost key is noticed
// until the authority is replaced.
func (r *Record) keyed(s *pki.State) []string {
	out := []string{}
	var had []string
	if r != nil {
		had = r.Keyed
	}
	for _, f := range s.Fingerprints() {
		if slices.Contains(had, f.Current) || slices.Contains(s.Keyed(), f.Current) {
			out = append(out, f.Current)
		}
	}
	slices.Sort(out)
	return out
}

const hintStore = "use the PKI store that the setup was applied with (--pki-dir, spec.pki), " +
	"or restore it from a backup with kcpctl certs import; to use different authorities, pass --" +
	FlagReplaceAuthorities +
	": all existing kubeconfigs, certificates and service-account tokens then stop working"

// differs returns why fingerprints are neither the recorded ones nor one step of a rotation ahead. It returns "" if
// they are. Further certificates are compared by bundleChange. A next one that is allowed may be missing: it has signed
// nothing.
func differs(was, have pki.Fingerprints, retired, allowed []string) string {
	signers := have
	signers.More = nil
	old := firstIn(signers.All(), retired, true)
	switch {
	case have.Current == "":
		return fmt.Sprintf("it is missing; the installation uses %s", Short(was.Current))
	case old != "":
		return fmt.Sprintf("it has %s, which is retired; the installation uses %s: the store is older than that",
			Short(old), Short(was.Current))
	case have.Current == was.Current &&
		(have.Next == was.Next || was.Next == "" || have.Next == "" && Allowed(allowed, was.Next)):
		return unknownPrevious(have.Previous, was.Previous) // or one step ahead: the next one is trusted
	case have.Current == was.Current:
		return fmt.Sprintf("the next one, %s, is missing: the store is older than the rotation, or a run with "+
			"--cancel was interrupted: run it again", Short(was.Next))
	case have.Current == was.Next && slices.Contains(have.Previous, was.Current): // one step ahead: the next one signs
		return unknownPrevious(have.Previous, slices.Concat(was.Previous, []string{was.Current}))
	case have.Current == was.Next:
		return fmt.Sprintf("%s, which signs, is no longer trusted: the store is two steps of a rotation ahead",
			Short(was.Current))
	case slices.Contains(was.Previous, have.Current):
		return fmt.Sprintf("%s signed before the last rotation, and %s signs now: the store is older than the rotation",
			Short(have.Current), Short(was.Current))
	}
	return fmt.Sprintf("it is %s; the installation uses %s", Short(have.Current), Short(was.Current))
}

// unknownPrevious returns a problem if there are previous authorities or keys that the record does not have.
func unknownPrevious(have, was []string) string {
	more := firstIn(have, was, false)
	if more == "" {
		return ""
	}
	return fmt.Sprintf("it trusts %s as a previous one, which the installation does not know: "+
		"the store is older than a rotation, or was changed", Short(more))
}

// bundleChange compares the certificates that a bundle has besides the certificates of the rotation.
type bundleChange struct {
	was, have pki.Fingerprints
	retired   []string
	names     map[string]string
	allowed   []string
}

// lines returns the certificates that are added or removed and not allowed.
func (c *bundleChange) lines(rotation pki.Rotation) []string {
	var out []string
	add := func(f, why string) {
		if !Allowed(c.allowed, f) {
			out = append(out, fmt.Sprintf("    %s: %s", rotation, fmt.Sprintf(why, Describe(f, c.names))))
		}
	}
	// A rotation to a supplied authority adds the bundle of that authority.
	begins := c.was.Next == "" && c.have.Next != ""
	for _, f := range c.have.More {
		switch {
		case slices.Contains(c.was.All(), f):
		case slices.Contains(c.retired, f):
			add(f, "its bundle has %s, which was removed")
		case !begins:
			add(f, "its bundle has %s, which the installation does not know")
		}
	}
	for _, f := range c.was.More {
		if !slices.Contains(c.have.All(), f) {
			add(f, "its bundle lacks %s, which the installation trusts")
		}
	}
	return out
}

// Allowed reports whether fingerprints include the fingerprint of a certificate. They may be short, as in messages.
func Allowed(all []string, fingerprint string) bool {
	return slices.ContainsFunc(all,
		func(f string) bool { return len(f) >= len(Short(fingerprint)) && strings.HasPrefix(fingerprint, f) })
}

// Describe returns a fingerprint for messages, with the name of the certificate if that is known.
func Describe(fingerprint string, names map[string]string) string {
	if name := names[fingerprint]; name != "" {
		return fmt.Sprintf("%s (%q)", Short(fingerprint), name)
	}
	return Short(fingerprint)
}

// firstIn returns the first fingerprint whose presence in others is as wanted, or "".
func firstIn(have, others []string, want bool) string {
	for _, f := range have {
		if slices.Contains(others, f) == want {
			return f
		}
	}
	return ""
}

// Short returns the first characters of a fingerprint.
func Short(f string) string { return f[:min(len(f), len("sha256:")+16)] }
