package pki

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"time"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// KeyRotation is the rotation of the key that signs the tokens of service accounts.
type KeyRotation struct{}

// String is what users call it.
func (KeyRotation) String() string { return "service-account key" }

// Key is what programs call it.
func (KeyRotation) Key() string { return "service-account-key" }

// Phase returns how far the rotation is. The next key is kept until everything has switched to it, so that an interrupted
// rotation is not taken for a finished one.
func (KeyRotation) Phase(s *State) Phase {
	switch sa := s.ServiceAccount; {
	case len(sa.Next) == 0:
		return PhaseNone
	case bytes.Equal(sa.Next, sa.Key):
		return PhaseSwitch
	}
	return PhaseDistribute
}

// Advance takes the rotation from a phase to the next.
func (r KeyRotation) Advance(t *topology.Topology, s *State, from Phase, _ time.Time) (*State, error) {
	if err := inPhase(r, s, from); err != nil {
		return nil, err
	}
	out := s.clone()
	sa := &out.ServiceAccount
	switch from {
	case PhaseNone:
		if len(sa.Key) == 0 {
			return nil, clierr.New(clierr.Failed, "run kcpctl up first: it makes it", "rotate the %s: there is none", r)
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

// DropEarlierKeys returns a state in which only the key that signs the tokens of service accounts verifies them, and one
// that will sign.
func DropEarlierKeys(s *State) (*State, error) {
	out := s.clone()
	out.ServiceAccount.Public = nil
	public, err := out.ServiceAccount.publicKeys()
	out.ServiceAccount.Public = public
	return out, err
}

// EarlierKeys returns how many keys verify the tokens of service accounts that do not sign any more.
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
