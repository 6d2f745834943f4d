package kube

import (
	"context"
	"fmt"
	"slices"

	"github.com/kcpctl/kcpctl/internal/kube/cluster"
	"github.com/kcpctl/kcpctl/internal/parallel"
	"github.com/kcpctl/kcpctl/internal/plan"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// clusters are the clusters of a setup.
type clusters struct {
	// current are those of the topology, in its order. home is one of them.
	current []*cluster.Client
	home    *cluster.Client
	// previous are those that the setup has left.
	previous *previousClusters
}

// all are the current clusters and those previous ones that have been found.
func (c *clusters) all() []*cluster.Client {
	return slices.Concat(c.current, c.previous.get())
}

// others are all clusters but the home cluster.
func (c *clusters) others() []*cluster.Client {
	return slices.DeleteFunc(c.all(), func(cl *cluster.Client) bool { return cl == c.home })
}

// of returns the cluster that an object is on, connected.
func (c *clusters) of(ctx context.Context, ref plan.Ref) (*cluster.Client, error) {
	for _, cl := range c.all() {
		if cl.Name == ref.Cluster && (ref.Namespace == "" || ref.Namespace == cl.Namespace) {
			return cl, cl.Connect(ctx)
		}
	}
	return nil, fmt.Errorf("%s: the setup has no cluster %q with namespace %q", ref, ref.Cluster, ref.Namespace)
}

// ofComponent returns the cluster of a component, connected.
func (c *clusters) ofComponent(ctx context.Context, comp *topology.Component) (*cluster.Client, error) {
	return c.of(ctx, plan.Ref{Cluster: comp.Cluster.Name, Namespace: comp.Cluster.Namespace, Name: comp.Object()})
}

// connect connects to all current clusters.
func (c *clusters) connect(ctx context.Context) error {
	return c.each(ctx, func(context.Context, *cluster.Client) error { return nil })
}

// each calls do for all current clusters in parallel, connected.
func (c *clusters) each(ctx context.Context, do func(context.Context, *cluster.Client) error) error {
	return onEach(ctx, c.current, do)
}

// everywhere calls do for all current clusters, and for the previous ones that still have objects, in parallel,
// connected.
func (c *clusters) everywhere(ctx context.Context, do func(context.Context, *cluster.Client) error) error {
	if err := c.previous.find(ctx); err != nil {
		return err
	}
	return onEach(ctx, c.all(), do)
}

// everywhereElse calls do as everywhere does, but not for the home cluster.
func (c *clusters) everywhereElse(ctx context.Context, do func(context.Context, *cluster.Client) error) error {
	return c.everywhere(ctx, func(ctx context.Context, cl *cluster.Client) error {
		if cl == c.home {
			return nil
		}
		return do(ctx, cl)
	})
}

func onEach(
	ctx context.Context, all []*cluster.Client, do func(context.Context, *cluster.Client) error,
) error {
	return parallel.Each(ctx, all, func(ctx context.Context, cl *cluster.Client) error {
		if err := cl.Connect(ctx); err != nil {
			return err
		}
		return do(ctx, cl)
	})
}
