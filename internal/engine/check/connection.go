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
	"slices"
	"time"

	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

const (
	// mostPairs limits how many pairs of a mesh are tried: the pairs of 16 shards.
	mostPairs = 256
	// dialTimeout limits how long an external address may take to answer.
	dialTimeout = 3 * time.Second
)

// presents compares the certificate that each server presents with the one in the store.
func presents(ctx context.Context, s *Subject) outcome {
	return s.eachServer(func(c *topology.Component) (o outcome) {
		conn, err := s.Runtime.Dial(ctx, c)
		if err != nil {
			o.fail("%s: %s", c.ID(), reason(ctx, err))
			return o
		}
		client := tls.Client(conn, anyCertificate(hostOf(c.URLFrom(c.Cluster))))
		defer client.Close()
		if err := client.HandshakeContext(ctx); err != nil {
			o.fail("%s: TLS handshake failed: %s", c.ID(), reason(ctx, err))
			return o
		}
		if other := s.otherCertificate(client, c); other != nil {
			o.fail("%s: presents %s, not the certificate in Secret %s", c.ID(), describe(other),
				c.Object(topology.CertServer))
		}
		return o
	})
}

// anyCertificate is for a handshake that trusts every certificate: the caller compares it afterwards.
func anyCertificate(host string) *tls.Config {
	return &tls.Config{InsecureSkipVerify: true,
		ServerName: host} // #nosec G402 -- nothing is sent, the certificate is compared
}

// otherCertificate returns the certificate that a server has presented if it is not the component's own.
func (s *Subject) otherCertificate(conn *tls.Conn, c *topology.Component) *x509.Certificate {
	leaf := s.state.Leaves[pki.KeyOf(c, topology.CertServer)]
	presented := conn.ConnectionState().PeerCertificates[0]
	if block, _ := pem.Decode(leaf.Cert); block != nil && bytes.Equal(block.Bytes, presented.Raw) {
		return nil
	}
	return presented
}

// whose explains a certificate that is not the component's own. A proxy that terminates TLS has another one, and a
// wrong DNS record or port leads to another component.
func (s *Subject) whose(cert *x509.Certificate) string {
	for _, c := range s.Topology.Running() {
		if block, _ := pem.Decode(s.state.Leaves[pki.KeyOf(c, topology.CertServer)].Cert); block != nil &&
			bytes.Equal(block.Bytes, cert.Raw) {
			return fmt.Sprintf("it is the certificate of %s, so the address leads there", c.ID())
		}
	}
	return "a proxy terminates TLS there instead of passing it through, or the address belongs to another server"
}

// describe names a certificate by its subject, issuer and end.
func describe(c *x509.Certificate) string {
	return fmt.Sprintf("a certificate for %q, issued by %q, valid until %s", c.Subject.CommonName, c.Issuer.CommonName,
		c.NotAfter.UTC().Format(time.DateOnly))
}

// pairs acts as every client at every server that it dials.
func pairs(ctx context.Context, s *Subject) outcome {
	var tried []pki.Connection
	var absent []*topology.Component
	for _, c := range pki.Connections(s.Topology, mostPairs) {
		switch server := s.Topology.Component(c.Server); {
		case s.serves(c.Server) && !s.lost(c.ClientCert.Cluster):
			tried = append(tried, c)
		case !slices.Contains(absent, server):
			absent = append(absent, server)
		}
	}
	if len(tried) == 0 {
		return skipped("no component is ready")
	}
	o := every(tried, func(c pki.Connection) (o outcome) {
		if err := s.actAs(ctx, c); err != nil {
			o.fail("%s to %s at %s: %s", c.Client, c.Server, c.URL, reason(ctx, err))
		}
		return o
	})
	o.notExamined("not ready, or its clients are on clusters that do not answer", absent)
	return o
}

