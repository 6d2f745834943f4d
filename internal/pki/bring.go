package pki

import (
	"bytes"
	"time"

	"github.com/kcpctl/kcpctl/internal/clierr"
)

// Brought is what Bring has done.
type Brought struct {
	// Added is what was not there; Same is what was there already. Both as users call it: "server CA".
	Added, Same []string
	// Keyless are the added authorities without a private key: what they sign has to be brought too.
	Keyless []CA
}

// Bring adds the authorities and service-account keys of one state to those of another: certificates that people brought, or
// a backup. It replaces nothing: an authority that is another than the present one is an error, because everything that
// trusts the present one would be cut off.
func Bring(to, from *State, now time.Time) (*State, *Brought, error) {
	out, did := to.clone(), &Brought{}
	for _, ca := range CAs() {
		theirs, ok := from.CAs[ca]
		if !ok {
			continue
		}
		if _, err := loadAuthority(from, ca, now); err != nil {
			return nil, nil, err
		}
		ours, ok := to.CAs[ca]
		name := RotationOf(ca).String()
		switch {
		case !ok:
			out.CAs[ca] = theirs
			did.Added = append(did.Added, name)
			if len(theirs.Key) == 0 {
				did.Keyless = append(did.Keyless, ca)
			}
		case !sameCert(ours.Cert, theirs.Cert):
			return nil, nil, refuseOther(name, "kcpctl certs rotate-ca "+string(ca)+" --from DIR")
		case len(ours.Key) == 0 && len(theirs.Key) > 0:
			ours.Key = theirs.Key
			out.CAs[ca] = ours
			did.Added = append(did.Added, "private key of the "+name)
		default:
			did.Same = append(did.Same, name)
		}
	}
	if err := out.distinct(); err != nil {
		return nil, nil, err
	}
	if out.Installation.ID == "" {
		out.Installation = from.Installation
	}
	return out, did, bringKeys(out, from, did)
}

func bringKeys(out, from *State, did *Brought) error {
	ours, theirs, name := out.ServiceAccount, from.ServiceAccount, KeyRotation{}.String()
	switch {
	case len(theirs.Key) == 0:
	case len(ours.Key) == 0:
		out.ServiceAccount = theirs
		did.Added = append(did.Added, name)
	case sameKey(ours.Key, theirs.Key):
		did.Same = append(did.Same, name)
	default:
		return refuseOther(name, "kcpctl certs rotate-service-account-key")
	}
	return nil
}

func refuseOther(name, command string) error {
	return clierr.New(clierr.Conflict, "to replace it without an interruption: "+command,
		"the setup has another %s already: it is in use, and nothing was changed", name)
}

// Authorities returns of a state what is worth a backup: everything but the certificates, which can be issued anew.
func (s *State) Authorities() *State {
	out := s.clone()
	clear(out.Leaves)
	return out
}

func sameCert(a, b []byte) bool {
	x, errX := parseCerts(a)
	y, errY := parseCerts(b)
	return errX == nil && errY == nil && x[0].Equal(y[0])
}

func sameKey(a, b []byte) bool {
	x, errX := publicOf(a)
	y, errY := publicOf(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}
