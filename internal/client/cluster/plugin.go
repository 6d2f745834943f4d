package cluster

import (
	"context"
	"io"
	"net/http"
	"strings"

	"k8s.io/client-go/rest"
)

// logIn runs the credential plugin of the kubeconfig, if it has one, so that requests find the credentials. A plugin
// may wait for its user, in a browser: that time is not the API server's.
func (c *Client) logIn(ctx context.Context) error {
	if c.Config == nil || c.Config.ExecProvider == nil {
		return nil
	}
	rt, err := rest.HTTPWrappersForConfig(c.Config, nowhere{})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.Config.Host, nil)
	if err != nil {
		return err
	}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		return c.Explain(err, "connect to the cluster")
	}
	return resp.Body.Close()
}

// Plugin returns the command of the credential plugin of the kubeconfig, or "".
func (c *Client) Plugin() string {
	if c.Config == nil || c.Config.ExecProvider == nil {
		return ""
	}
	return c.Config.ExecProvider.Command
}

// nowhere answers requests itself.
type nowhere struct{}

// RoundTrip implements http.RoundTripper.
func (nowhere) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("")), Request: r}, nil
}

// renewing sends a request again, once, that the API server has not accepted: client-go runs the credential plugin
// then, and leaves the new credentials to the next request.
type renewing struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper. client-go adds the credentials to the request that it gets: a copy.
func (r renewing) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := r.RoundTripper.RoundTrip(copyOf(req))
	repeatable := req.Body == nil || req.GetBody != nil
	if err != nil || resp.StatusCode != http.StatusUnauthorized || !repeatable {
		return resp, err
	}
	_, _ = io.CopyN(io.Discard, resp.Body, maxStatus) // so that the connection can be used again
	_ = resp.Body.Close()
	return r.RoundTripper.RoundTrip(copyOf(req))
}

func copyOf(req *http.Request) *http.Request {
	out := req.Clone(req.Context())
	if req.GetBody != nil {
		if body, err := req.GetBody(); err == nil {
			out.Body = body
		}
	}
	return out
}
