package pki

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"time"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// KeyRotation is the rotation of the key that signs the tokens of service accounts.
type KeyRotation struct{}

// String returns the name that users see.
func (KeyRotation) String() string { return "service-account key" }

// Key returns the name in JSON.
func (KeyRotation) Key() string { return "service-account-key" }

// Phase returns the phase of the rotation in a state. The next key is kept until all components have switched to it, so
// that an interrupted rotation does not look like a finished one.
func (KeyRotation) Phase(s *State) Phase {
	switch sa := s.ServiceAccount; {
	case len(sa.Next) == 0:
		return PhaseNone
	case bytes.Equal(sa.Next, sa.Key):
		return PhaseSwitch
	}
	return PhaseDistribute
}

// Advance moves the rotation from a phase to the next.
func (r KeyRotation) Advance(t *topology.Topology, s *State, from Phase, _ time.Time) (*State, error) {
	if err := inPhase(r, s, from); err != nil {
		return nil, err
	}
	out := s.clone()
	sa := &out.ServiceAccount
	switch from {
	case PhaseNone:
		if len(sa.Key) == 0 {
			return nil, clierr.New(clierr.Failed, "run kcpctl up first: it creates the key",
				"rotate the %s: the key does not exist", r)
		}
		var err error
		if sa.Next, err = newEncodedKey(t.Setup.Spec.PKI.KeyAlgorithm); err != nil {
			return nil, fmt.Errorf("rotate the %s: %w", r, err)
		}
	case PhaseDistribute:
		sa.Key = sa.Next
	case PhaseSwitch:
		sa.Next = nil
	}
	return out, out.distinct()
}

// DropEarlierKeys returns a state in which earlier keys no longer verify the tokens of service accounts: only the key
// that signs, and the next one.
func DropEarlierKeys(s *State) (*State, error) {
	out := s.clone()
	out.ServiceAccount.Public = nil
	public, err := out.ServiceAccount.publicKeys()
	out.ServiceAccount.Public = public
	return out, err
}

// EarlierKeys returns the number of keys that verify the tokens of service accounts, but no longer sign them.
func EarlierKeys(s *State) (int, error) {
	all, err := s.ServiceAccount.publicKeys()
	if err != nil {
		return 0, err
	}
	only, err := DropEarlierKeys(s)
	if err != nil {
		return 0, err
	}
	return countPEM(all) - countPEM(only.ServiceAccount.Public), nil
}

func countPEM(data []byte) int {
	n := 0
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		n++
	}
	return n
}
