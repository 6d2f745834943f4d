package pki

import (
	"encoding/pem"
	"fmt"
	"time"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// ListKind is the kind of List, as programs see it.
const ListKind = "CertificateList"

// List is what there is of a setup's PKI. It holds nothing secret.
type List struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Name is the setup's name.
	Name string `json:"name"`
	// Store says where the PKI is.
	Store string `json:"store"`
	// Items are the authorities, the service-account keys, and the certificates in the order of their components.
	Items []Item `json:"items"`
	// Rotations are those that are under way, by what is rotated: server-ca, service-account-key.
	Rotations map[string]Phase `json:"rotations,omitempty"`
}

// ItemType is what an item of a List is.
type ItemType string

// The types of items.
const (
	ItemAuthority   ItemType = "Authority"
	ItemKey         ItemType = "ServiceAccountKey"
	ItemCertificate ItemType = "Certificate"
)

// Item is an authority, a key or a certificate.
type Item struct {
	// Name is that of the Secret of a certificate. Authorities and keys are called as in the store: server-ca, sa.
	Name string   `json:"name"`
	Type ItemType `json:"type"`
	// Cluster is where the certificate's Secret is.
	Cluster string `json:"cluster,omitempty"`
	// Component is the one that presents the certificate.
	Component topology.ID `json:"component,omitempty"`
	// UsedBy are the components that present a certificate, trust an authority, or sign and verify with a key.
	UsedBy []topology.ID `json:"usedBy,omitempty"`
	// Issued says that it exists; Info is what it says, if it is a certificate.
	Issued bool `json:"issued"`
	*Info
	// Due is when it is to be replaced: kcpctl up does that with certificates, rotate-ca with authorities. Keys do not age.
	Due time.Time `json:"due,omitzero"`
	// Role is what is special: "next" or "previous" in a rotation, "earlier" for keys that only verify, "keyless" for
	// authorities without their private key.
	Role string `json:"role,omitempty"`
}

// The roles of items.
const (
	RoleNext     = "next"
	RolePrevious = "previous"
	RoleEarlier  = "earlier"
	RoleKeyless  = "keyless"
)

// IsDue tells whether it has to be replaced now.
func (i Item) IsDue(now time.Time) bool {
	return !i.Issued || !i.Due.IsZero() && !now.Before(i.Due)
}

// EndsWithin tells whether it expires within a time from now, or is not there at all. What a rotation leaves behind does not
// count.
func (i Item) EndsWithin(d time.Duration, now time.Time) bool {
	if i.Role == RolePrevious {
		return false
	}
	return !i.Issued || i.Info != nil && i.NotAfter.Sub(now) < d
}

// ListOf lists a setup's PKI as it is in a state.
func ListOf(t *topology.Topology, s *State) (*List, error) {
	l := &List{APIVersion: v1alpha1.APIVersion, Kind: ListKind, Name: t.Name, Rotations: map[string]Phase{}}
	users := map[CA][]topology.ID{}
	for _, c := range t.Components {
		for _, ca := range Bundles(c) {
			users[ca] = append(users[ca], c.ID())
		}
	}
	for _, ca := range CAs() {
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
	l.Items = append(l.Items, keys...)
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

// authorityItems are an authority and, during its rotation, the next or the previous one.
func authorityItems(t *topology.Topology, ca CA, a Authority) ([]Item, error) {
	name := string(ca) + "-ca"
	var items []Item
	for _, part := range []struct {
		role string
		pem  []byte
	}{{"", a.Cert}, {RoleNext, a.Next.Cert}, {RolePrevious, a.Previous}} {
		item := Item{Name: name, Type: ItemAuthority, Role: part.role}
		if part.role != "" && len(part.pem) == 0 {
			continue
		}
		if part.role == "" && len(a.Cert) > 0 && len(a.Key) == 0 {
			item.Role = RoleKeyless
		}
		if len(part.pem) > 0 {
			info, err := Inspect(part.pem)
			if err != nil {
				return nil, err
			}
			item.Issued, item.Info = true, &info
			// From here on certificates would not get the life that the setup says.
			item.Due = info.NotAfter.Add(-min(t.Setup.Spec.PKI.CertificateValidity.Duration, info.life()/3))
		}
		if part.role == RolePrevious {
			item.Due = time.Time{}
		}
		items = append(items, item)
	}
	return items, nil
}

// keyItems are the service-account keys: that which signs, then those which only verify.
func keyItems(t *topology.Topology, sa ServiceAccount) ([]Item, error) {
	var users []topology.ID
	for _, c := range t.Shards() {
		users = append(users, c.ID())
	}
	item := Item{Name: "sa", Type: ItemKey, UsedBy: users, Issued: len(sa.Key) > 0}
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
			item.Role = RoleNext
		default:
			item.Role = RoleEarlier
		}
		items = append(items, item)
	}
	return items, nil
}

func certificateItem(c Cert, p Pair) Item {
	item := Item{
		Name: c.Secret, Type: ItemCertificate, Cluster: c.Cluster, Component: c.Component, UsedBy: []topology.ID{c.Component},
	}
	if info, err := Inspect(p.Cert); err == nil { // what cannot be read is issued anew
		item.Issued, item.Info = true, &info
		item.Due = info.NotAfter.Add(-min(defaultRenewBefore, info.life()/3))
	}
	return item
}

func (i Info) life() time.Duration { return i.NotAfter.Sub(i.NotBefore) }
