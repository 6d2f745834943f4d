// Package proxy lets programs on this machine reach a setup under its own host names: an HTTP proxy for CONNECT that
// knows the hosts of the setup's components, wherever they run. TLS is end to end between the program and the
// component.
package proxy

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// Dialer connects to a component's port.
type Dialer interface {
	Dial(ctx context.Context, c *topology.Component) (net.Conn, error)
}

// Server is the proxy.
type Server struct {
	routes map[string]*topology.Component
	dialer Dialer
	// Failed is called with the errors of failed connections.
	Failed func(error)
}

// New returns a proxy for the components of a setup.
func New(t *topology.Topology, d Dialer, failed func(error)) *Server {
	s := &Server{routes: map[string]*topology.Component{}, dialer: d, Failed: failed}
	for _, c := range t.Servers() {
		for _, h := range c.Hosts() {
			if ip := net.ParseIP(h); h == "localhost" || ip != nil && ip.IsLoopback() {
				continue // every component has these names
			}
			s.route(net.JoinHostPort(h, strconv.Itoa(int(c.ServicePort))), c)
		}
		for _, u := range c.URLs() {
			if hp := topology.HostPort(u); hp != "" {
				s.route(hp, c)
			}
		}
	}
	return s
}

// route maps a host and port to a component. Host names are case-insensitive.
func (s *Server) route(hostPort string, c *topology.Component) {
	s.routes[strings.ToLower(hostPort)] = c
}

// Serve serves requests of a listener until ctx ends.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	srv := &http.Server{Handler: s, BaseContext: func(net.Listener) context.Context { return ctx }}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	if err := srv.Serve(l); ctx.Err() == nil {
		return fmt.Errorf("serve proxy: %w", err)
	}
	return nil
}

// ServeHTTP connects the client to the component that it names.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c, ok := s.routes[strings.ToLower(r.Host)]
	if r.Method != http.MethodConnect || !ok {
		http.Error(w, fmt.Sprintf("%s %s: this proxy only connects to the components of one kcp setup", r.Method,
			r.Host), http.StatusForbidden)
		return
	}
	backend, err := s.dialer.Dial(r.Context(), c)
	if err != nil {
		s.Failed(fmt.Errorf("connect to %s: %w", c.ID(), err))
		http.Error(w, fmt.Sprintf("connect to %s: %v", c.ID(), err), http.StatusBadGateway)
		return
	}
	defer backend.Close()
	client, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		s.Failed(fmt.Errorf("hijack connection: %w", err))
		return
	}
	defer client.Close()
	stop := context.AfterFunc(r.Context(), func() {
		client.Close()
		backend.Close()
	})
	defer stop()
	// Written by hand: net/http would announce a body, which RFC 9110, 9.3.6 forbids.
	if _, err := io.WriteString(client, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		return // the client has gone
	}
	join(client, buffered, backend)
}

// join copies in both directions until both have ended, or one has failed.
func join(client net.Conn, buffered io.Reader, backend net.Conn) {
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.Copy(backend, buffered)
		closeWrite(backend)
	})
	both.Go(func() {
		_, _ = io.Copy(client, backend)
		closeWrite(client)
	})
	both.Wait()
}

// closeWrite closes the write side of a connection, or the whole connection if it has no separate one.
func closeWrite(c net.Conn) {
	if h, ok := c.(interface{ CloseWrite() error }); ok {
		_ = h.CloseWrite()
		return
	}
	_ = c.Close()
}
