package pki

import (
	"errors"
	"slices"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// Source is a certificate or a key of another tool, with its location for messages.
type Source struct {
	// Name is its location: Secret kcp/root-server-ca.
	Name string
	Pair
	// Bundle are PEM certificates of further authorities that are trusted together with this one.
	Bundle []byte
}

// TakeOver returns the PKI of an installation that another tool has made: its authorities, and its service-account
// keys. Where each shard has its own key, the first one signs from now on, and the tokens of the others remain valid.
func TakeOver(authorities map[topology.CA]Source, keys []Source) (*State, error) {
	s := &State{CAs: map[topology.CA]Authority{}, Leaves: map[LeafKey]Pair{}}
	for _, ca := range topology.CAs {
		from, ok := authorities[ca]
		if !ok {
			continue
		}
		_, _, err := parseAuthority(from.Pair)
		if err == nil && len(from.Key) == 0 {
			err = errNoKey
		}
		if err != nil {
			return nil, badSource(from, err)
		}
		if _, err := parseCerts(from.Bundle); len(from.Bundle) > 0 && err != nil {
			return nil, clierr.New(clierr.BadInput, "they must be in PEM format",
				"the certificates that are trusted together with %s: %w", from.Name, err)
		}
		s.CAs[ca] = Authority{Pair: from.Pair, Bundle: from.Bundle}
	}
	for i, from := range keys {
		public, err := publicOf(from.Key)
		if err == nil && len(public) == 0 {
			err = errNoKey
		}
		if err != nil {
			return nil, badSource(from, err)
		}
		if i == 0 {
			s.ServiceAccount.Key = from.Key
		}
		s.ServiceAccount.Public = slices.Concat(s.ServiceAccount.Public, public)
	}
	public, err := s.ServiceAccount.publicKeys() // each once
	s.ServiceAccount.Public = public
	return s, err
}

var errNoKey = errors.New("it has no private key")

func badSource(from Source, err error) error {
	return clierr.New(clierr.BadInput, "it must have tls.crt and tls.key, as cert-manager writes them",
		"%s: %w", from.Name, err)
}
