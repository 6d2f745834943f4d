// Package physical is a client for a cluster of spec.workloads. It reads and writes objects with the user's kubeconfig, and issues the
// credential of the cluster's syncer, so that the kubeconfig of the user is not stored.
package physical

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/kcp"
	"github.com/kcpctl/kcpctl/internal/kube/cluster"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// Client is a client for a physical cluster. Errors of the API server are returned as they are, for their reasons.
type Client struct {
	cluster *cluster.Client
	// server is the URL at which others reach the API server. Empty: that of the kubeconfig.
	server string
	now    func() time.Time
}

// New finds a physical cluster as kubectl does. It sends no request.
func New(c v1alpha1.WorkloadCluster, o cluster.Options) (*Client, error) {
	cl, err := cluster.New(topology.Cluster{Name: c.Name, Context: c.Context, Kubeconfig: c.Kubeconfig}, o)
	if err != nil {
		return nil, clierr.New(clierr.Failed, "correct the context and the kubeconfig of the cluster in spec.workloads.clusters", "%w", err)
	}
	return &Client{cluster: cl, server: c.Server, now: o.Now}, nil
}

// Object returns an object, or nil if it does not exist.
func (c *Client) Object(ctx context.Context, p kcp.Place) (*unstructured.Unstructured, error) {
	o, err := c.resource(p).Get(ctx, p.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return o, c.in(err)
}

// ApplyObject applies an object by server-side apply, and returns the result. With dryRun nothing is written. With force it takes over
// fields that other managers own.
func (c *Client) ApplyObject(ctx context.Context, p kcp.Place, o *unstructured.Unstructured, dryRun, force bool) (*unstructured.Unstructured, error) {
	options := metav1.ApplyOptions{FieldManager: kcp.FieldManager, Force: force}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	out, err := c.resource(p).Apply(ctx, p.Name, o, options)
	return out, c.in(err)
}

// DeleteObject deletes an object if it is still the one that was seen: it has the same UID and resourceVersion.
func (c *Client) DeleteObject(ctx context.Context, p kcp.Place, seen *unstructured.Unstructured) error {
	uid, version, background := seen.GetUID(), seen.GetResourceVersion(), metav1.DeletePropagationBackground
	return c.in(c.resource(p).Delete(ctx, p.Name, metav1.DeleteOptions{
		PropagationPolicy: &background, Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version},
	}))
}

// resource returns a client for the resource of an object. The kinds on physical cluster have regular plurals.
func (c *Client) resource(p kcp.Place) dynamic.ResourceInterface {
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
