package kcp

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"k8s.io/client-go/rest"
)

// Router is a transport for clients of several servers, each of which is reached as a Client reaches it. Requests name
// the servers by URLs at which only other processes may reach them, such as the URLs in an APIExportEndpointSlice.
type Router struct {
	// Default is for requests that no prefix matches.
	Default *Client
	// Prefixes are the clients for URLs that begin so. No prefix is the beginning of another one.
	Prefixes map[string]*Client
}

// RoundTrip sends a request to its server.
func (r *Router) RoundTrip(req *http.Request) (*http.Response, error) {
	to := r.Default
	for prefix, c := range r.Prefixes {
		if strings.HasPrefix(req.URL.String(), prefix) {
			to = c
		}
	}
	server, err := url.Parse(to.config.Host)
	if err != nil {
		return nil, fmt.Errorf("server %q: %w", to.config.Host, err)
	}
	next := req.Clone(req.Context())
	next.URL.Scheme = server.Scheme
	next.URL.Host = server.Host
	next.Host = ""
	return to.http().Transport.RoundTrip(next)
}

// Config returns the configuration of clients that send their requests through the router. Its host is the default
// server.
func (r *Router) Config() *rest.Config {
	return &rest.Config{Host: r.Default.config.Host, Transport: r, UserAgent: r.Default.config.UserAgent}
}
