package framework

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Names is an HTTP proxy that stands for the DNS of clients: the names of a setup do not exist on this machine.
type Names struct {
	*httptest.Server
	mu sync.Mutex
	// at are addresses by host and port.
	at map[string]string
}

func StartNames(t *testing.T) *Names {
	t.Helper()
	n := &Names{at: map[string]string{}}
	n.Server = httptest.NewServer(http.HandlerFunc(n.Connect))
	t.Cleanup(n.Close)
	return n
}

// Set lets a host and port lead to an address.
func (n *Names) Set(name, address string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.at[name] = address
}

func (n *Names) Address(t *testing.T) *url.URL {
	t.Helper()
	u, err := url.Parse(n.URL)
	require.NoError(t, err)
	return u
}

// Environment are the variables with which kubectl uses the proxy. Clusters are reached at IP addresses, without it.
func (n *Names) Environment() []string {
	return []string{"HTTPS_PROXY=" + n.URL, "NO_PROXY=127.0.0.0/8,10.0.0.0/8"}
}

// Connect is the method CONNECT.
func (n *Names) Connect(w http.ResponseWriter, r *http.Request) {
	n.mu.Lock()
	address, ok := n.at[r.Host]
	n.mu.Unlock()
	if r.Method != http.MethodConnect || !ok {
		http.Error(w, "no such host: "+r.Host, http.StatusBadGateway)
		return
	}
	server, err := (&net.Dialer{}).DialContext(r.Context(), "tcp", address)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer server.Close()
	client, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer client.Close()
	if _, err := fmt.Fprint(client, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		return
	}
	go func() {
		defer server.Close()
		_, _ = io.Copy(server, buffered) // until one end closes
	}()
	_, _ = io.Copy(client, server)
}
