package kube

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
)

// url is the address of a path of the API server.
func (s *site) url(path string, query url.Values) (*url.URL, error) {
	base, _, err := rest.DefaultServerUrlFor(s.config)
	if err != nil {
		return nil, err
	}
	u := base.JoinPath(path)
	u.RawQuery = query.Encode()
	return u, nil
}

// open requests a path as a stream, which the caller closes. The error is the API server's.
func (s *site) open(ctx context.Context, path string, query url.Values, header map[string]string) (io.ReadCloser, error) {
	resp, err := s.ask(ctx, path, query, header)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// ask requests a path once. The caller closes the body of the answer.
func (s *site) ask(ctx context.Context, path string, query url.Values, header map[string]string) (*http.Response, error) {
	u, err := s.url(path, query)
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
	resp, err := s.http.Do(req)
	if err != nil || resp.StatusCode == http.StatusOK {
		return resp, err
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10)) // the status code says enough
	var status metav1.Status
	if json.Unmarshal(body, &status) == nil && status.Kind == "Status" {
		return nil, apierrors.FromObject(&status)
	}
	said := string(bytes.TrimSpace(body))
	return nil, apierrors.NewGenericServerResponse(resp.StatusCode, http.MethodGet, schema.GroupResource{}, path, said, 0, true)
}

// raw requests a path.
func (s *site) raw(ctx context.Context, path string, header map[string]string) ([]byte, error) {
	return again(ctx, retry{persistence, isTransient, s.trouble}, func() ([]byte, error) {
		return inTime(ctx, func(ctx context.Context) ([]byte, error) {
			stream, err := s.open(ctx, path, nil, header)
			if err != nil {
				return nil, err
			}
			defer stream.Close()
			return io.ReadAll(stream)
		})
	})
}
