package pki

import (
	"crypto/x509"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/cloudflare/cfssl/config"

	"github.com/kcpctl/kcpctl/internal/topology"
)

// misfit says why a certificate that exists has to be issued anew; it fits if there is no reason. It also returns when
// the certificate expires.
func (e *ensurer) misfit(c Cert, p Pair, a *authority) (reason string, notAfter time.Time) {
	certs, _, err := parsePair(p)
	if err != nil {
		return err.Error(), time.Time{}
	}
	cert := certs[0]
	if reason = c.differs(cert); reason != "" {
		return reason, cert.NotAfter
	}
	if alg := algorithmOf(cert.PublicKey); alg != e.t.Setup.Spec.PKI.KeyAlgorithm {
		return fmt.Sprintf("its key is %s, the setup says %s", alg, e.t.Setup.Spec.PKI.KeyAlgorithm), cert.NotAfter
	}
	if reason = e.aged(c, cert); reason != "" {
		return reason, cert.NotAfter
	}
	if cert.CheckSignatureFrom(a.cert) != nil {
		return fmt.Sprintf("the current %s CA did not sign it", a.name), cert.NotAfter
	}
	return "", cert.NotAfter
}

// differs says in what a certificate is not what the table wants.
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

// aged says why a certificate's time is not, or not long enough, now.
func (e *ensurer) aged(c Cert, cert *x509.Certificate) string {
	life := cert.NotAfter.Sub(cert.NotBefore)
	window := min(e.o.RenewBefore, life/3)
	switch now := e.o.Now; {
	case now.Before(cert.NotBefore):
		return "it is valid only from " + cert.NotBefore.Format(time.RFC3339) + " on"
	case now.After(cert.NotAfter):
		return "it expired on " + cert.NotAfter.Format(time.DateOnly)
	case now.After(cert.NotAfter.Add(-window)):
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

// canonicalHosts writes IP addresses as certificates are printed.
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
		if config.ExtKeyUsage[string(known)] == u {
			return string(known)
		}
	}
	return fmt.Sprintf("usage %d", u)
}

// set sorts and drops what is there twice.
func set(s []string) []string { return slices.Compact(slices.Sorted(slices.Values(s))) }

// setDiff shows what two sets do not share: "+new -old".
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

// Untrusted returns the certificates of a setup that nothing of the PKI's authorities has signed, neither those that sign nor the
// next or previous ones: they are of other authorities, which are being replaced. Certificates that do not exist are not among
// them.
func Untrusted(t *topology.Topology, s *State) []Cert {
	trusted := map[CA][]*x509.Certificate{}
	for ca, a := range s.CAs {
		trusted[ca], _ = parseCerts(a.Trusted()) // what cannot be read is an error elsewhere
	}
	return slices.DeleteFunc(Table(t), func(c Cert) bool {
		certs, err := parseCerts(s.Leaves[c.Key()].Cert)
		return err != nil || slices.ContainsFunc(trusted[c.CA], func(ca *x509.Certificate) bool { return certs[0].CheckSignatureFrom(ca) == nil })
	})
}