// actAs dials a server as a client of the setup does.
func (s *Subject) actAs(ctx context.Context, c pki.Connection) error {
	pair, ok := s.state.Leaves[c.ClientCert]
	if !ok {
		return fmt.Errorf("the client's certificate %s does not exist", c.ClientCert.Secret)
	}
	server := s.Topology.Component(c.Server)
	ca := s.state.CAs[c.Trust].Trusted()
	if c.Serving != nil {
		ca = []byte(c.Serving.CA)
	}
	client := kcp.New(kcp.Options{URL: c.URL, CA: ca, Pair: pair, Dial: s.dialer(server)})
	defer client.Close()
	header := http.Header{}
	if c.Accept == topology.RequestHeaderCA {
		header.Set("X-Remote-User", pki.CNSelf)
	}
	a, err := client.Get(ctx, authenticated(server), header)
	switch {
	case err != nil && isUntrusted(err):
		return fmt.Errorf("the client does not trust the server: %w", err)
	case err != nil:
		return err
	case !a.KnowsClient():
		return fmt.Errorf("the server does not know the client's certificate %s (HTTP status %d)",
			c.ClientCert.Secret, a.Code)
	}
	return nil
}

// authenticated returns a path that a server serves to authenticated clients only.
func authenticated(c *topology.Component) string {
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

// externalURLs dials, from this machine, the URLs that are dialled from outside.
func externalURLs(ctx context.Context, s *Subject) outcome {
	all := externals(s.Topology)
	if len(all) == 0 {
		return skipped("the setup has no external URL")
	}
	return every(all, func(e external) (o outcome) {
		conn, not := s.connectExternal(ctx, e)
		if conn == nil {
			return not
		}
		defer conn.Close()
		switch err := s.presentsExpected(conn, e); {
		case err != nil && s.clientsMayTrust(conn, e, err):
			o.warn("%s (%s): %s; clients may know this authority", e.url, e.component.ID(), err)
		case err != nil:
			o.fail("%s (%s): %s", e.url, e.component.ID(), err)
		}
		return o
	})
}

// connectExternal connects to a URL from this machine, without a client certificate. If it cannot, conn is nil, and
// not has the reason.
func (s *Subject) connectExternal(ctx context.Context, e external) (conn *tls.Conn, not outcome) {
	if !s.serves(e.component.ID()) {
		return nil, skipped("%s: not ready", e.component.ID())
	}
	host := hostOf(e.url)
	if _, err := s.network().LookupHost(ctx, host); err != nil && net.ParseIP(host) == nil {
		return nil, skipped("%s does not resolve on this machine", host)
	}
	dialling, cancel := context.WithTimeoutCause(ctx, dialTimeout, fmt.Errorf("no answer within %s", dialTimeout))
	defer cancel()
	conn, err := s.network().DialTLS(dialling, topology.HostPort(e.url), anyCertificate(host))
	if err != nil {
		not.warn("%s (%s) does not answer this machine: %s", e.url, e.component.ID(), reason(dialling, err))
		return nil, not
	}
	return conn, not
}

// clientsMayTrust reports whether an error of presentsExpected only says that this machine does not know the authority
// of a certificate: the setup file does not name it, so that clients have it in their systems.
func (s *Subject) clientsMayTrust(conn *tls.Conn, e external, err error) bool {
	serving := e.component.Serving
	_, unknown := errors.AsType[x509.UnknownAuthorityError](err)
	return unknown && serving != nil && serving.CA == "" && s.otherCertificate(conn, e.component) != nil
}

// presentsExpected returns an error if another certificate is presented at an external URL than its clients expect: the
// component's own, or one that is not of the setup.
func (s *Subject) presentsExpected(conn *tls.Conn, e external) error {
	if serving, host := e.component.Serving, hostOf(e.url); serving != nil && host == hostOf(e.component.ExternalURL) {
		return verifyServing(conn.ConnectionState().PeerCertificates, serving, host, s.Now())
	}
	if other := s.otherCertificate(conn, e.component); other != nil {
		return fmt.Errorf("presents %s: %s", describe(other), s.whose(other))
	}
	return nil
}
