package standin

import (
	"context"
	"encoding/pem"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Context is the context of the kubeconfigs for a proxy.
const Context = "stand-in"

// Proxy is a proxy between kcpctl and an API server. It finds the site of a request by its token, and answers
// port-forwards as the kubelet of the site. Each site looks like a cluster of its own.
type Proxy struct {
	cluster *Cluster
	server  *httptest.Server
	forward *httputil.ReverseProxy
	handle  Handler
}

// Handler handles a request of kcpctl. It calls Proxy.Do to execute the request.
type Handler func(p *Proxy, s *Site, w http.ResponseWriter, r *http.Request)

// Proxy starts a proxy to the API server, with the rights of Admin. It serves HTTP/2 as API servers do.
func (c *Cluster) Proxy(handle Handler) (*Proxy, error) {
	transport, err := rest.TransportFor(c.Config)
	if err != nil {
		return nil, err
	}
	target, err := url.Parse(c.Config.Host)
	if err != nil {
		return nil, err
	}
	p := &Proxy{cluster: c, handle: handle}
	silent := log.New(io.Discard, "", 0) // tests break connections
	p.forward = &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1, ErrorLog: silent,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Header.Del("Authorization")
		},
	}
	p.server = httptest.NewUnstartedServer(p)
	p.server.EnableHTTP2 = true
	p.server.Config.ErrorLog = silent
	p.server.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, c)
	}
	p.server.StartTLS()
	return p, nil
}

// Stop ends all connections.
func (p *Proxy) Stop() {
	p.server.CloseClientConnections()
	p.server.Close()
}

// Kubeconfig writes the kubeconfig of a site to a directory, and returns its path.
func (p *Proxy) Kubeconfig(s *Site, dir string) (string, error) {
	c := clientcmdapi.NewConfig()
	c.Clusters[Context] = &clientcmdapi.Cluster{
		Server:                   p.server.URL,
		CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.server.Certificate().Raw}),
	}
	c.AuthInfos[Context] = &clientcmdapi.AuthInfo{Token: s.token}
	c.Contexts[Context] = &clientcmdapi.Context{Cluster: Context, AuthInfo: Context}
	c.CurrentContext = Context
	raw, err := clientcmd.Write(*c)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "kubeconfig")
	return path, os.WriteFile(path, raw, 0o600)
}

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s := p.cluster.with(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
	if s == nil {
		http.Error(w, "unknown token", http.StatusUnauthorized)
		return
	}
	p.handle(p, s, w, r)
}

// Do executes a request. If made is not nil, it is called with the connection of a port-forward, on which nothing is
// served then.
func (p *Proxy) Do(s *Site, w http.ResponseWriter, r *http.Request, made func(net.Conn)) {
	if Forwards(r) {
		s.forward(w, r, made)
		return
	}
	if r.URL.Path == "/api/v1/secrets" { // all setups of a test have the same name
		r.URL.Path = "/api/v1/namespaces/" + s.Namespace + "/secrets"
	}
	p.forward.ServeHTTP(w, r)
}

// Conn returns the connection of a request.
func Conn(r *http.Request) net.Conn {
	conn, _ := r.Context().Value(connKey{}).(net.Conn)
	return conn
}

// connKey is the context key of the connection of a request.
type connKey struct{}
