package kcp

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// Answer is what a server says to a request that looks whether it lets the client in.
type Answer struct {
	Code int
	// Message is the body, or the beginning of it.
	Message string
}

// anonymous is the user of requests that no authenticator knows.
const anonymous = "system:anonymous"

// KnowsClient tells whether the server has recognised who asked, whatever it let them do.
func (a Answer) KnowsClient() bool {
	return a.Code != http.StatusUnauthorized && (a.Code != http.StatusForbidden || !strings.Contains(a.Message, anonymous))
}

// Get requests a path of the server.
func (c *Client) Get(ctx context.Context, path string, header http.Header) (Answer, error) {
	hc, err := c.http()
	if err != nil {
		return Answer{}, fmt.Errorf("client for %s: %w", c.config.Host, err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.config.Host+path, nil)
	if err != nil {
		return Answer{}, err
	}
	for k, v := range header {
		req.Header[k] = v
	}
	resp, err := hc.Do(req)
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	return Answer{resp.StatusCode, string(body)}, err
}

// Close ends the connections of the client.
func (c *Client) Close() {
	if hc, err := c.http(); err == nil {
		hc.CloseIdleConnections()
	}
}
