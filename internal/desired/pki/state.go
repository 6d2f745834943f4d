// Package pki decides which certificates a setup has; issues, keeps and renews them; and proves offline that all
// connections of the setup can work. It is pure, except for the randomness of keys and for the stores.
package pki

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// Pair is a PEM-encoded certificate and its private key.
type Pair struct {
	Cert []byte
	Key  []byte
}

// Authority is a certificate authority: the pair that signs, and the certificates that are trusted.
type Authority struct {
	// Pair signs. Its key is nil for an authority that was imported without one. The certificates above an intermediate
	// authority follow its own. Servers send them, and nothing trusts them.
	Pair
	// Bundle holds further trusted PEM certificates.
	Bundle []byte
	// Next is trusted already and will sign. It is set while the rotation is in PhaseDistribute.
	Next Pair
	// Previous is the PEM certificate of the authority that signed before. It is trusted while the rotation is in
	// PhaseSwitch. Its key is deleted.
	Previous []byte
	// Cross is the certificate of this authority signed by Previous, and the chain of Previous. Servers send it, so
	// that clients which trust only Previous accept certificates of this authority.
	Cross []byte
}

// Trusted returns all PEM certificates that are trusted.
func (a Authority) Trusted() []byte {
	return slices.Concat(firstCert(a.Cert), firstCert(a.Next.Cert), a.Previous, a.Bundle)
}

// signers returns the PEM certificates of the authority that signs and of the one that will sign.
func (a Authority) signers() [][]byte { return [][]byte{a.Cert, a.Next.Cert} }

// ServiceAccount holds the keys that sign and verify the tokens of service accounts in workspaces.
type ServiceAccount struct {
	// Key is the PEM private key that signs.
	Key []byte
	// Public holds the PEM public keys that verify: the one of Key first, then the ones of earlier keys, then the one
	// of Next.
	Public []byte
	// Next is the PEM private key that will sign, while the key's rotation is in PhaseDistribute. In PhaseSwitch it
	// equals Key.
	Next []byte
}

// State is the PKI of a setup.
type State struct {
	// Installation identifies the installation that the PKI belongs to.
	Installation   Installation
	CAs            map[topology.CA]Authority
	ServiceAccount ServiceAccount
	Encryption     Encryption
	// Users are the last parts of the common names of components with an ID that an earlier component has had, such as
	// a cluster of workloads with the name of one that was removed. See EndUsers.
	Users  map[topology.ID]string
	Leaves map[LeafKey]Pair
}

// LeafKey identifies a certificate by the cluster and the Secret that hold it.
type LeafKey struct {
	Cluster string
	Secret  string
}

// Installation identifies one installation of kcp among all that have the same setup name. It is created, stored and
// exported together with the authorities.
type Installation struct {
	// ID is unique, and never changes: demo-x7k2m9qd.
	ID string `json:"id"`
	// EtcdPrefix is the first part of the default prefixes of shards in an external etcd.
	EtcdPrefix string `json:"etcdPrefix"`
}

// NewInstallation returns the identity of a new installation, with a given ID or with a new one.
func NewInstallation(setup, id string) Installation {
	if id == "" {
		id = setup + "-" + newRandom()
	}
	return Installation{ID: id, EtcdPrefix: "/" + id}
}

func (i Installation) encode() []byte {
	if i.ID == "" {
		return nil
	}
	raw, err := json.Marshal(i)
	if err != nil {
		panic("encode two strings: " + err.Error())
	}
	return raw
}

func decodeInstallation(raw []byte) (i Installation, err error) {
	if len(raw) == 0 {
		return i, nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields() // a PKI is refused rather than written back without a part of it
	if err = d.Decode(&i); err == nil && (i.ID == "" || !strings.HasPrefix(i.EtcdPrefix, "/")) {
		err = errors.New("the ID or the etcd prefix is missing")
	}
	return i, err
}

// Store keeps a PKI between runs.
type Store interface {
	// Load returns the PKI. An empty store returns an empty State.
	Load(ctx context.Context) (*State, error)
	// Save writes the authorities and the keys, and the leaves if the store holds them itself. It
	// replaces only what it has loaded: it fails with ErrChanged if another run has changed the store since then.
	Save(ctx context.Context, s *State) error
	// DeleteLeaves deletes certificates and their keys. A store that leaves certificates in the Secrets that use them
	// deletes nothing.
	DeleteLeaves(ctx context.Context, keys []LeafKey) error
	// String returns the location of the store: "Secret kcp/demo-pki".
	String() string
}
