package kube

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/ready"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// Dial connects to a pod of a component by a port-forward. All connections to a pod share one to the API server.
func (r *Runtime) Dial(ctx context.Context, c *topology.Component) (net.Conn, error) {
	ctx = quiet(ctx)
	s, err := r.siteOf(ctx, c)
	if err != nil {
		return nil, err
	}
	p, err := r.podToDial(ctx, s, c)
	if err != nil {
		return nil, err
	}
	return r.dialPod(ctx, s, p, c.Port)
}

// dialPod connects to a port of a pod.
func (r *Runtime) dialPod(ctx context.Context, s *site, p *corev1.Pod, port int32) (net.Conn, error) {
	t := r.tunnels.to(s, p)
	conn, err := t.dial(ctx, port)
	if err != nil && ctx.Err() == nil && !errors.Is(err, errNoAnswer) {
		conn, err = t.dial(ctx, port) // the shared connection was broken, and has been dropped
	}
	if err != nil {
		return nil, s.explain(err, "connect to port %d of Pod/%s/%s", port, s.Namespace, p.Name)
	}
	return conn, nil
}

// podToDial chooses the newest pod that is ready, else one that runs.
func (r *Runtime) podToDial(ctx context.Context, s *site, c *topology.Component) (*corev1.Pod, error) {
	w, err := r.workload(ctx, s, c)
	if err != nil {
		return nil, err
	}
	var best *corev1.Pod
	for _, p := range w.Pods {
		if p.DeletionTimestamp == nil && p.Status.Phase == corev1.PodRunning && (best == nil || preferred(p, best)) {
			best = p
		}
	}
	if best == nil {
		return nil, clierr.New(clierr.Failed, "see why with: kcpctl status", "%s has no running pod (%s)", c.ID(), s.where())
	}
	return best, nil
}

func preferred(p, other *corev1.Pod) bool {
	if a, b := ready.PodReady(p), ready.PodReady(other); a != b {
		return a
	}
	return other.CreationTimestamp.Before(&p.CreationTimestamp)
}

// tunnels are the connections to pods that are open.
type tunnels struct {
	mu  sync.Mutex
	all map[types.UID]*tunnel
}

// to returns the tunnel to a pod.
func (t *tunnels) to(s *site, p *corev1.Pod) *tunnel {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all == nil {
		t.all = map[types.UID]*tunnel{}
	}
	if t.all[p.UID] == nil {
		t.all[p.UID] = &tunnel{site: s, pod: p.Name}
	}
	return t.all[p.UID]
}

func (t *tunnels) close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var errs []error
	for _, tun := range t.all {
		errs = append(errs, tun.close())
	}
	t.all = nil
	return errors.Join(errs...)
}

// tunnel is the way to a pod: one connection to the API server, which carries streams.
type tunnel struct {
	site *site
	pod  string

	mu   sync.Mutex
	conn httpstream.Connection
	next int // the ID of the next pair of streams
}

// dial opens a pair of streams to a port of the pod. A connection that carries none any more is dropped.
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
	conn, err := openStream(t.conn, port, t.next, t.pod)
	if err != nil {
		_ = t.conn.Close() // it is broken
		t.conn = nil
	}
	return conn, err
}

func (t *tunnel) close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.conn == nil {
		return nil
	}
	err := t.conn.Close()
	t.conn = nil
	return err
}

// connect upgrades a request to the API server: to a web socket as kubectl does, or to plain SPDY where that is refused. The
// libraries take no context, so a connection that is late is closed when it comes.
func (t *tunnel) connect(ctx context.Context) (httpstream.Connection, error) {
	dialer, err := t.dialer()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, answerTime, errNoAnswer)
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
				_ = r.conn.Close() // nobody waits for it
			}
		}()
		return nil, context.Cause(ctx)
	}
}

func (t *tunnel) dialer() (httpstream.Dialer, error) {
	u, err := t.site.url(t.site.podPath(t.pod, "portforward"), nil)
	if err != nil {
		return nil, err
	}
	socket, err := portforward.NewSPDYOverWebsocketDialer(u, t.site.config)
	if err != nil {
		return nil, err
	}
	transport, upgrader, err := spdy.RoundTripperFor(t.site.config)
	if err != nil {
		return nil, err
	}
	plain := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, u)
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
