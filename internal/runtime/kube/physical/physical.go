// Package physical is a client for a cluster that is not one of the setup: a cluster of spec.workloads, or the one
// whose APIs an agent on this machine publishes. It reads and writes objects with the user's kubeconfig, and issues the
// credential of the syncer or the agent, so that the kubeconfig of the user is not stored.
package physical

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/kcpctl/kcpctl/internal/client/cluster"
	"github.com/kcpctl/kcpctl/internal/client/object"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// Client is a client for a physical cluster. Errors of the API server are returned as they are, for their reasons.
type Client struct {
	cluster *cluster.Client
	// server is the URL at which others reach the API server. Empty: the URL in the kubeconfig.
	server string
	now    func() time.Time
}

// New finds a cluster as kubectl does. server is the URL at which others reach its API server; empty: the URL in the
// kubeconfig. It sends no request.
func New(c topology.Cluster, server string, o cluster.Options) (*Client, error) {
	cl, err := cluster.New(c, o)
	if err != nil {
		return nil, clierr.New(clierr.Failed,
			"correct the context and the kubeconfig of the cluster in the setup file", "%w", err)
	}
	return &Client{cluster: cl, server: server, now: o.Now}, nil
}

// Cluster returns the client for the API server.
func (c *Client) Cluster() *cluster.Client { return c.cluster }

// Object returns an object, or nil if it does not exist.
func (c *Client) Object(ctx context.Context, p plan.Ref) (*unstructured.Unstructured, error) {
	if err := c.connect(ctx); err != nil {
		return nil, err
	}
	o, err := c.resource(p).Get(ctx, p.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return o, c.in(err)
}

// Objects lists the objects of a kind in a namespace, with a selector for labels.
func (c *Client) Objects(ctx context.Context, p plan.Ref, selector string) ([]unstructured.Unstructured, error) {
	if err := c.connect(ctx); err != nil {
		return nil, err
	}
	list, err := c.resource(p).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if apierrors.IsNotFound(err) { // the API is not served
		return nil, nil
	}
	if err != nil {
		return nil, c.in(err)
	}
	return list.Items, nil
}

// DeleteNamespace deletes a namespace if it is empty. Otherwise it returns an object that is in it. It does not wait
// until the namespace is gone.
func (c *Client) DeleteNamespace(ctx context.Context, seen *unstructured.Unstructured) (rest string, err error) {
	contents, err := c.cluster.Contents(ctx, seen.GetName())
	if err != nil || len(contents) > 0 {
		return slices.Concat(contents, []string{""})[0], err
	}
	at := plan.RefOf("", seen)
	return "", c.in(object.DeleteUnchanged(ctx, c.resource(at), seen, at))
}

// ApplyObject applies an object by server-side apply, and returns the result. With dryRun nothing is written. With
// force it takes over fields that other managers own.
func (c *Client) ApplyObject(ctx context.Context, p plan.Ref, o *unstructured.Unstructured,
	dryRun, force bool) (*unstructured.Unstructured, error) {
	if err := c.connect(ctx); err != nil {
		return nil, err
	}
	out, err := object.Apply(ctx, c.resource(p), o, object.ApplyOptions{DryRun: dryRun, Force: force})
	return out, c.in(err)
}

// DeleteObject deletes an object if it is still the one that was seen: see object.Delete.
func (c *Client) DeleteObject(ctx context.Context, p plan.Ref, seen *unstructured.Unstructured) error {
	if err := c.connect(ctx); err != nil {
		return err
	}
	return c.in(object.Delete(ctx, c.resource(p), seen, plan.RefIn(p.Workspace, seen)))
}

// connect makes sure, once, that the API server answers: requests to one that does not are repeated for long.
func (c *Client) connect(ctx context.Context) error { return c.cluster.Connect(ctx) }

// resource returns a client for the resource of an object. The kinds on physical cluster have regular plurals.
func (c *Client) resource(p plan.Ref) dynamic.ResourceInterface {
	r, _ := meta.UnsafeGuessKindToResource(p.GroupVersionKind)
	return c.cluster.Dynamic.Resource(r).Namespace(p.Namespace)
}

// in names the cluster in an error.
func (c *Client) in(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("cluster %s (context %s): %w", c.cluster.Name, c.cluster.KubeContext, err)
}
