package kcp

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// Router is a transport for clients of several servers, each of which is reached as a Client reaches it. Requests name the servers by URLs at
// which only other processes may reach them, such as those in an APIExportEndpointSlice.
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
	hc, err := to.http()
	if err != nil {
		return nil, fmt.Errorf("client for %s: %w", to.config.Host, err)
	}
	next := req.Clone(req.Context())
	next.URL.Scheme, next.URL.Host, next.Host = server.Scheme, server.Host, ""
	return hc.Transport.RoundTrip(next)
}

// URL returns the base URL of the server.
func (c *Client) URL() string { return c.config.Host }
