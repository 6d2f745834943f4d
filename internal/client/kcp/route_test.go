package kcp

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each request goes to the server of its prefix, with the same path, whatever host it names.
func TestRouter(t *testing.T) {
	serve := func(name string) *Client {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write([]byte(name + " " + r.URL.String()))
		}))
		t.Cleanup(s.Close)
		return New(Options{URL: s.URL})
	}
	hc := &http.Client{Transport: &Router{Default: serve("proxy"), Prefixes: map[string]*Client{
		"https://kcp.example.com/a/services/apiexport": serve("a"), "https://kcp.example.com/b/services/apiexport": serve("b"),
	}}}
	for url, want := range map[string]string{
		"https://kcp.example.com/a/services/apiexport/x?watch=1": "a /a/services/apiexport/x?watch=1",
		"https://kcp.example.com/b/services/apiexport/y":         "b /b/services/apiexport/y",
		"https://other.example.com/clusters/root":                "proxy /clusters/root",
	} {
		resp, err := hc.Get(url)
		require.NoError(t, err)
		body := make([]byte, 200)
		n, _ := resp.Body.Read(body)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, want, string(body[:n]))
	}
}
