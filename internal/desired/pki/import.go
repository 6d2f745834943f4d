package pki

import (
	"bytes"
	"errors"
	"time"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// ImportResult lists what Import has done.
type ImportResult struct {
	// Added lists what was missing, and Same what existed already. Both use the names that users see: "server CA".
	Added, Same []string
	// Keyless are the added authorities without a private key. The user puts their certificates into the store.
	Keyless []topology.CA
}

// Import adds the authorities and service-account keys of one state to another: user-supplied ones, or a backup. It
// replaces nothing. If the state has another authority already, Import fails: everything that trusts that authority
// would stop working.
func Import(to, from *State, now time.Time) (*State, *ImportResult, error) {
	return importInto(to, from, now, false)
}

// ImportReplacing is Import, but replaces authorities and keys.
func ImportReplacing(to, from *State, now time.Time) (*State, *ImportResult, error) {
	return importInto(to, from, now, true)
}

func importInto(to, from *State, now time.Time, replace bool) (*State, *ImportResult, error) {
	out, res := to.clone(), &ImportResult{}
	for _, ca := range topology.CAs {
		imported, ok := from.CAs[ca]
		if !ok {
			continue
		}
		if _, err := loadAuthority(from, ca, now); err != nil {
			return nil, nil, err
		}
		if err := checkChain(ca, imported.Cert); err != nil {
			return nil, nil, err
		}
		current, ok := to.CAs[ca]
		name := RotationOf(ca).String()
		switch {
		case !ok, replace && !sameCert(current.Cert, imported.Cert):
			out.CAs[ca] = imported
			res.Added = append(res.Added, name)
			if len(imported.Key) == 0 {
				res.Keyless = append(res.Keyless, ca)
			}
		case !sameCert(current.Cert, imported.Cert):
			return nil, nil, refuseOther(name, "kcpctl certs rotate-ca "+string(ca)+" --from DIR")
		case len(current.Key) == 0 && len(imported.Key) > 0:
			current.Key = imported.Key
			out.CAs[ca] = current
			res.Added = append(res.Added, "private key of the "+name)
		default:
			res.Same = append(res.Same, name)
		}
	}
	if err := out.distinct(); err != nil {
		return nil, nil, err
	}
	if out.Installation.ID == "" {
		out.Installation = from.Installation
	}
	out.Users = importUsers(to, from)
	err := errors.Join(importServiceAccount(out, from, res, replace), importEncryption(out, from, res, replace))
	return out, res, err
}

func importEncryption(out, from *State, res *ImportResult, replace bool) error {
	current, imported, name := out.Encryption, from.Encryption, EncryptionRotation{}.String()
	switch {
	case imported.Key == "":
	case current.Key == "", replace && current.Key != imported.Key:
		out.Encryption = imported
		res.Added = append(res.Added, name)
	case current.Key == imported.Key:
		res.Same = append(res.Same, name)
	default:
		return refuseOther(name, "kcpctl encryption rotate")
	}
	return nil
}

func importServiceAccount(out, from *State, res *ImportResult, replace bool) error {
	current, imported, name := out.ServiceAccount, from.ServiceAccount, KeyRotation{}.String()
	switch {
	case len(imported.Key) == 0:
	case len(current.Key) == 0, replace && !sameKey(current.Key, imported.Key):
		out.ServiceAccount = imported
		res.Added = append(res.Added, name)
	case sameKey(current.Key, imported.Key):
		res.Same = append(res.Same, name)
	default:
		return refuseOther(name, "kcpctl certs rotate-service-account-key")
	}
	return nil
}

func refuseOther(name, command string) error {
	return clierr.New(clierr.Conflict, "to replace it without an interruption, run "+command,
		"the setup already uses another %s; nothing was changed", name)
}

// Authorities returns the part of a state that is worth a backup: everything except the certificates, which can be
// issued again.
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
