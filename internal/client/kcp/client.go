// Package kcp talks to a running kcp: its shards, workspaces and logical clusters.
package kcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
)

// Options are the server and the credentials of a Client.
type Options struct {
	// URL is the base URL of the server. The server's certificate is valid for its host.
	URL string
	// CA are the PEM certificates of the authorities that the server's certificate is verified with.
	CA []byte
	// Pair is the client certificate.
	Pair pki.Pair
	// Dial connects to the server instead of the URL's host. Nil dials the host.
	Dial func(ctx context.Context) (net.Conn, error)
	// OwnShards means that each shard owns its Shard object (see release.Features).
	OwnShards bool
}

// Client is a client for a shard or a front-proxy. It keeps one connection open.
type Client struct {
	config    *rest.Config
	http      func() *http.Client
	ownShards bool
}

// New returns a client. It does not connect.
func New(o Options) *Client {
	c := &rest.Config{
		Host:            strings.TrimRight(o.URL, "/"),
		TLSClientConfig: rest.TLSClientConfig{CAData: o.CA, CertData: o.Pair.Cert, KeyData: o.Pair.Key},
		UserAgent:       "kcpctl",
		QPS:             -1, // kcp has its own limits
	}
	if o.Dial != nil {
		c.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) { return o.Dial(ctx) }
		// Dial connects to the server itself: the proxy settings of the environment do not apply.
		c.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
	}
	return &Client{c, sync.OnceValue(func() *http.Client { return httpClient(c) }), o.OwnShards}
}

// httpClient returns a client for a server. Its requests fail if the configuration is invalid, such as with a
// certificate and a key that do not belong together.
func httpClient(c *rest.Config) *http.Client {
	hc, err := rest.HTTPClientFor(c)
	if err != nil {
		return failing(c, err)
	}
	return hc
}

// dynamicClient returns a client for an API server. Its requests fail if the URL is invalid.
func dynamicClient(c *rest.Config, hc *http.Client) dynamic.Interface {
	d, err := dynamic.NewForConfigAndClient(c, hc)
	if err != nil {
		d, _ = dynamic.NewForConfigAndClient(&rest.Config{}, failing(c, err)) // an empty configuration is valid
	}
	return d
}

// failing returns a client whose requests fail because of an invalid configuration.
func failing(c *rest.Config, err error) *http.Client {
	return &http.Client{Transport: failure{fmt.Errorf("client for %s: %w", c.Host, err)}}
}

// failure is a transport whose requests fail.
type failure struct{ error }

// RoundTrip implements http.RoundTripper.
func (f failure) RoundTrip(*http.Request) (*http.Response, error) { return nil, f.error }

// The resources of kcp that kcpctl uses.
var (
	shardResource          = kcpapi.Shard.GVR()
	logicalClusterResource = kcpapi.LogicalCluster.GVR()
	workspaceResource      = kcpapi.Workspace.GVR()
	exportResource         = kcpapi.APIExport.GroupResource().WithVersion("v1alpha1") // which every release serves
)

// RootWorkspace is the path of the workspace above all others, which holds the Shard objects.
const RootWorkspace = "root"

// workspace returns a client for the workspace at a path.
func (c *Client) workspace(path string) dynamic.Interface { return c.at("/clusters/" + path) }

// list returns the objects of a resource in a workspace. what names them in errors.
func (c *Client) list(
	ctx context.Context, path string, r schema.GroupVersionResource, what string,
) ([]unstructured.Unstructured, error) {
	list, err := c.workspace(path).Resource(r).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", what, err)
	}
	return list.Items, nil
}

// at returns a client for the API server at a path of the client's server.
func (c *Client) at(path string) dynamic.Interface {
	cfg := rest.CopyConfig(c.config)
	cfg.Host += path
	named := *c.http()
	named.Transport = namesAPI{named.Transport}
	return dynamicClient(cfg, &named)
}

// request sends a request to a path of the server. The caller closes the body of the answer.
func (c *Client) request(
	ctx context.Context, method, path string, header http.Header, body io.Reader,
) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.config.Host+path, body)
	if err != nil {
		return nil, err
	}
	maps.Copy(req.Header, header)
	return c.http().Do(req)
}

// maxAnswer is how much of an answer is read, in bytes.
const maxAnswer = 64 << 10

// FailedChecks are the parts of a server that are not ready.
type FailedChecks []string

func (f FailedChecks) Error() string {
	return fmt.Sprintf("/readyz: %s not ready", strings.Join(f, ", "))
}

// Ready requests /readyz. The error is FailedChecks if the server names any.
func (c *Client) Ready(ctx context.Context) error {
	resp, err := c.request(ctx, http.MethodGet, "/readyz?verbose", nil, nil)
	if err != nil {
		return unanswered(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	switch {
	case err != nil:
		return unanswered(err)
	case resp.StatusCode == http.StatusOK:
		return nil
	}
	if failed := failedChecks(string(body)); len(failed) > 0 {
		return FailedChecks(failed)
	}
	return fmt.Errorf("/readyz: %s", resp.Status)
}

// slow is the error of a server that did not answer in time.
type slow struct{ error }

func (e slow) Error() string { return "/readyz does not answer yet" }
func (e slow) Unwrap() error { return e.error }

// unanswered is the error of a request for /readyz that got no answer.
func unanswered(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return slow{err}
	}
	return fmt.Errorf("/readyz: %w", err)
}

// failedChecks returns the names of the failed checks in a verbose answer: [-]etcd failed: reason withheld.
func failedChecks(answer string) []string {
	var failed []string
	for line := range strings.Lines(answer) {
		if name, ok := strings.CutPrefix(line, "[-]"); ok {
			name, _, _ = strings.Cut(name, " ")
			failed = append(failed, name)
		}
	}
	return failed
}

// Answer is the answer of a server to a request that tests access.
type Answer struct {
	Code int
	// Message is the beginning of the body, or all of it.
	Message string
}

// anonymous is the user of requests that are not authenticated.
const anonymous = "system:anonymous"

// KnowsClient reports whether the server has authenticated the client, whatever it is allowed to do.
func (a Answer) KnowsClient() bool {
	return a.Code != http.StatusUnauthorized &&
		(a.Code != http.StatusForbidden || !strings.Contains(a.Message, anonymous))
}

// Get requests a path of the server.
func (c *Client) Get(ctx context.Context, path string, header http.Header) (Answer, error) {
	resp, err := c.request(ctx, http.MethodGet, path, header, nil)
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	return Answer{resp.StatusCode, string(body)}, err
}

// Open requests a path of the server, and returns the body of the answer, which the caller closes.
func (c *Client) Open(ctx context.Context, path string) (io.ReadCloser, error) {
	resp, err := c.request(ctx, http.MethodGet, path, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, fmt.Errorf("%s: HTTP status %s", path, resp.Status)
	}
	return resp.Body, nil
}

// Close closes the connections of the client. It can be used again.
func (c *Client) Close() {
	// http.Client's method does nothing: client-go wraps the transport.
	utilnet.CloseIdleConnectionsFor(c.http().Transport)
}
