package proxy_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/proxy"
	"github.com/kcpctl/kcpctl/internal/testutil/fakekcp"
	"github.com/kcpctl/kcpctl/internal/testutil/pkitest"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

const text = `spec:
  external: {hostname: kcp.example.com}
  shards: [{name: alpha, url: "https://alpha.example.com", virtualWorkspaceURL: "https://workspaces.example.com"}]
`

// dialer notes what is dialled, and connects to where the test wants.
type dialer struct {
	dial    func(ctx context.Context) (net.Conn, error)
	dialled []topology.ID
}

func (d *dialer) Dial(ctx context.Context, c *topology.Component) (net.Conn, error) {
	d.dialled = append(d.dialled, c.ID())
	return d.dial(ctx)
}

// world is a running proxy.
type world struct {
	top    *topology.Topology
	l      *fakekcp.Listener
	dialer *dialer
	failed []error
	served chan error
	stop   context.CancelFunc
}

// inWorld runs a test in a bubble, which fails if a goroutine is left when the proxy has ended.
func inWorld(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{top: topologytest.Build(t, text), l: fakekcp.NewListener(), dialer: &dialer{}, served: make(chan error, 1)}
		var ctx context.Context
		ctx, w.stop = context.WithCancel(t.Context())
		s := proxy.New(w.top, w.dialer, func(err error) { w.failed = append(w.failed, err) })
		go func() { w.served <- s.Serve(ctx, w.l) }()
		test(t, w)
		w.stop()
		require.NoError(t, <-w.served)
		synctest.Wait()
	})
}

// backend is the component's end of the next connection.
func (w *world) backend() net.Conn {
	here, there := net.Pipe()
	w.dialer.dial = func(context.Context) (net.Conn, error) { return there, nil }
	return here
}

// ask sends a request and returns the connection and the answer's head.
func (w *world) ask(t *testing.T, method, host string) (net.Conn, *bufio.Reader, *http.Response) {
	t.Helper()
	conn, err := w.l.Dial(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	req := &http.Request{Method: method, URL: &url.URL{Host: host, Opaque: host}, Host: host, Header: http.Header{}}
	require.NoError(t, req.Write(conn))
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, req)
	require.NoError(t, err)
	return conn, r, resp
}

func TestConnectFindsTheComponent(t *testing.T) {
	for host, want := range map[string]topology.ID{
		"kcp.example.com:6443":                             "front-proxy/main",
		"KCP.example.com:6443":                             "front-proxy/main",
		"demo-front-proxy-main.kcp.svc.cluster.local:6443": "front-proxy/main",
		"demo-root.kcp.svc.cluster.local:6443":             "root-shard",
		"demo-root.kcp:6443":                               "root-shard",
		"alpha.example.com:443":                            "shard/alpha",
		"demo-shard-alpha:6443":                            "shard/alpha",
		"workspaces.example.com:443":                       "shard/alpha",
	} {
		t.Run(host, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				backend := w.backend()
				defer backend.Close()
				_, _, resp := w.ask(t, http.MethodConnect, host)
				require.Equal(t, http.StatusOK, resp.StatusCode)
				require.Empty(t, resp.TransferEncoding, "RFC 9110, 9.3.6: no Transfer-Encoding and no Content-Length")
				require.Equal(t, []topology.ID{want}, w.dialer.dialled)
			})
		})
	}
}

func TestRefused(t *testing.T) {
	for name, tc := range map[string]struct{ method, host string }{
		"unknown host":        {http.MethodConnect, "example.com:443"},
		"another port":        {http.MethodConnect, "kcp.example.com:22"},
		"every component's":   {http.MethodConnect, "localhost:6443"},
		"etcd, which is none": {http.MethodConnect, "demo-etcd-root.kcp.svc.cluster.local:2379"},
		"no CONNECT":          {http.MethodGet, "kcp.example.com:6443"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				_, _, resp := w.ask(t, tc.method, tc.host)
				require.Equal(t, http.StatusForbidden, resp.StatusCode)
				body, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				require.Contains(t, string(body), tc.host)
				require.Empty(t, w.dialer.dialled)
			})
		})
	}
}

func TestBackendThatCannotBeReached(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		boom := errors.New("pod is gone")
		w.dialer.dial = func(context.Context) (net.Conn, error) { return nil, boom }
		_, _, resp := w.ask(t, http.MethodConnect, "kcp.example.com:6443")
		require.Equal(t, http.StatusBadGateway, resp.StatusCode)
		require.Len(t, w.failed, 1)
		require.EqualError(t, w.failed[0], "connect to front-proxy/main: pod is gone")
		require.ErrorIs(t, w.failed[0], boom)
	})
}

