package pki

import (
	"encoding/pem"
	"fmt"
	"slices"
	"time"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// listKind is the kind of a List in JSON.
const listKind = "CertificateList"

// List describes the PKI of a setup. It contains no secrets.
type List struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Name is the setup's name.
	Name string `json:"name"`
	// Store is the location of the PKI.
	Store string `json:"store"`
	// Items are the authorities, the service-account keys, and the certificates in the order of their components.
	Items []Item `json:"items"`
	// Rotations are the rotations in progress, by Rotation.Key: server-ca, service-account-key.
	Rotations map[string]Phase `json:"rotations,omitempty"`
	// Unreachable are the clusters that cannot be reached: the items have no certificates of components there.
	Unreachable []string `json:"unreachable,omitempty"`
}

// ItemType is the type of an Item.
type ItemType string

// The types of items.
const (
	ItemAuthority   ItemType = "Authority"
	itemKey         ItemType = "ServiceAccountKey"
	itemEncryption  ItemType = "EncryptionKey"
	ItemCertificate ItemType = "Certificate"
)

// Item is an authority, a key or a certificate.
type Item struct {
	// Name is the name of the Secret of a certificate, or the name of an authority or a key in the store: server-ca,
	// sa, encryption.
	Name string   `json:"name"`
	Type ItemType `json:"type"`
	// Cluster is the cluster of the certificate's Secret.
	Cluster string `json:"cluster,omitempty"`
	// Component is the component that presents the certificate.
	Component topology.ID `json:"component,omitempty"`
	// UsedBy are the components that present a certificate, trust an authority, or sign and verify with a key.
	UsedBy []topology.ID `json:"usedBy,omitempty"`
	// Issued is set if the item exists. Info is the content of a certificate.
	Issued bool `json:"issued"`
	*Info
	// Due is when the item should be replaced: kcpctl up renews certificates, kcpctl certs rotate-ca replaces
	// authorities. Keys do not expire.
	Due time.Time `json:"due,omitzero"`
	// Role is "next" or "previous" in a rotation, "earlier" for a key that only verifies, "keyless" for an
	// authority without its private key, and "key missing" if that key was in the store before.
	Role string `json:"role,omitempty"`
}

// The roles of items.
const (
	roleNext     = "next"
	RolePrevious = "previous"
	roleEarlier  = "earlier"
	roleKeyless  = "keyless"
	roleLost     = "key missing"
)

// IsDue reports whether the item should be replaced now.
func (i Item) IsDue(now time.Time) bool {
	return !i.Issued || !i.Due.IsZero() && !now.Before(i.Due)
}

// EndsWithin reports whether the item expires within a duration from now, or does not exist. Previous authorities
// never do: they end with their rotation.
func (i Item) EndsWithin(d time.Duration, now time.Time) bool {
	if i.Role == RolePrevious {
		return false
	}
	return !i.Issued || i.Info != nil && i.NotAfter.Sub(now) < d
}

// ListOf describes the PKI of a setup.
func ListOf(t *topology.Topology, s *State) (*List, error) {
	l := &List{APIVersion: v1alpha1.APIVersion, Kind: listKind, Name: t.Name, Rotations: map[string]Phase{}}
	users := map[topology.CA][]topology.ID{}
	for _, c := range t.Components {
		for _, ca := range t.Bundles(c) {
			users[ca] = append(users[ca], c.ID())
		}
	}
	for _, ca := range topology.CAs {
		items, err := authorityItems(t, ca, s.CAs[ca])
		if err != nil {
			return nil, fmt.Errorf("the %s CA: %w", ca, err)
		}
		for i := range items {
			items[i].UsedBy = users[ca]
		}
		l.Items = append(l.Items, items...)
	}
	keys, err := keyItems(t, s.ServiceAccount)
	if err != nil {
		return nil, fmt.Errorf("the service-account key: %w", err)
	}
	l.Items = append(append(l.Items, keys...), encryptionItems(t, s.Encryption)...)
	for _, c := range Table(t) {
		l.Items = append(l.Items, certificateItem(c, s.Leaves[c.Key()]))
	}
	for _, r := range AllRotations() {
		if p := r.Phase(s); p != PhaseNone {
			l.Rotations[r.Key()] = p
		}
	}
	return l, nil
}

// MarkLost marks authorities whose private keys were in the store, and are no longer.
func (l *List) MarkLost(lost []topology.CA) {
	for i, it := range l.Items {
		if it.Role == roleKeyless && slices.ContainsFunc(lost,
			func(ca topology.CA) bool { return RotationOf(ca).Key() == it.Name }) {
			l.Items[i].Role = roleLost
		}
	}
}

