// Package kcp talks to a running kcp: its shards, workspaces and logical clusters.
package kcp

import (
	"context"
	"fmt"
	"net"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kcpctl/kcpctl/internal/pki"
)

// Options say which server to talk to and as whom.
type Options struct {
	// URL is the server's base URL, whose host its certificate carries.
	URL string
	// CA are the PEM certificates that the server's certificate verifies against.
	CA []byte
	// Pair is the client certificate.
	Pair pki.Pair
	// Dial connects to the server, wherever the URL's host would lead. Nil dials the host.
	Dial func(ctx context.Context) (net.Conn, error)
}

// Client talks to a shard or a front-proxy.
type Client struct{ config *rest.Config }

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
	}
	return &Client{config: c}
}

// The resources of kcp that kcpctl uses.
var (
	shardResource          = schema.GroupVersionResource{Group: "core.kcp.io", Version: "v1alpha1", Resource: "shards"}
	logicalClusterResource = schema.GroupVersionResource{Group: "core.kcp.io", Version: "v1alpha1", Resource: "logicalclusters"}
	workspaceResource      = schema.GroupVersionResource{Group: "tenancy.kcp.io", Version: "v1alpha1", Resource: "workspaces"}
	bindingResource        = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"}
)

// RootWorkspace is the path of the workspace that all others are under, and that holds the Shard objects.
const RootWorkspace = "root"

// workspace returns a client for the workspace at a path.
func (c *Client) workspace(path string) (dynamic.Interface, error) {
	cfg := rest.CopyConfig(c.config)
	cfg.Host += "/clusters/" + path
	d, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("client for workspace %s: %w", path, err)
	}
	return d, nil
}

// Ready asks the server's /readyz. The error names the checks that failed.
func (c *Client) Ready(ctx context.Context) error {
	cfg := rest.CopyConfig(c.config)
	cfg.APIPath, cfg.GroupVersion = "/", &schema.GroupVersion{}
	cfg.NegotiatedSerializer = plainSerializer()
	rc, err := rest.UnversionedRESTClientFor(cfg)
	if err != nil {
		return fmt.Errorf("client for %s: %w", c.config.Host, err)
	}
	body, err := rc.Get().AbsPath("/readyz").Param("verbose", "").DoRaw(ctx)
	if err == nil {
		return nil
	}
	var failed []string
	for line := range strings.Lines(string(body)) {
		if name, ok := strings.CutPrefix(line, "[-]"); ok {
			name, _, _ = strings.Cut(name, " ")
			failed = append(failed, name)
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("/readyz: %s not ready", strings.Join(failed, ", "))
	}
	return fmt.Errorf("/readyz: %w", err)
}
