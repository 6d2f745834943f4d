package pki

import (
	"encoding/pem"
	"fmt"
	"slices"
	"time"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// Phase is how far the rotation of an authority or of the service-account key is. Each is safe to stay in: everybody in the
// setup trusts whatever anybody may present in it, or in the phase before or after it.
type Phase string

// The phases of a rotation.
const (
	// PhaseNone is that nothing is rotated.
	PhaseNone Phase = ""
	// PhaseDistribute is that the next one is trusted, and the present one signs.
	PhaseDistribute Phase = "distribute"
	// PhaseSwitch is that the new one signs, and the previous one is trusted.
	PhaseSwitch Phase = "switch"
)

// Rotation is the rotation of an authority or of the service-account key.
type Rotation interface {
	// String is what users call it: "server CA".
	String() string
	// Key is what programs call it: "server-ca".
	Key() string
	// Phase returns how far the rotation is.
	Phase(s *State) Phase
	// Advance takes the rotation from a phase to the next: from PhaseNone to PhaseDistribute, PhaseSwitch, and back. It returns a
	// state that Ensure has to complete, and leaves the one that it is given as it is. Before each step everything in the setup
	// must have been brought up to the phase that is left.
	Advance(t *topology.Topology, s *State, from Phase, now time.Time) (*State, error)
}

// AllRotations returns everything that can be rotated.
func AllRotations() Rotations {
	var all Rotations
	for _, ca := range CAs() {
		all = append(all, RotationOf(ca))
	}
	return append(all, KeyRotation{})
}

// inPhase refuses to advance a rotation that is in another phase.
func inPhase(r Rotation, s *State, from Phase) error {
	if is := r.Phase(s); is != from {
		return clierr.New(clierr.Conflict, "run the command again: it continues from there",
			"%w: the rotation of the %s is in the phase %q, not %q", ErrChanged, r, is, from)
	}
	return nil
}

// CARotation is the rotation of an authority.
type CARotation struct {
	ca CA
	// next is the user-supplied authority. Nil is a new one.
	next *Authority
}

// RotationOf returns the rotation of an authority.
func RotationOf(ca CA) CARotation { return CARotation{ca: ca} }

// To is the rotation to an authority that people brought, which then is not made. It needs its private key.
func (r CARotation) To(brought *State, now time.Time) (CARotation, error) {
	a, err := loadAuthority(brought, r.ca, now)
	if err != nil {
		return r, err
	}
	if a.key == nil {
		return r, clierr.New(clierr.BadInput, "bring its private key too", "the %s was brought without its private key: it could sign nothing", r)
	}
	next := brought.CAs[r.ca]
	r.next = &next
	return r, nil
}

// String is what users call it: "server CA".
func (r CARotation) String() string { return string(r.ca) + " CA" }

// Key is what programs call it: "server-ca".
func (r CARotation) Key() string { return string(r.ca) + "-ca" }

// CA returns the authority.
func (r CARotation) CA() CA { return r.ca }

// Phase returns how far the rotation is.
func (r CARotation) Phase(s *State) Phase {
	switch a := s.CAs[r.ca]; {
	case len(a.Previous) > 0:
		return PhaseSwitch
	case len(a.Next.Cert) > 0:
		return PhaseDistribute
	}
	return PhaseNone
}

// Advance takes the rotation from a phase to the next.
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

// distributeAuthority makes the next authority. Its name says when, so that people can tell it from the present one.
func distributeAuthority(t *topology.Topology, r CARotation, a Authority, now time.Time) (Authority, error) {
	if r.next == nil {
		var err error
		a.Next, err = newAuthority(t, CAName(t, r.ca)+"-"+now.Format("20060102"), now)
		return a, err
	}
	if sameCert(a.Cert, r.next.Cert) {
		return a, clierr.New(clierr.BadInput, "bring another", "it is the present one that was brought")
	}
	a.Next, a.Bundle = r.next.Pair, slices.Concat(a.Bundle, r.next.Bundle)
	return a, nil
}

// switchAuthority lets the next authority sign. The present one vouches for it, if it can.
func switchAuthority(_ *topology.Topology, r CARotation, a Authority, _ time.Time) (Authority, error) {
	next := Authority{Pair: a.Next, Previous: a.Cert, Bundle: a.Bundle}
	if a.CannotVouch() != nil {
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
	return next, err
}

func finishAuthority(_ *topology.Topology, _ CARotation, a Authority, _ time.Time) (Authority, error) {
	a.Previous, a.Cross = nil, nil
	return a, nil
}

// CannotVouch says why the authority cannot certify its successor, if so: clients that trust only this one then have to
// learn to trust the next before anything is signed by it.
func (a Authority) CannotVouch() error {
	parsed, err := a.parse("")
	switch {
	case err != nil:
		return err
	case parsed.key == nil:
		return fmt.Errorf("its private key is not here")
	case parsed.cert.BasicConstraintsValid && parsed.cert.MaxPathLen == 0:
		return fmt.Errorf("its certificate allows no authority below it (path length 0)")
	}
	return nil
}

func (a Authority) parse(name CA) (*authority, error) {
	certs, key, err := parseAuthority(a.Pair)
	if err != nil {
		return nil, err
	}
	return &authority{name: name, cert: certs[0], key: key}, nil
}

// chain is a certificate of the authority as it is sent: with the authority's own that its predecessor signed after it, or
// without. What else is sent with it stays.
func (a *authority) chain(p Pair, cross []byte) Pair {
	certs, err := parseCerts(p.Cert)
	if err != nil {
		return p
	}
	var out []byte
	for i, c := range certs {
		if i == 0 || !samePublicKey(c.PublicKey, a.cert.PublicKey) {
			out = append(out, pem.EncodeToMemory(&pem.Block{Type: pemCertificate, Bytes: c.Raw})...)
		}
	}
	out = append(out, cross...)
	if countPEM(out) == len(certs) && len(cross) == 0 {
		return p // byte for byte as it was brought
	}
	return Pair{Cert: out, Key: p.Key}
}
