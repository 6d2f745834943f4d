package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kcpctl/kcpctl/internal/client/retry"
)

// maxStatus is how much of a refusal is read, in bytes.
const maxStatus = 64 << 10

// URL is the URL of a path of the API server.
func (c *Client) URL(path string, query url.Values) (*url.URL, error) {
	base, _, err := rest.DefaultServerUrlFor(c.Config)
	if err != nil {
		return nil, err
	}
	u := base.JoinPath(path)
	u.RawQuery = query.Encode()
	return u, nil
}

// PodPath is the path of a subresource of a pod.
func (c *Client) PodPath(pod, subresource string) string {
	return "/api/v1/namespaces/" + c.Namespace + "/pods/" + pod + "/" + subresource
}

// Do requests a path once. The caller closes the body. The error is the API server's.
func (c *Client) Do(
	ctx context.Context, path string, query url.Values, header map[string]string,
) (*http.Response, error) {
	u, err := c.URL(path, query)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	for k, v := range header {
		req.Header.Set(k, v)
	}
	resp, err := c.http.Do(req)
	if err != nil || resp.StatusCode == http.StatusOK {
		return resp, err
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxStatus)) // the status code is enough
	var status metav1.Status
	if json.Unmarshal(body, &status) == nil && status.Kind == "Status" {
		return nil, apierrors.FromObject(&status)
	}
	message := string(bytes.TrimSpace(body))
	return nil, apierrors.NewGenericServerResponse(
		resp.StatusCode, http.MethodGet, schema.GroupResource{}, path, message, 0, true)
}

// Stream requests a path once, and returns the body, which the caller closes. The error is the API server's.
func (c *Client) Stream(ctx context.Context, path string, query url.Values) (io.ReadCloser, error) {
	resp, err := c.Do(ctx, path, query, nil)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// Read requests a path with retries, and returns the body. The error is the API server's.
func (c *Client) Read(ctx context.Context, path string, header map[string]string) ([]byte, error) {
	return Retry(ctx, c, func() ([]byte, error) {
		return retry.WithTimeout(ctx, func(ctx context.Context) ([]byte, error) {
			resp, err := c.Do(ctx, path, nil, header)
			if err != nil {
				return nil, err
			}
			defer resp.Body.Close()
			return io.ReadAll(resp.Body)
		})
	})
}

// Retry calls f until it succeeds, as the requests of the dynamic client are retried.
func Retry[T any](ctx context.Context, c *Client, f func() (T, error)) (T, error) {
	return retry.Do(ctx, retry.Policy{Limit: retry.Limit, Retriable: retry.IsTransient, OnSlow: c.Dynamic.OnSlow}, f)
}
