package pki

import (
	"crypto/x509"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// outdated returns why an existing certificate must be renewed. The reason is empty for a certificate that is up to
// date. Without the private key of its authority, one that is only due is kept as long as it is valid. It also returns
// when the certificate expires.
func (e *ensurer) outdated(c Cert, p Pair, a *authority) (reason string, notAfter time.Time) {
	certs, _, err := parsePair(p)
	if err != nil {
		return err.Error(), time.Time{}
	}
	cert := certs[0]
	if reason = c.differs(cert); reason != "" {
		return reason, cert.NotAfter
	}
	if alg := algorithmOf(cert.PublicKey); a.key != nil && alg != e.t.Setup.Spec.PKI.KeyAlgorithm {
		want := e.t.Setup.Spec.PKI.KeyAlgorithm
		return fmt.Sprintf("its key algorithm is %s, and the setup file has %s", alg, want), cert.NotAfter
	}
	if reason = e.invalid(cert); reason == "" && a.key != nil {
		reason = e.aged(c, cert)
	}
	if reason != "" {
		return reason, cert.NotAfter
	}
	if cert.CheckSignatureFrom(a.cert) != nil {
		return fmt.Sprintf("it was not signed by the current %s CA", a.name), cert.NotAfter
	}
	return "", cert.NotAfter
}

// differs returns how a certificate differs from its row in the table.
func (c Cert) differs(cert *x509.Certificate) string {
	for _, f := range []struct {
		what      string
		got, want []string
	}{
		{"common name", []string{cert.Subject.CommonName}, []string{c.CN}},
		{"organizations", cert.Subject.Organization, c.Orgs},
		{"hosts", certHosts(cert), canonicalHosts(c.Hosts)},
		{"usages", certUsages(cert), usageNames(c.Usages)},
	} {
		if got, want := set(f.got), set(f.want); !slices.Equal(got, want) {
			return fmt.Sprintf("its %s changed: %s", f.what, setDiff(got, want))
		}
	}
	return ""
}

// invalid returns why a certificate is not valid now.
func (e *ensurer) invalid(cert *x509.Certificate) string {
	switch now := e.o.Now; {
	case now.Before(cert.NotBefore):
		return "it is not valid before " + cert.NotBefore.Format(time.RFC3339)
	case now.After(cert.NotAfter):
		return "it expired on " + cert.NotAfter.Format(time.DateOnly)
	}
	return ""
}

// aged returns why a certificate is not valid for long enough, or for too long.
func (e *ensurer) aged(c Cert, cert *x509.Certificate) string {
	life := cert.NotAfter.Sub(cert.NotBefore)
	window := min(e.o.RenewBefore, life/3)
	switch {
	case e.o.Now.After(cert.NotAfter.Add(-window)):
		return "it expires on " + cert.NotAfter.Format(time.DateOnly)
	case life > c.Validity+backdate:
		return fmt.Sprintf("it is valid for longer than %s", c.Validity)
	}
	return ""
}

func certHosts(cert *x509.Certificate) []string {
	hosts := slices.Clone(cert.DNSNames)
	for _, ip := range cert.IPAddresses {
		hosts = append(hosts, ip.String())
	}
	return hosts
}

// canonicalHosts returns hosts with IP addresses in their canonical form.
func canonicalHosts(hosts []string) []string {
	out := slices.Clone(hosts)
	for i, h := range out {
		if ip := net.ParseIP(h); ip != nil {
			out[i] = ip.String()
		}
	}
	return out
}

func usageNames(usages []Usage) []string {
	var names []string
	for _, u := range usages {
		names = append(names, string(u))
	}
	return names
}

func certUsages(cert *x509.Certificate) []string {
	var names []string
	for _, u := range cert.ExtKeyUsage {
		names = append(names, usageName(u))
	}
	return names
}

func usageName(u x509.ExtKeyUsage) string {
	for _, known := range []Usage{ServerAuth, ClientAuth} {
		if known.extKeyUsage() == u {
			return string(known)
		}
	}
	return fmt.Sprintf("usage %d", u)
}

// set returns the distinct strings, sorted.
func set(s []string) []string { return slices.Compact(slices.Sorted(slices.Values(s))) }

// setDiff returns the difference between two sets: "+new -old".
func setDiff(got, want []string) string {
	var parts []string
	for _, w := range want {
		if !slices.Contains(got, w) {
			parts = append(parts, "+"+w)
		}
	}
	for _, g := range got {
		if !slices.Contains(want, g) {
			parts = append(parts, "-"+g)
		}
	}
	return strings.Join(parts, " ")
}

// Untrusted returns the certificates of a setup that no authority of the state has signed: neither a current one nor a
// next or previous one. They were signed by authorities that are being replaced. Certificates that do not exist are
// not included.
func Untrusted(t *topology.Topology, s *State) []Cert {
	trusted := map[topology.CA][]*x509.Certificate{}
	for ca, a := range s.CAs {
		trusted[ca], _ = parseCerts(a.Trusted()) // Decode has reported certificates that cannot be parsed
	}
	return slices.DeleteFunc(Table(t), func(c Cert) bool {
		certs, err := parseCerts(s.Leaves[c.Key()].Cert)
		return err != nil || slices.ContainsFunc(trusted[c.CA], func(ca *x509.Certificate) bool {
			return certs[0].CheckSignatureFrom(ca) == nil
		})
	})
}
