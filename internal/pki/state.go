// Package pki decides which certificates a setup has, issues, keeps and renews them, and proves that all who dial each other
// in the setup will be understood. It is pure but for the randomness of keys and for the stores.
package pki

import (
	"context"
	"slices"
)

// CA is a trust domain: each has a self-signed certificate authority of its own.
type CA string

// The certificate authorities, as kubeadm separates them.
const (
	ServerCA        CA = "server"        // serving certificates of all kcp servers
	ClientCA        CA = "client"        // clients of kcp servers, users and components alike
	RequestHeaderCA CA = "requestheader" // proxies that pass on a user's identity in headers
	EtcdCA          CA = "etcd"          // servers, peers and clients of managed etcds
)

// Pair is a PEM-encoded certificate and its private key.
type Pair struct {
	Cert []byte
	Key  []byte
}

// Authority is a certificate authority: what signs, and what is trusted.
type Authority struct {
	// Pair signs. Its key is nil where the CA was brought without one.
	Pair
	// Bundle are further PEM certificates that are trusted besides, such as those of an authority that people brought.
	Bundle []byte
	// Next is trusted already and will sign, while its rotation is in PhaseDistribute.
	Next Pair
	// Previous is the PEM certificate of the authority that signed before, and is trusted while the rotation is in
	// PhaseSwitch. Its key is gone.
	Previous []byte
	// Cross is the certificate of this authority signed by Previous. Servers send it, so that clients which trust only
	// Previous accept what this one signed.
	Cross []byte
}

// Trusted returns all PEM certificates that are trusted.
func (a Authority) Trusted() []byte { return slices.Concat(a.Cert, a.Next.Cert, a.Previous, a.Bundle) }

// signers are the PEM certificates of the authority that signs and of the one that will.
func (a Authority) signers() [][]byte { return [][]byte{a.Cert, a.Next.Cert} }

// ServiceAccount signs and verifies the tokens of service accounts in workspaces.
type ServiceAccount struct {
	// Key is the PEM private key that signs.
	Key []byte
	// Public are the PEM public keys that verify: that of Key first, then those that came before it, that of Next last.
	Public []byte
	// Next is the PEM private key that will sign, while the key's rotation is in PhaseDistribute. In PhaseSwitch it is Key.
	Next []byte
}

// State is everything that a setup's PKI keeps.
type State struct {
	// Installation is whose PKI it is.
	Installation   Installation
	CAs            map[CA]Authority
	ServiceAccount ServiceAccount
	// Leaves are the certificates by LeafKey.
	Leaves map[LeafKey]Pair
}

// LeafKey names a certificate: the cluster and the Secret that holds it.
type LeafKey struct {
	Cluster string
	Secret  string
}

// Store keeps a PKI between runs.
type Store interface {
	// Load returns what is kept: an empty State if nothing is.
	Load(ctx context.Context) (*State, error)
	// Save keeps the authorities and the service-account keys, and the leaves where the store holds them itself. It never
	// replaces an authority that it has not loaded: where another run was faster it fails with ErrChanged.
	Save(ctx context.Context, s *State) error
	// Forget deletes certificates and their keys. A store whose certificates are in the Secrets that use them has nothing to
	// delete.
	Forget(ctx context.Context, keys []LeafKey) error
	// String says where it is: "Secret kcp/demo-pki".
	String() string
}
