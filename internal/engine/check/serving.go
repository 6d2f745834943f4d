package check

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
)

// ownServing compares the certificates that front-proxies serve for their external hostnames with the setup file.
func ownServing(ctx context.Context, s *Subject, cl Cluster) (o outcome) {
	found := false
	for _, c := range s.Topology.FrontProxies() {
		if c.Serving == nil || c.Serving.Edge || c.Cluster.Name != cl.Name() {
			continue
		}
		found = true
		data, err := cl.Secret(ctx, c.Serving.Secret)
		if err != nil {
			o.add(err)
			continue
		}
		if data == nil {
			continue // the check of references reports it
		}
		pair, err := tls.X509KeyPair(data["tls.crt"], data["tls.key"])
		if err != nil {
			o.fail("Secret %s, which %s serves: %s", c.Serving.Secret, c.ID(), err)
			continue
		}
		var chain []*x509.Certificate
		for _, der := range pair.Certificate {
			cert, err := x509.ParseCertificate(der)
			if err == nil {
				chain = append(chain, cert)
			}
		}
		switch err := verifyServing(chain, c.Serving, hostOf(c.ExternalURL), s.Now()); {
		case err != nil && c.Serving.CA == "":
			o.warn("Secret %s, which %s serves: %s", c.Serving.Secret, c.ID(), err)
		case err != nil:
			o.fail("Secret %s, which %s serves: %s", c.Serving.Secret, c.ID(), err)
		}
	}
	if !found {
		return skipped("no front-proxy on it has a serving certificate of its own")
	}
	return o
}

// verifyServing verifies a chain as clients do: with the authorities in the setup file, or of the system.
func verifyServing(chain []*x509.Certificate, s *v1alpha1.Serving, host string, now time.Time) error {
	if len(chain) == 0 {
		return errors.New("no certificate")
	}
	options := x509.VerifyOptions{DNSName: host, CurrentTime: now, Intermediates: x509.NewCertPool()}
	if s.CA != "" {
		options.Roots = x509.NewCertPool()
		options.Roots.AppendCertsFromPEM([]byte(s.CA))
	}
	for _, more := range chain[1:] {
		options.Intermediates.AddCert(more)
	}
	if _, err := chain[0].Verify(options); err != nil {
		return fmt.Errorf("%s is not accepted for %s: %w", describe(chain[0]), host, err)
	}
	return nil
}
