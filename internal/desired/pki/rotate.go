package pki

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// Phase is the phase of the rotation of an authority or of a key. A setup can remain in any phase:
// all components trust everything that can be presented in it, and in the phases before and after it.
type Phase string

// The phases of a rotation.
const (
	// PhaseNone: no rotation is in progress.
	PhaseNone Phase = ""
	// PhaseDistribute: the next authority or key is trusted, and the current one signs.
	PhaseDistribute Phase = "distribute"
	// PhaseSwitch: the new authority or key signs, and the previous one is still trusted.
	PhaseSwitch Phase = "switch"
)

// Rotation is the rotation of an authority or of a key.
type Rotation interface {
	// String returns the name that users see: "server CA".
	String() string
	// Key returns the name in JSON: "server-ca".
	Key() string
	// Phase returns the phase of the rotation in a state.
	Phase(s *State) Phase
	// Advance moves the rotation from a phase to the next: from PhaseNone to PhaseDistribute, to PhaseSwitch, and back
	// to PhaseNone. It returns a state that Ensure must complete, and does not modify s. Before each step, the phase
	// that ends must have been applied to all components.
	Advance(t *topology.Topology, s *State, from Phase, now time.Time) (*State, error)
}

// AllRotations returns the rotations of all authorities and keys.
func AllRotations() Rotations {
	var all Rotations
	for _, ca := range topology.CAs {
		all = append(all, RotationOf(ca))
	}
	return append(all, KeyRotation{}, EncryptionRotation{})
}

// Rotations are rotations that go through their phases together: of authorities, or of one key.
type Rotations []Rotation

// String returns the names that users see: "server CA, client CA".
func (all Rotations) String() string {
	var names []string
	for _, r := range all {
		names = append(names, r.String())
	}
	return strings.Join(names, ", ")
}

// Has reports whether the rotation of an authority is one of them.
func (all Rotations) Has(ca topology.CA) bool {
	return slices.ContainsFunc(all, func(r Rotation) bool {
		c, ok := r.(CARotation)
		return ok && c.ca == ca
	})
}

// OfServiceAccount reports whether the rotation of the service-account key is one of them.
func (all Rotations) OfServiceAccount() bool { return slices.Contains(all, Rotation(KeyRotation{})) }

// OfEncryption reports whether the rotation of the encryption key is one of them.
func (all Rotations) OfEncryption() bool { return slices.Contains(all, Rotation(EncryptionRotation{})) }

// Supplied returns those to user-supplied authorities.
func (all Rotations) Supplied() []CARotation {
	var out []CARotation
	for _, r := range all {
		if c, ok := r.(CARotation); ok && c.next != nil {
			out = append(out, c)
		}
	}
	return out
}

// CheckSupplied fails if a rotation to another authority than the user-supplied one is in progress.
func (all Rotations) CheckSupplied(s *State) error {
	for _, r := range all.Supplied() {
		a, phase := s.CAs[r.ca], r.Phase(s)
		if phase == PhaseDistribute && !sameCert(a.Next.Cert, r.next.Cert) ||
			phase == PhaseSwitch && !sameCert(a.Cert, r.next.Cert) {
			return clierr.New(clierr.Conflict,
				"complete that rotation first: run the command without --from, and then with --finish; in the phase "+
					"distribute, --cancel ends it",
				"the %s is being rotated to another authority than the supplied one (phase %q); nothing was changed",
				r, phase)
		}
	}
	return nil
}

// Phase returns the earliest phase that one of them is in.
func (all Rotations) Phase(s *State) Phase {
	for _, p := range []Phase{PhaseNone, PhaseDistribute, PhaseSwitch} {
		if len(all.In(s, p)) > 0 {
			return p
		}
	}
	return PhaseNone
}

// In returns the rotations that are in a phase.
func (all Rotations) In(s *State, p Phase) Rotations {
	return slices.DeleteFunc(slices.Clone(all), func(r Rotation) bool { return r.Phase(s) != p })
}

