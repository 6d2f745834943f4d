package fakekcp

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"

	"github.com/kcpctl/kcpctl/internal/desired/pki"
)

// server is one of the servers of a kcp.
type server struct {
	*Listener
	tls *tls.Config
}

// Serve starts a server with a certificate and the trusted client authorities. It runs until the test ends. A running
// server changes to these.
func (k *Kcp) Serve(name string, serving pki.Pair, clientCA []byte) {
	pair, err := tls.X509KeyPair(serving.Cert, serving.Key)
	if err != nil {
		k.t.Errorf("fakekcp: certificate of %s: %v", name, err)
		return
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(clientCA)
	config := &tls.Config{
		Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
		NextProtos: []string{"h2", "http/1.1"},
		// A client does not read an in-memory connection while it writes, so a ticket would block both sides.
		SessionTicketsDisabled: true,
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if s := k.servers[name]; s != nil {
		s.tls = config
		return
	}
	if k.ended {
		return
	}
	s := &server{NewListener(), config}
	k.servers[name] = s
	srv := &http.Server{
		Handler:  http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { k.serve(name, w, r) }),
		ErrorLog: log.New(io.Discard, "", 0), // tests have clients that time out
		TLSConfig: &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			k.mu.Lock()
			defer k.mu.Unlock()
			return s.tls, nil
		}},
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.ServeTLS(s.Listener, "", "")
	}()
	k.t.Cleanup(func() {
		_ = srv.Close()
		<-done
	})
}

// end lets no more servers start: the dial of a request that was cancelled can come after the test.
func (k *Kcp) end() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ended = true
}

// Dial connects to a server.
func (k *Kcp) Dial(ctx context.Context, name string) (net.Conn, error) {
	k.mu.Lock()
	s := k.servers[name]
	k.mu.Unlock()
	if s == nil {
		return nil, fmt.Errorf("connect to %s: connection refused", name)
	}
	return s.Dial(ctx)
}

// Listener is a net.Listener with connections in memory.
type Listener struct {
	conns  chan net.Conn
	closed chan struct{}
	close  func()
}

// NewListener returns a Listener.
func NewListener() *Listener {
	closed := make(chan struct{})
	return &Listener{make(chan net.Conn), closed, sync.OnceFunc(func() { close(closed) })}
}

// Dial connects to the server that accepts.
func (l *Listener) Dial(ctx context.Context) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case l.conns <- there:
		return here, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept waits for the next connection.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept and Dial.
func (l *Listener) Close() error {
	l.close()
	return nil
}

// Addr returns a placeholder.
func (l *Listener) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "pipe"} }
