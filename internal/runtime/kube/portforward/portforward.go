// Package portforward connects to ports of pods through the API server. Connections are net.Conns, without a local
// port, and all connections to a pod share one to the API server.
package portforward

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"

	"github.com/kcpctl/kcpctl/internal/client/retry"
)

// Pod is a pod to connect to.
type Pod struct {
	UID  types.UID
	Name string
	// URL is the URL of the pod's portforward subresource, and Config the connection to its API server.
	URL    *url.URL
	Config *rest.Config
}

// Dialer connects to pods. Its zero value is ready for use.
type Dialer struct {
	mu      sync.Mutex
	tunnels map[types.UID]*tunnel
}

// Dial connects to a port of a pod.
func (d *Dialer) Dial(ctx context.Context, p Pod, port int32) (net.Conn, error) {
	t := d.tunnel(p)
	conn, err := t.dial(ctx, port)
	if err != nil && ctx.Err() == nil && !errors.Is(err, retry.ErrNoAnswer) {
		conn, err = t.dial(ctx, port) // the shared connection was broken, and has been dropped
	}
	return conn, err
}

// Close closes all connections.
func (d *Dialer) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	for _, t := range d.tunnels {
		errs = append(errs, t.close())
	}
	d.tunnels = nil
	return errors.Join(errs...)
}

func (d *Dialer) tunnel(p Pod) *tunnel {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.tunnels == nil {
		d.tunnels = map[types.UID]*tunnel{}
	}
	if d.tunnels[p.UID] == nil {
		d.tunnels[p.UID] = &tunnel{pod: p}
	}
	return d.tunnels[p.UID]
}

// idleTimeout is how long a tunnel without streams is kept open. Each takes almost a megabyte, and a run connects to
// every component of a setup.
const idleTimeout = 10 * time.Second

// tunnel is a connection to the API server that carries the streams to one pod.
type tunnel struct {
	pod Pod
	// streams is the number of open streams. It increases only under mu.
	streams atomic.Int32

	mu   sync.Mutex // held while the tunnel connects
	conn httpstream.Connection
	next int // the ID of the next pair of streams
}

// dial opens a pair of streams to a port of the pod. It drops a connection on which no stream can be opened.
func (t *tunnel) dial(ctx context.Context, port int32) (net.Conn, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.conn == nil {
		conn, err := t.connect(ctx)
		if err != nil {
			return nil, err
		}
		t.conn = conn
	}
	t.next++
	conn, err := openStream(t.conn, port, t.next, t.pod.Name)
	if err != nil {
		_ = t.drop() // it is broken
		return nil, err
	}
	t.streams.Add(1)
	conn.release = t.release
	return conn, nil
}

// release notes that a stream is closed. It does not wait for a tunnel that connects.
func (t *tunnel) release() {
	if t.streams.Add(-1) == 0 {
		time.AfterFunc(idleTimeout, t.closeIdle)
	}
}

// closeIdle closes the tunnel if it has no streams. The next dial connects again.
func (t *tunnel) closeIdle() {
	t.mu.Lock() // a dial may be about to open a stream, which takes long on a busy machine
	defer t.mu.Unlock()
	if t.streams.Load() == 0 {
		_ = t.drop()
	}
}

func (t *tunnel) close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.drop()
}

// drop closes the connection. mu is held.
func (t *tunnel) drop() error {
	if t.conn == nil {
		return nil
	}
	err := t.conn.Close()
	t.conn = nil
	return err
}

// connect upgrades a request to the API server: to a web socket as kubectl does, or to plain SPDY if that is refused.
// The libraries take no context, so a connection that comes too late is closed.
func (t *tunnel) connect(ctx context.Context) (httpstream.Connection, error) {
	dialer, err := t.dialer()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, retry.AnswerTimeout, retry.ErrNoAnswer)
	defer cancel()
	type result struct {
		conn httpstream.Connection
		err  error
	}
	done := make(chan result, 1)
	go func() {
		conn, _, err := dialer.Dial(portforward.PortForwardProtocolV1Name)
		done <- result{conn, err}
	}()
	select {
	case r := <-done:
		return r.conn, r.err
	case <-ctx.Done():
		go func() {
			if r := <-done; r.err == nil {
				_ = r.conn.Close() // too late
			}
		}()
		return nil, context.Cause(ctx)
	}
}

func (t *tunnel) dialer() (httpstream.Dialer, error) {
	socket, err := portforward.NewSPDYOverWebsocketDialer(t.pod.URL, t.pod.Config)
	if err != nil {
		return nil, err
	}
	transport, upgrader, err := spdy.RoundTripperFor(t.pod.Config)
	if err != nil {
		return nil, err
	}
	plain := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, t.pod.URL)
	return portforward.NewFallbackDialer(socket, plain, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	}), nil
}

func portHeader(port int32, id int, kind string) http.Header {
	h := http.Header{}
	h.Set(corev1.StreamType, kind)
	h.Set(corev1.PortHeader, strconv.Itoa(int(port)))
	h.Set(corev1.PortForwardRequestIDHeader, strconv.Itoa(id))
	return h
}
