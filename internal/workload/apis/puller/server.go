package puller

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// maxDocument is the length of the longest document that is read, in bytes. The document of the core group has 1.5 MB.
const maxDocument = 64 << 20

// server is an API server.
type server struct {
	url  string
	http *http.Client
}

func newServer(cfg *rest.Config) (server, error) {
	base, _, err := rest.DefaultServerURL(cfg.Host, "", schema.GroupVersion{}, cfg.CAData != nil || cfg.CAFile != "")
	if err != nil {
		return server{}, fmt.Errorf("address of the API server: %w", err)
	}
	hc, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return server{}, fmt.Errorf("client for %s: %w", cfg.Host, err)
	}
	return server{strings.TrimRight(base.String(), "/"), hc}, nil
}

// statusError is an answer of the API server other than 200.
type statusError struct {
	url, message string
	code         int
}

func (e *statusError) Error() string {
	return fmt.Sprintf("read %s: %s (%d)", e.url, e.message, e.code)
}

// Status makes the functions of apierrors, such as IsForbidden, know the error.
func (e *statusError) Status() metav1.Status {
	return metav1.Status{Status: metav1.StatusFailure, Message: e.message, Code: int32(e.code)}
}

// get reads a JSON document.
func (s server) get(ctx context.Context, path string, out any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, nil)
	if err != nil {
		return fmt.Errorf("read %s%s: %w", s.url, path, err)
	}
	req.Header.Set("Accept", "application/json")
	resp, err := s.http.Do(req)
	if err != nil {
		return fmt.Errorf("read %s%s: %w", s.url, path, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument))
	switch {
	case err != nil:
		return fmt.Errorf("read %s%s: %w", s.url, path, err)
	case resp.StatusCode != http.StatusOK:
		var status metav1.Status
		if json.Unmarshal(body, &status) != nil || status.Message == "" {
			status.Message = http.StatusText(resp.StatusCode)
		}
		return &statusError{s.url + path, status.Message, resp.StatusCode}
	}
	if err := json.Unmarshal(body, out); err != nil {
		return fmt.Errorf("read %s%s: %w", s.url, path, err)
	}
	return nil
}

// index is the list of the OpenAPI v3 documents of an API server, by path such as apis/apps/v1.
type index struct {
	Paths map[string]struct {
		URL string `json:"serverRelativeURL"`
	} `json:"paths"`
}

func (s server) index(ctx context.Context) (index, error) {
	var all index
	return all, s.get(ctx, "/openapi/v3", &all)
}

func (i index) hash() string {
	urls := make([]string, 0, len(i.Paths))
	for _, d := range i.Paths {
		urls = append(urls, d.URL)
	}
	slices.Sort(urls)
	sum := sha256.Sum256([]byte(strings.Join(urls, "\n")))
	return hex.EncodeToString(sum[:8])
}

// definitions reads the schemas of a group version, by name.
func (s server) definitions(ctx context.Context, i index, gv schema.GroupVersion) (document, error) {
	d, ok := i.Paths[strings.TrimPrefix(groupPath(gv), "/")]
	if !ok {
		return nil, unusable("the cluster has no OpenAPI v3 document for %s", gv)
	}
	var read struct {
		Components struct {
			Schemas document `json:"schemas"`
		} `json:"components"`
	}
	err := s.get(ctx, d.URL, &read)
	return read.Components.Schemas, err
}