// Advance moves all of them from a phase to the next, like Rotation.Advance.
func (all Rotations) Advance(t *topology.Topology, s *State, from Phase, now time.Time) (*State, error) {
	var err error
	for _, r := range all {
		if s, err = r.Advance(t, s, from, now); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Cancel ends rotations of authorities in PhaseDistribute: the next one, which has signed nothing, is no longer
// trusted. Rotations in PhaseNone do not change. It does not modify s.
func (all Rotations) Cancel(s *State) (*State, error) {
	if switched := all.In(s, PhaseSwitch); len(switched) > 0 {
		return nil, clierr.New(clierr.Failed, "complete it: run the command without --cancel, and then with --finish",
			"the rotation of the %s is in the phase %q: the new one signs already", switched, PhaseSwitch)
	}
	out := s.clone()
	for _, r := range all {
		c, ok := r.(CARotation)
		if !ok {
			return nil, fmt.Errorf("the rotation of the %s cannot be canceled", r)
		}
		a := out.CAs[c.ca]
		a.Next = Pair{}
		out.CAs[c.ca] = a
	}
	return out, nil
}

// inPhase fails if a rotation is in another phase.
func inPhase(r Rotation, s *State, from Phase) error {
	if is := r.Phase(s); is != from {
		return clierr.New(clierr.Conflict, "rerun the command: it continues from there",
			"%w: the rotation of the %s is in the phase %q, not %q", ErrChanged, r, is, from)
	}
	return nil
}

// CARotation is the rotation of an authority.
type CARotation struct {
	ca topology.CA
	// next is the user-supplied authority to rotate to. Nil: a new one is created.
	next *Authority
}

// RotationOf returns the rotation of an authority.
func RotationOf(ca topology.CA) CARotation { return CARotation{ca: ca} }

// To returns the rotation to a user-supplied authority, instead of to a new one. The private key of the authority is
// required.
func (r CARotation) To(supplied *State, now time.Time) (CARotation, error) {
	a, err := loadAuthority(supplied, r.ca, now)
	if err != nil {
		return r, err
	}
	if err := checkChain(r.ca, supplied.CAs[r.ca].Cert); err != nil {
		return r, err
	}
	if a.key == nil {
		return r, clierr.New(clierr.BadInput, "add its private key",
			"the new %s has no private key, so it cannot sign certificates", r)
	}
	next := supplied.CAs[r.ca]
	r.next = &next
	return r, nil
}

// String returns the name that users see: "server CA".
func (r CARotation) String() string { return string(r.ca) + " CA" }

// Key returns the name in JSON: "server-ca".
func (r CARotation) Key() string { return string(r.ca) + "-ca" }

// CA returns the authority.
func (r CARotation) CA() topology.CA { return r.ca }

// Phase returns the phase of the rotation in a state.
func (r CARotation) Phase(s *State) Phase {
	switch a := s.CAs[r.ca]; {
	case len(a.Previous) > 0:
		return PhaseSwitch
	case len(a.Next.Cert) > 0:
		return PhaseDistribute
	}
	return PhaseNone
}

// Advance moves the rotation from a phase to the next.
func (r CARotation) Advance(t *topology.Topology, s *State, from Phase, now time.Time) (*State, error) {
	if err := inPhase(r, s, from); err != nil {
		return nil, err
	}
	step := map[Phase]func(*topology.Topology, CARotation, Authority, time.Time) (Authority, error){
		PhaseNone: distributeAuthority, PhaseDistribute: switchAuthority, PhaseSwitch: finishAuthority,
	}[from]
	out := s.clone()
	_, err := loadAuthority(s, r.ca, now)
	if err == nil {
		out.CAs[r.ca], err = step(t, r, s.CAs[r.ca], now.UTC().Truncate(time.Second))
	}
	if err != nil {
		return nil, fmt.Errorf("rotate the %s: %w", r, err)
	}
	return out, out.distinct()
}

// distributeAuthority creates the next authority. Its name contains the date, which distinguishes it from the current
// one.
func distributeAuthority(t *topology.Topology, r CARotation, a Authority, now time.Time) (Authority, error) {
	if r.next == nil {
		var err error
		a.Next, err = newAuthority(t, caName(t, r.ca)+"-"+now.Format("20060102"), now)
		return a, err
	}
	if sameCert(a.Cert, r.next.Cert) {
		return a, clierr.New(clierr.BadInput, "use a different certificate authority",
			"the new authority is the current one")
	}
	a.Next, a.Bundle = r.next.Pair, slices.Concat(a.Bundle, r.next.Bundle)
	return a, nil
}

// switchAuthority lets the next authority sign. The current one cross-signs it if possible.
func switchAuthority(_ *topology.Topology, r CARotation, a Authority, _ time.Time) (Authority, error) {
	next := Authority{Pair: a.Next, Previous: firstCert(a.Cert), Bundle: a.Bundle}
	if a.CrossSignable() != nil {
		return next, nil
	}
	old, err := a.parse(r.ca)
	if err != nil {
		return a, err
	}
	successor, err := next.parse(r.ca)
	if err != nil {
		return a, err
	}
	next.Cross, err = old.crossSign(successor)
	next.Cross = append(next.Cross, encodeCerts(old.intermediates)...)
	return next, err
}

func finishAuthority(_ *topology.Topology, _ CARotation, a Authority, _ time.Time) (Authority, error) {
	a.Previous = nil
	a.Cross = nil
	return a, nil
}

// CrossSignable returns why the authority cannot sign its successor, or nil if it can. If it cannot, clients that trust
// only this authority must trust the next one before that signs anything.
func (a Authority) CrossSignable() error {
	parsed, err := a.parse("")
	switch {
	case err != nil:
		return err
	case parsed.key == nil:
		return errors.New("its private key is not in the PKI store")
	case parsed.cert.BasicConstraintsValid && parsed.cert.MaxPathLen == 0:
		return errors.New("its certificate does not allow it to sign authorities (path length 0)")
	}
	return nil
}

func (a Authority) parse(name topology.CA) (*authority, error) {
	certs, key, err := parseAuthority(a.Pair)
	if err != nil {
		return nil, err
	}
	return &authority{name: name, cert: certs[0], intermediates: intermediates(certs), key: key}, nil
}
