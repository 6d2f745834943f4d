//go:build integration

package faults

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

// contextName is the context of the kubeconfigs for the proxy.
const contextName = "faults"

// proxy is a proxy between kcpctl and the API server. It finds the place of a request by its token, and makes requests fail as
// the fault of the place says.
type proxy struct {
	server  *httptest.Server
	forward *httputil.ReverseProxy
	place   func(token string) *place // nil if no place has the token
}

// startProxy starts a proxy to the API server of a config, with the credentials of the config. It serves HTTP/2 as API servers do.
func startProxy(config *rest.Config, at func(token string) *place) (*proxy, error) {
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	p := &proxy{place: at}
	silent := log.New(io.Discard, "", 0) // connections are broken on purpose
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

func (p *proxy) stop() {
	p.server.CloseClientConnections()
	p.server.Close()
}

// open writes the kubeconfig of a place.
func (p *proxy) open(pl *place) (kubeconfig string, err error) {
	c := clientcmdapi.NewConfig()
	c.Clusters[contextName] = &clientcmdapi.Cluster{
		Server:                   p.server.URL,
		CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.server.Certificate().Raw}),
	}
	c.AuthInfos[contextName] = &clientcmdapi.AuthInfo{Token: pl.token}
	c.Contexts[contextName] = &clientcmdapi.Context{Cluster: contextName, AuthInfo: contextName}
	raw, err := clientcmd.Write(*c)
	if err != nil {
		return "", err
	}
	kubeconfig = filepath.Join(pl.dir, "kubeconfig")
	return kubeconfig, os.WriteFile(kubeconfig, raw, 0o600)
}

// ServeHTTP implements http.Handler.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	pl := p.place(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
	if pl == nil {
		http.Error(w, "unknown token", http.StatusUnauthorized)
		return
	}
	t := pl.under()
	if !t.add(r) {
		p.do(pl, w, r, nil)
		return
	}
	conn, _ := r.Context().Value(connKey{}).(net.Conn)
	k, x := t.fault.kind, &exchange{w: w, conn: conn, gone: r.Context().Done(), kill: t.kill}
	switch {
	case !k.executed || endless(r) && k.answers:
	case forwards(r):
		p.do(pl, w, r, func(c net.Conn) { x.conn = c; k.fail(x) }) // the connection is made, then it breaks
		return
	case !endless(r):
		p.do(pl, &nowhere{header: http.Header{}}, r, nil)
	}
	k.fail(x)
}

// do executes a request. made is called with the connection of a port-forward.
func (p *proxy) do(pl *place, w http.ResponseWriter, r *http.Request, made func(net.Conn)) {
	if forwards(r) {
		forward(pl, w, r, made)
		return
	}
	if r.URL.Path == "/api/v1/secrets" { // each place is a separate cluster: all setups have the same name
		r.URL.Path = "/api/v1/namespaces/" + pl.namespace + "/secrets"
	}
	p.forward.ServeHTTP(w, r)
}

// connKey is the context key of the connection of a request.
type connKey struct{}

// nowhere discards a response.
type nowhere struct{ header http.Header }

func (n *nowhere) Header() http.Header         { return n.header }
func (n *nowhere) Write(p []byte) (int, error) { return len(p), nil }
func (n *nowhere) WriteHeader(int)             {}
