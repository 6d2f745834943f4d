package pki

import (
	"time"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
)

// Info is what people want to know of a certificate. It holds nothing secret.
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

// Inspect reads the first of some PEM certificates.
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
