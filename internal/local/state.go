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
	"syscall"
	"time"

	"github.com/kcpctl/kcpctl/internal/pki"
	"github.com/kcpctl/kcpctl/internal/ready"
	"github.com/kcpctl/kcpctl/internal/topology"
)

const (
	probeTime = 5 * time.Second // what the readiness probe of a pod has
	maxAnswer = 64 << 10
)

// runs tells whether a component is a process. The others are only files.
func runs(c *topology.Component) bool {
	return c.Kind != topology.Base && c.Kind != topology.Kubeconfig
}

// State says how far a component is: whether its process lives, and what it answers to the readiness probe.
func (r *Runtime) State(ctx context.Context, c *topology.Component) (ready.State, error) {
	if !runs(c) {
		return ready.State{Ready: true}, nil
	}
	l, err := r.observe(ctx, c)
	if err != nil {
		return ready.State{}, err
	}
	s := ready.State{Replicas: 1, Reason: l.reason, Stuck: l.final}
	if l.processRecord != nil {
		s.Version, s.Restarts, s.Since = l.Binary.Version, l.Restarts, l.StartedAt
	}
	if !l.alive {
		s.Detail = r.layout.lastLog(c.Object())
		if taken := r.taken(c.ID()); l.final && len(taken) > 0 {
			s.Reason += ": " + strings.Join(taken, "; ")
		}
		return s, nil
	}
	if s.Reason = r.probe(ctx, c.Port); s.Reason == "" {
		s.Ready, s.ReadyReplicas = true, 1
	}
	return s, nil
}

// probe asks the component on a port whether it is ready, and returns why it is not.
func (r *Runtime) probe(ctx context.Context, port int32) string {
	client, err := r.client(ctx)
	if err != nil {
		return err.Error()
	}
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address(port)+"/readyz", nil)
	if err != nil {
		return err.Error()
	}
	resp, err := client.Do(req)
	var untrusted *tls.CertificateVerificationError
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "starting, does not listen on port " + fmt.Sprint(port) + " yet"
	case errors.As(err, &untrusted):
		r.forgetClient() // the authority may be a new one
		return fmt.Sprintf("port %d: %v", port, untrusted)
	case err != nil:
		return fmt.Sprintf("/readyz: %v", errors.Unwrap(err))
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	switch {
	case err != nil:
		return fmt.Sprintf("/readyz: %v", err)
	case resp.StatusCode != http.StatusOK:
		return "/readyz: " + failedChecks(resp.Status, string(body))
	}
	return ""
}

// failedChecks are the checks that a server's readiness answer lists as failed: "[-]etcd failed: reason withheld".
func failedChecks(status, body string) string {
	const most = 3
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
	more := ""
	if n := len(failed) - most; n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return "waiting for " + strings.Join(failed[:min(most, len(failed))], ", ") + more
}

// client trusts the setup's server authority and nobody else.
func (r *Runtime) client(ctx context.Context) (*http.Client, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.http != nil {
		return r.http, nil
	}
	s, err := r.options.Store.Load(ctx)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(s.CAs[pki.ServerCA].Trusted()) {
		return nil, errors.New("the setup has no server authority yet")
	}
	r.http = &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
		DialContext:     (&net.Dialer{}).DialContext,
	}}
	return r.http, nil
}

func (r *Runtime) forgetClient() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.http != nil {
		r.http.CloseIdleConnections()
		r.http = nil
	}
}

// Replace does nothing: a component has one process here, and nobody who serves in its place.
func (r *Runtime) Replace(context.Context, *topology.Component) error { return nil }

// Dial connects to the port of a component.
func (r *Runtime) Dial(ctx context.Context, c *topology.Component) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address(c.Port))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.ID(), err)
	}
	return conn, nil
}
