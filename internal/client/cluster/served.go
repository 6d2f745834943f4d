package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// Serves reports whether the API server serves a kind. It asks once for each optional kind.
func (c *Client) Serves(ctx context.Context, k kind.Kind) (bool, error) {
	version, err := c.servedVersion(ctx, k)
	return version != "", err
}

// servedVersion returns the version in which the API server serves a kind: the newest one that is known. It is empty if
// there is none.
func (c *Client) servedVersion(ctx context.Context, k kind.Kind) (string, error) {
	if !k.Negotiated() {
		return k.Version, nil
	}
	if version, ok := c.versions.Load(k.GVR()); ok {
		return version.(string), nil
	}
	for _, version := range append([]string{k.Version}, k.Older...) {
		has, err := c.hasResource(ctx, k, version)
		if err != nil {
			return "", err
		}
		if has {
			c.versions.Store(k.GVR(), version)
			return version, nil
		}
	}
	c.versions.Store(k.GVR(), "")
	return "", nil
}

// hasResource reports whether the API server serves a version of a kind. Every user may ask.
func (c *Client) hasResource(ctx context.Context, k kind.Kind, version string) (bool, error) {
	body, err := c.Read(ctx, "/apis/"+k.Group+"/"+version, nil)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, c.Explain(err, "ask for the API %s/%s", k.Group, version)
	}
	var all metav1.APIResourceList
	if err := json.Unmarshal(body, &all); err != nil {
		return false, fmt.Errorf("read the API %s/%s (%s): %w", k.Group, version, c.Where(), err)
	}
	return slices.ContainsFunc(all.APIResources, func(r metav1.APIResource) bool { return r.Name == k.Resource }), nil
}

// AwaitServed waits until the API server serves a kind whose CustomResourceDefinition was just applied.
func (c *Client) AwaitServed(ctx context.Context, k kind.Kind) error {
	return c.WaitFor(ctx, func() (string, error) {
		c.versions.Delete(k.GVR())
		served, err := c.Serves(ctx, k)
		if served {
			return "", err
		}
		return k.Definition + " is not served yet", err
	})
}

// NotServed is the error for objects of a kind that the API server does not serve.
func (c *Client) NotServed(k kind.Kind) error {
	hint := "choose another type for expose"
	switch k.Group {
	case kind.TLSRoute.Group:
		hint = "install the Gateway API with a controller that supports TLSRoute, or " + hint
	case kind.GroupMonitoring:
		hint = "install the Prometheus operator, or remove prometheusOperator from spec.monitoring"
	}
	return clierr.New(clierr.Failed, hint, "the API server does not serve %s.%s (%s)", k.Resource, k.Group, c.Where())
}
