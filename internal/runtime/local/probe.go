package local

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
	"github.com/kcpctl/kcpctl/internal/runtime/local/ports"
)

const (
	probeTimeout = 5 * time.Second // as in the readiness probe of a pod
	maxAnswer    = 64 << 10
)

// prober asks components whether they are ready.
type prober struct {
	store pki.Store

	mu   sync.Mutex
	http *http.Client
}

// unready sends a readiness probe to the component of a kind on a port. It returns the reason if the component is not
// ready, or an empty string.
func (p *prober) unready(ctx context.Context, k topology.Kind, port int32) string {
	client, err := p.client(ctx)
	if err != nil {
		return err.Error()
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	scheme, path := k.Probe()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+ports.Address(port)+path, nil)
	if err != nil {
		return err.Error()
	}
	resp, err := client.Do(req)
	var untrusted *tls.CertificateVerificationError
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Sprintf("starting, does not listen on port %d yet", port)
	case errors.As(err, &untrusted):
		p.forget() // the CA may be a new one
		return fmt.Sprintf("port %d: %s", port, distrust(untrusted))
	case ctx.Err() != nil:
		return fmt.Sprintf("%s: no answer within %s", path, probeTimeout)
	case err != nil:
		return fmt.Sprintf("%s: %v", path, errors.Unwrap(err))
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	switch {
	case err != nil:
		return fmt.Sprintf("%s: %v", path, err)
	case resp.StatusCode != http.StatusOK:
		return path + ": " + failedChecks(resp.Status, string(body))
	}
	return ""
}

// distrust is why a certificate is not accepted. The times of one that has expired would differ in each message.
func distrust(err error) string {
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired &&
		time.Now().After(invalid.Cert.NotAfter) {
		return "its certificate has expired"
	}
	return err.Error()
}

// failedChecks returns the checks that the answer to a readiness probe lists as failed: "[-]etcd failed: reason
// withheld".
func failedChecks(status, body string) string {
	var failed []string
	for line := range strings.Lines(body) {
		if name, ok := strings.CutPrefix(line, "[-]"); ok {
			name, _, _ = strings.Cut(name, " ")
			failed = append(failed, strings.TrimPrefix(name, "poststarthook/"))
		}
	}
	if len(failed) == 0 {
		return status
	}
	return "waiting for " + gather.Few(failed, gather.Listed, ", ")
}

// client returns a client that trusts the setup's server CA only.
func (p *prober) client(ctx context.Context) (*http.Client, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.http != nil {
		return p.http, nil
	}
	s, err := p.store.Load(ctx)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(s.CAs[topology.ServerCA].Trusted()) {
		return nil, fmt.Errorf("not probed: the server CA is not in the PKI store (%s)", p.store)
	}
	p.http = &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
		DialContext:     (&net.Dialer{}).DialContext,
	}}
	return p.http, nil
}

// forget closes connections, and makes the next probe read the CA again.
func (p *prober) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.http != nil {
		p.http.CloseIdleConnections()
		p.http = nil
	}
}