func TestTLSGoesThrough(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		issued := pkitest.Issue(t, w.top, time.Now())
		k, front := fakekcp.New(t), w.top.Component("front-proxy/main")
		k.Serve("main", issued.Leaves[pki.KeyOf(front, topology.CertServer)], issued.CAs[topology.ClientCA].Trusted())
		w.dialer.dial = func(ctx context.Context) (net.Conn, error) { return k.Dial(ctx, "main") }

		admin := issued.Leaves[pki.LeafKey{Cluster: front.Cluster.Name, Secret: w.top.Component("kubeconfig/admin").Object()}]
		pair, err := tls.X509KeyPair(admin.Cert, admin.Key)
		require.NoError(t, err)
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(issued.CAs[topology.ServerCA].Trusted())
		transport := &http.Transport{
			Proxy:           http.ProxyURL(&url.URL{Scheme: "http", Host: "proxy.test"}),
			DialContext:     func(ctx context.Context, _, _ string) (net.Conn, error) { return w.l.Dial(ctx) },
			TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}},
		}
		defer transport.CloseIdleConnections()
		client := &http.Client{Transport: transport}
		for range 2 {
			resp, err := client.Get("https://kcp.example.com:6443/readyz")
			require.NoError(t, err)
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, "ok", string(body))
		}
		require.Equal(t, "kcp-admin", k.Requests(fakekcp.Readyz)[0].User, "the client's certificate arrives")
		require.Equal(t, []topology.ID{"front-proxy/main"}, w.dialer.dialled)
	})
}

func TestBothEndsAreClosed(t *testing.T) {
	for name, end := range map[string]func(client, backend net.Conn, w *world){
		"the client closes":  func(client, _ net.Conn, _ *world) { client.Close() },
		"the backend closes": func(_, backend net.Conn, _ *world) { backend.Close() },
		"the proxy ends":     func(_, _ net.Conn, w *world) { w.stop() },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				backend := w.backend()
				client, r, _ := w.ask(t, http.MethodConnect, "kcp.example.com:6443")
				go func() { _, _ = backend.Write([]byte("hello")) }()
				got := make([]byte, 5)
				_, err := io.ReadFull(r, got)
				require.NoError(t, err)
				require.Equal(t, "hello", string(got))

				end(client, backend, w)
				synctest.Wait()
				for _, c := range []net.Conn{client, backend} {
					require.NoError(t, ignoreClosed(c.SetReadDeadline(time.Now().Add(time.Second))))
					_, err := c.Read(got)
					require.Error(t, err)
					require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "still open")
				}
			})
		})
	}
}

func ignoreClosed(err error) error {
	if errors.Is(err, io.ErrClosedPipe) {
		return nil
	}
	return err
}

// halfOpen is a backend like a TCP connection to a server that goes on after the client has said its last word.
type halfOpen struct {
	net.Conn
	closed chan struct{}
}

func (h halfOpen) CloseWrite() error {
	close(h.closed)
	return nil
}

func TestHalfClosedBackendEndsWithTheProxy(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		here, there := net.Pipe()
		defer here.Close()
		backend := halfOpen{there, make(chan struct{})}
		w.dialer.dial = func(context.Context) (net.Conn, error) { return backend, nil }
		client, _, _ := w.ask(t, http.MethodConnect, "kcp.example.com:6443")
		require.NoError(t, client.Close())
		<-backend.closed
		w.stop()
		synctest.Wait()
		_, err := here.Write([]byte("anybody there?"))
		require.ErrorIs(t, err, io.ErrClosedPipe)
	})
}

// What a client sends together with its CONNECT belongs to the component.
func TestBytesSentAtOnceAreNotLost(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		backend := w.backend()
		defer backend.Close()
		conn, err := w.l.Dial(t.Context())
		require.NoError(t, err)
		defer conn.Close()
		go func() {
			_, _ = conn.Write([]byte("CONNECT kcp.example.com:6443 HTTP/1.1\r\nHost: kcp.example.com:6443\r\n\r\nearly"))
		}()
		_, err = http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: http.MethodConnect})
		require.NoError(t, err)
		got := make([]byte, 5)
		_, err = io.ReadFull(backend, got)
		require.NoError(t, err)
		require.Equal(t, "early", string(got))
	})
}

func TestServeTellsThatItCannot(t *testing.T) {
	l := fakekcp.NewListener()
	require.NoError(t, l.Close())
	s := proxy.New(&topology.Topology{}, &dialer{}, nil)
	require.ErrorIs(t, s.Serve(t.Context(), l), net.ErrClosed)
}
