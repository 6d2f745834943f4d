package kube

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

// stream is a connection to a port of a pod: a pair of streams of a port-forward, one for data and one on which the node
// says what went wrong.
type stream struct {
	httpstream.Stream
	tunnel httpstream.Connection
	fault  httpstream.Stream
	local  addr
	remote addr
	closed sync.Once

	mu      sync.Mutex
	problem error // what the node said
	told    chan struct{}
	timers  [2]*time.Timer // of reads and of writes
}

// addr is one end of a stream.
type addr string

func (addr) Network() string  { return "portforward" }
func (a addr) String() string { return string(a) }

// openStream opens a pair of streams.
func openStream(tunnel httpstream.Connection, port int32, id int, pod string) (*stream, error) {
	fault, err := tunnel.CreateStream(portHeader(port, id, corev1.StreamTypeError))
	if err != nil {
		return nil, fmt.Errorf("open port-forward: %w", err)
	}
	_ = fault.Close() // nothing is written to it
	data, err := tunnel.CreateStream(portHeader(port, id, corev1.StreamTypeData))
	if err != nil {
		tunnel.RemoveStreams(fault)
		return nil, fmt.Errorf("open port-forward: %w", err)
	}
	s := &stream{
		Stream: data, tunnel: tunnel, fault: fault,
		local: "kcpctl", remote: addr(net.JoinHostPort(pod, strconv.Itoa(int(port)))), told: make(chan struct{}),
	}
	go s.listen()
	return s, nil
}

// listen waits for what the node says. It ends with the stream.
func (s *stream) listen() {
	defer close(s.told)
	message, err := io.ReadAll(io.LimitReader(s.fault, 4<<10))
	if err == nil && len(message) > 0 {
		s.fail(fmt.Errorf("%s: %s", s.remote, cause(string(message))))
		_ = s.Stream.Reset() // so that reads end
	}
}

// cause is the part of a node's message that is about the pod. Where nothing listens, the rest names parts of the node.
func cause(message string) string {
	if refused := "connection refused"; strings.Contains(message, refused) {
		return refused
	}
	return message
}

// fail remembers the first problem.
func (s *stream) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.problem == nil {
		s.problem = err
	}
}

// explained replaces an error, which only says that the stream has ended, by what is known of the reason.
func (s *stream) explained(err error) error {
	if err == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.problem != nil {
		return s.problem
	}
	return err
}

// Read reads from the pod. At the end it gives the node a moment to say whether something went wrong.
func (s *stream) Read(p []byte) (int, error) {
	n, err := s.Stream.Read(p)
	if err != nil {
		select {
		case <-s.told:
		case <-time.After(100 * time.Millisecond):
		}
	}
	return n, s.explained(err)
}

// Write writes to the pod.
func (s *stream) Write(p []byte) (int, error) {
	n, err := s.Stream.Write(p)
	return n, s.explained(err)
}

// Close ends the connection. It may be called again.
func (s *stream) Close() error {
	s.closed.Do(func() {
		_ = s.SetDeadline(time.Time{})
		_ = s.Stream.Reset() // both directions at once; an error says that it has ended before
		_ = s.fault.Reset()
		s.tunnel.RemoveStreams(s.Stream, s.fault)
	})
	return nil
}

// LocalAddr implements net.Conn.
func (s *stream) LocalAddr() net.Addr { return s.local }

// RemoteAddr is the pod and its port.
func (s *stream) RemoteAddr() net.Addr { return s.remote }

// SetDeadline implements net.Conn. A stream whose deadline has passed is of no more use.
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