// authorityItems returns an authority and, during its rotation, the next or the previous one.
func authorityItems(t *topology.Topology, ca topology.CA, a Authority) ([]Item, error) {
	name := string(ca) + "-ca"
	var items []Item
	for _, part := range []struct {
		role string
		pem  []byte
	}{{"", a.Cert}, {roleNext, a.Next.Cert}, {RolePrevious, a.Previous}} {
		item := Item{Name: name, Type: ItemAuthority, Role: part.role}
		if part.role != "" && len(part.pem) == 0 {
			continue
		}
		if part.role == "" && len(a.Cert) > 0 && len(a.Key) == 0 {
			item.Role = roleKeyless
		}
		if len(part.pem) > 0 {
			info, err := Inspect(part.pem)
			if err != nil {
				return nil, err
			}
			item.Issued = true
			item.Info = &info
			// Later, new certificates would expire with the authority, before their own validity ends.
			item.Due = info.NotAfter.Add(-min(t.Setup.Spec.PKI.CertificateValidity.Duration, info.life()/3))
		}
		if part.role == RolePrevious {
			item.Due = time.Time{}
		}
		items = append(items, item)
	}
	return items, nil
}

// keyItems returns the service-account keys: the one that signs, then those that only verify.
func keyItems(t *topology.Topology, sa ServiceAccount) ([]Item, error) {
	var users []topology.ID
	for _, c := range t.Shards() {
		users = append(users, c.ID())
	}
	item := Item{Name: "sa", Type: itemKey, UsedBy: users, Issued: len(sa.Key) > 0}
	items := []Item{item}
	public, err := sa.publicKeys()
	if err != nil {
		return nil, err
	}
	signing, err := publicOf(sa.Key)
	if err != nil {
		return nil, err
	}
	next, err := publicOf(sa.Next)
	if err != nil {
		return nil, err
	}
	for block, rest := pem.Decode(public); block != nil; block, rest = pem.Decode(rest) {
		switch string(pem.EncodeToMemory(block)) {
		case string(signing):
			continue
		case string(next):
			item.Role = roleNext
		default:
			item.Role = roleEarlier
		}
		items = append(items, item)
	}
	return items, nil
}

// encryptionItems returns the keys that encrypt objects in etcd: the one that encrypts, then those that only decrypt.
func encryptionItems(t *topology.Topology, e Encryption) []Item {
	var users []topology.ID
	for _, c := range t.Shards() {
		users = append(users, c.ID())
	}
	var items []Item
	for _, key := range []struct{ role, key string }{{"", e.Key}, {roleNext, e.Next}, {RolePrevious, e.Previous}} {
		if key.key != "" {
			item := Item{Name: "encryption", Type: itemEncryption, UsedBy: users, Issued: true, Role: key.role}
			items = append(items, item)
		}
	}
	return items
}

func certificateItem(c Cert, p Pair) Item {
	item := Item{
		Name: c.Secret, Type: ItemCertificate, Cluster: c.Cluster, Component: c.Component,
		UsedBy: []topology.ID{c.Component},
	}
	if info, err := Inspect(p.Cert); err == nil { // a certificate that cannot be parsed is issued again
		item.Issued = true
		item.Info = &info
		item.Due = info.NotAfter.Add(-min(defaultRenewBefore, info.life()/3))
	}
	return item
}

// Info describes a certificate. It contains no secrets.
type Info struct {
	CN     string   `json:"cn,omitempty"`
	Orgs   []string `json:"orgs,omitempty"`
	Issuer string   `json:"issuer"`
	// SANs are the DNS names, then the IP addresses.
	SANs      []string              `json:"sans,omitempty"`
	Usages    []string              `json:"usages,omitempty"`
	IsCA      bool                  `json:"ca,omitempty"`
	Algorithm v1alpha1.KeyAlgorithm `json:"algorithm"`
	Serial    string                `json:"serial"`
	NotBefore time.Time             `json:"notBefore"`
	NotAfter  time.Time             `json:"notAfter"`
}

// Inspect describes the first of some PEM certificates.
func Inspect(data []byte) (Info, error) {
	certs, err := parseCerts(data)
	if err != nil {
		return Info{}, err
	}
	c := certs[0]
	return Info{
		CN: c.Subject.CommonName, Orgs: c.Subject.Organization, Issuer: c.Issuer.CommonName,
		SANs: certHosts(c), Usages: certUsages(c), IsCA: c.IsCA,
		Algorithm: algorithmOf(c.PublicKey), Serial: c.SerialNumber.Text(16),
		NotBefore: c.NotBefore, NotAfter: c.NotAfter,
	}, nil
}

// Overdue returns when it is clear that the certificate is not renewed: half of the time has passed in which every run
// would have done so.
func (i Info) Overdue() time.Time { return i.NotAfter.Add(-min(defaultRenewBefore, i.life()/3) / 2) }

func (i Info) life() time.Duration { return i.NotAfter.Sub(i.NotBefore) }
