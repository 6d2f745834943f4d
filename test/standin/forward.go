package standin

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path"
	"strings"
	"sync"

	"github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/apimachinery/pkg/util/httpstream/spdy"
	"k8s.io/client-go/tools/portforward"
)

// protocol is SPDY over a web socket, which kubectl and kcpctl request first.
const protocol = "SPDY/3.1+" + portforward.PortForwardProtocolV1Name

// Forwards reports whether a request is for a port-forward.
func Forwards(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/portforward") }

// forward answers a request for a port-forward as an API server and a kubelet do: over a web socket, or plain SPDY. If
// made is not nil, it is called with the new connection, and nothing is served on it.
func (s *Site) forward(w http.ResponseWriter, r *http.Request, made func(net.Conn)) {
	pod := path.Base(path.Dir(r.URL.Path))
	st := &streams{ctx: r.Context(), dial: func(ctx context.Context) (net.Conn, error) { return s.dial(ctx, pod) }}
	conn, err := st.upgrade(w, r, made)
	if err != nil || conn == nil {
		return // the response is sent
	}
	defer conn.Close()
	select {
	case <-conn.CloseChan():
	case <-r.Context().Done():
	}
}

// streams has the pairs of streams of a connection.
type streams struct {
	ctx  context.Context
	dial func(context.Context) (net.Conn, error)

	mu     sync.Mutex
	faults map[string]httpstream.Stream // by the ID of their pair
}

func (s *streams) upgrade(w http.ResponseWriter, r *http.Request, made func(net.Conn)) (httpstream.Connection, error) {
	if !websocket.IsWebSocketUpgrade(r) {
		if _, err := httpstream.Handshake(r, w, []string{portforward.PortForwardProtocolV1Name}); err != nil {
			return nil, err
		}
		return spdy.NewResponseUpgrader().UpgradeResponse(w, r, s.accept), nil
	}
	u := websocket.Upgrader{Subprotocols: []string{protocol}, CheckOrigin: func(*http.Request) bool { return true }}
	socket, err := u.Upgrade(w, r, nil)
	if err != nil {
		return nil, err
	}
	if made != nil {
		made(socket.NetConn())
		return nil, nil
	}
	return spdy.NewServerConnection(portforward.NewTunnelingConnection("stand-in", socket), s.accept)
}

// accept accepts a stream. The error stream comes before the data stream.
func (s *streams) accept(stream httpstream.Stream, replied <-chan struct{}) error {
	id := stream.Headers().Get(corev1.PortForwardRequestIDHeader)
	s.mu.Lock()
	defer s.mu.Unlock()
	if stream.Headers().Get(corev1.StreamType) == corev1.StreamTypeError {
		if s.faults == nil {
			s.faults = map[string]httpstream.Stream{}
		}
		s.faults[id] = stream
		return nil
	}
	fault := s.faults[id]
	if fault == nil {
		return fmt.Errorf("no error stream for %s", id)
	}
	delete(s.faults, id)
	go func() {
		<-replied
		s.pipe(stream, fault)
	}()
	return nil
}

// pipe connects a stream to the port of the pod.
func (s *streams) pipe(data, fault httpstream.Stream) {
	defer fault.Close()
	defer data.Reset()
	conn, err := s.dial(s.ctx)
	if err != nil {
		_, _ = io.WriteString(fault, err.Error())
		return
	}
	done := make(chan struct{})
	go func() {
		_, _ = io.Copy(conn, data)
		_ = conn.Close()
		close(done)
	}()
	_, _ = io.Copy(data, conn)
	_ = conn.Close()
	_ = data.Close()
	<-done
}
