package check

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/kcpctl/kcpctl/internal/kcp"
	"github.com/kcpctl/kcpctl/internal/pki"
	"github.com/kcpctl/kcpctl/internal/topology"
)

const (
	// mostPairs is how many pairs of a mesh are tried: those of 16 shards.
	mostPairs = 256
	// dialTimeout is how long an address outside may take to answer.
	dialTimeout = 3 * time.Second
)

// presents compares the certificate that each server presents with the one in the store.
func presents(ctx context.Context, s *Subject) outcome {
	servers := s.servers()
	if len(servers) == 0 {
		return skipped("no component is ready")
	}
	return every(servers, func(c *topology.Component) (o outcome) {
		conn, err := s.Runtime.Dial(ctx, c)
		if err != nil {
			o.fail("%s: %s", c.ID(), reason(ctx, err))
			return o
		}
		client := tls.Client(conn, looking(hostOf(c.URLFrom(c.Cluster))))
		defer client.Close()
		if err := client.HandshakeContext(ctx); err != nil {
			o.fail("%s speaks no TLS: %s", c.ID(), reason(ctx, err))
			return o
		}
		if stranger := s.stranger(client, c); stranger != nil {
			o.fail("%s presents %s, not the certificate in Secret %s", c.ID(), describe(stranger), c.Object(pki.CertServer))
		}
		return o
	})
}

// looking is for a handshake that trusts everything: what is presented is compared afterwards.
func looking(host string) *tls.Config {
	return &tls.Config{InsecureSkipVerify: true, ServerName: host} // #nosec G402 -- nothing is sent, the certificate is compared
}

// stranger returns the certificate that a server has presented if it is not a component's own.
func (s *Subject) stranger(conn *tls.Conn, c *topology.Component) *x509.Certificate {
	leaf := s.state.Leaves[pki.LeafKey{Cluster: c.Cluster.Name, Secret: c.Object(pki.CertServer)}]
	presented := conn.ConnectionState().PeerCertificates[0]
	if block, _ := pem.Decode(leaf.Cert); block != nil && bytes.Equal(block.Bytes, presented.Raw) {
		return nil
	}
	return presented
}

// describe names a certificate by what people know of it.
func describe(c *x509.Certificate) string {
	return fmt.Sprintf("a certificate for %q, issued by %q, valid until %s", c.Subject.CommonName, c.Issuer.CommonName,
		c.NotAfter.UTC().Format(time.DateOnly))
}

// pairs plays every client at every server that it dials.
func pairs(ctx context.Context, s *Subject) outcome {
	var tried []pki.Connection
	for _, c := range pki.Connections(s.Topology, mostPairs) {
		if s.serves(c.Server) {
			tried = append(tried, c)
		}
	}
	if len(tried) == 0 {
		return skipped("no component is ready")
	}
	return every(tried, func(c pki.Connection) (o outcome) {
		if err := s.play(ctx, c); err != nil {
			o.fail("%s at %s of %s: %s", c.Client, c.URL, c.Server, reason(ctx, err))
		}
		return o
	})
}

// play dials a server as a client of the setup does.
func (s *Subject) play(ctx context.Context, c pki.Connection) error {
	pair, ok := s.state.Leaves[c.ClientCert]
	if !ok {
		return fmt.Errorf("the client's certificate %s is not there", c.ClientCert.Secret)
	}
	server := s.Topology.Component(c.Server)
	client := kcp.New(kcp.Options{URL: c.URL, CA: s.state.CAs[c.Trust].Trusted(), Pair: pair, Dial: s.dialer(server)})
	defer client.Close()
	header := http.Header{}
	if c.Accept == pki.RequestHeaderCA {
		header.Set("X-Remote-User", pki.CNSelf)
	}
	a, err := client.Get(ctx, s.authenticated(server), header)
	switch {
	case err != nil && isUntrusted(err):
		return fmt.Errorf("the client does not trust the server: %w", err)
	case err != nil:
		return err
	case !a.KnowsClient():
		return fmt.Errorf("the server does not know the client's certificate %s (HTTP status %d)", c.ClientCert.Secret, a.Code)
	}
	return nil
}

// authenticated is a path at which a server says whether it knows who asks.
func (s *Subject) authenticated(c *topology.Component) string {
	switch c.Kind {
	case topology.Etcd:
		return "/health"
	case topology.CacheServer:
		return "/services/cache/shards/root/clusters/root/api"
	case topology.VirtualWorkspaces:
		return "/services/apiexport/root/tenancy.kcp.io/clusters/*/api"
	}
	return "/clusters/root/api"
}

func isUntrusted(err error) bool {
	var (
		verify *tls.CertificateVerificationError
		host   x509.HostnameError
	)
	return errors.As(err, &verify) || errors.As(err, &host)
}

// externalURLs dials from this machine what is dialled from outside.
func externalURLs(ctx context.Context, s *Subject) outcome {
	all := externals(s.Topology)
	if len(all) == 0 {
		return skipped("the setup has no URL that is dialled from outside its clusters")
	}
	return every(all, func(e external) (o outcome) {
		if !s.serves(e.component.ID()) {
			return skipped("%s is not ready", e.component.ID())
		}
		host := hostOf(e.url)
		if _, err := s.Network.LookupHost(ctx, host); err != nil && net.ParseIP(host) == nil {
			return skipped("%s does not resolve on this machine", host)
		}
		dialling, cancel := context.WithTimeoutCause(ctx, dialTimeout, fmt.Errorf("no answer within %s", dialTimeout))
		defer cancel()
		conn, err := s.Network.DialTLS(dialling, topology.HostPort(e.url), looking(host))
		if err != nil {
			o.warn("%s (%s) does not answer this machine: %s", e.url, e.component.ID(), reason(dialling, err))
			return o
		}
		defer conn.Close()
		if stranger := s.stranger(conn, e.component); stranger != nil {
			o.fail("%s (%s): something in between terminates TLS, or the address is that of another server: it presents %s",
				e.url, e.component.ID(), describe(stranger))
		}
		return o
	})
}
