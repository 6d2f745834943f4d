package portforward

import (
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/httpstream"
)

// stream is a connection to a port of a pod: a pair of streams of a port-forward, one for data and one on which the
// kubelet reports errors.
type stream struct {
	httpstream.Stream
	tunnel httpstream.Connection
	errors httpstream.Stream
	local  addr
	remote addr
	closed sync.Once
	// release is called when the stream is closed.
	release func()

	mu       sync.Mutex
	cause    error          // why the stream ended, once that is known
	reported chan struct{}  // closed when the stream of errors has ended
	timers   [2]*time.Timer // of reads and of writes
}

// addr is one end of a stream.
type addr string

func (addr) Network() string  { return "portforward" }
func (a addr) String() string { return string(a) }

// openStream opens a pair of streams.
func openStream(tunnel httpstream.Connection, port int32, id int, pod string) (*stream, error) {
	failures, err := tunnel.CreateStream(portHeader(port, id, corev1.StreamTypeError))
	if err != nil {
		return nil, fmt.Errorf("open port-forward: %w", err)
	}
	_ = failures.Close() // nothing is written to it
	data, err := tunnel.CreateStream(portHeader(port, id, corev1.StreamTypeData))
	if err != nil {
		tunnel.RemoveStreams(failures)
		return nil, fmt.Errorf("open port-forward: %w", err)
	}
	s := &stream{
		Stream: data, tunnel: tunnel, errors: failures,
		local: "kcpctl", remote: addr(net.JoinHostPort(pod, strconv.Itoa(int(port)))), reported: make(chan struct{}),
	}
	go s.readError()
	return s, nil
}

// readError reads the error that the kubelet reports, if any. It returns when the stream ends.
func (s *stream) readError() {
	defer close(s.reported)
	message, err := io.ReadAll(io.LimitReader(s.errors, 4<<10))
	if err == nil && len(message) > 0 {
		s.fail(fmt.Errorf("%s: %s", s.remote, shortMessage(string(message))))
		_ = s.Stream.Reset() // so that reads end
	}
}

// shortMessage is the part of the kubelet's message that is about the pod. If nothing listens on the port, the rest is
// about parts of the node.
func shortMessage(message string) string {
	if refused := "connection refused"; strings.Contains(message, refused) {
		return refused
	}
	return message
}

// fail keeps the first cause.
func (s *stream) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause == nil {
		s.cause = err
	}
}

// withCause replaces an error of the stream, which only says that it has ended, by the cause if that is known.
func (s *stream) withCause(err error) error {
	if err == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause != nil {
		return s.cause
	}
	return err
}

// errorWait is how long Read waits at the end of the data for an error of the kubelet, or for the news that there is
// none. The kubelet ends the data first (containerd: internal/cri/server/sandbox_portforward_linux.go), and may be
// busy.
const errorWait = time.Second

// Read reads from the pod.
func (s *stream) Read(p []byte) (int, error) {
	n, err := s.Stream.Read(p)
	if err != nil {
		select {
		case <-s.reported:
		case <-time.After(errorWait):
		}
	}
	return n, s.withCause(err)
}

// Write writes to the pod.
func (s *stream) Write(p []byte) (int, error) {
	n, err := s.Stream.Write(p)
	return n, s.withCause(err)
}

// Close closes the connection. It may be called more than once.
func (s *stream) Close() error {
	s.closed.Do(func() {
		_ = s.SetDeadline(time.Time{})
		_ = s.Stream.Reset() // both directions; it fails if the stream has ended already
		_ = s.errors.Reset()
		s.tunnel.RemoveStreams(s.Stream, s.errors)
		s.release()
	})
	return nil
}

// LocalAddr implements net.Conn.
func (s *stream) LocalAddr() net.Addr { return s.local }

// RemoteAddr is the pod and its port.
func (s *stream) RemoteAddr() net.Addr { return s.remote }

// SetDeadline implements net.Conn. A stream is unusable after its deadline has passed.
func (s *stream) SetDeadline(t time.Time) error {
	s.setTimer(0, t)
	s.setTimer(1, t)
	return nil
}

// SetReadDeadline implements net.Conn as SetDeadline does.
func (s *stream) SetReadDeadline(t time.Time) error { s.setTimer(0, t); return nil }

// SetWriteDeadline implements net.Conn as SetDeadline does.
func (s *stream) SetWriteDeadline(t time.Time) error { s.setTimer(1, t); return nil }

func (s *stream) setTimer(i int, t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timers[i] != nil {
		s.timers[i].Stop()
		s.timers[i] = nil
	}
	if !t.IsZero() {
		s.timers[i] = time.AfterFunc(time.Until(t), func() {
			s.fail(os.ErrDeadlineExceeded)
			_ = s.Stream.Reset()
		})
	}
}
