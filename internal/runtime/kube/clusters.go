package kube

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/kcpctl/kcpctl/internal/client/cluster"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
)

// clusters are the clusters of a setup.
type clusters struct {
	// current are the clusters of the topology, in its order. home is one of them.
	current []*cluster.Client
	home    *cluster.Client
	// left are the current clusters that are left out of a run; nil: none.
	left atomic.Pointer[[]plan.Unreachable]
	// previous are the clusters that the setup has left.
	previous *previousClusters
}

// all are the current clusters that are not left out, and those previous ones that have been found.
func (c *clusters) all() []*cluster.Client {
	return slices.Concat(c.used(), c.previous.get())
}

// used are the current clusters that are not left out.
func (c *clusters) used() []*cluster.Client {
	return slices.DeleteFunc(slices.Clone(c.current),
		func(cl *cluster.Client) bool { return c.leftOut(cl.Name) != nil })
}

// leftOut returns why a cluster is left out; nil if it is not.
func (c *clusters) leftOut(name string) error {
	u, _ := plan.UnreachableIn(c.allLeftOut(), name)
	return u.Err
}

func (c *clusters) allLeftOut() []plan.Unreachable {
	if left := c.left.Load(); left != nil {
		return *left
	}
	return nil
}

// unreachable sends a request to all current clusters, and returns the clusters that do not answer.
func (c *clusters) unreachable(ctx context.Context) []plan.Unreachable {
	errs := parallel.Map(len(c.current), c.current, func(cl *cluster.Client) error { return cl.Check(ctx) })
	var out []plan.Unreachable
	for i, err := range errs {
		if err != nil {
			out = append(out, plan.Unreachable{Cluster: c.current[i].Name, Err: err})
		}
	}
	return out
}

// others are all clusters but the home cluster.
func (c *clusters) others() []*cluster.Client {
	return slices.DeleteFunc(c.all(), func(cl *cluster.Client) bool { return cl == c.home })
}

// of returns the cluster that an object is on, connected.
func (c *clusters) of(ctx context.Context, ref plan.Ref) (*cluster.Client, error) {
	if err := c.leftOut(ref.Cluster); err != nil {
		return nil, err
	}
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

// connect connects to all current clusters that are not left out.
func (c *clusters) connect(ctx context.Context) error {
	return c.each(ctx, func(context.Context, *cluster.Client) error { return nil })
}

// each calls do for all current clusters that are not left out, in parallel, connected.
func (c *clusters) each(ctx context.Context, do func(context.Context, *cluster.Client) error) error {
	return c.onEach(ctx, c.used(), do)
}

// everywhere calls do for all current clusters that are not left out, and for the previous ones that still have
// objects, in parallel, connected.
func (c *clusters) everywhere(ctx context.Context, do func(context.Context, *cluster.Client) error) error {
	if err := c.previous.find(ctx); err != nil {
		return err
	}
	return c.onEach(ctx, c.all(), do)
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

func (c *clusters) onEach(
	ctx context.Context, all []*cluster.Client, do func(context.Context, *cluster.Client) error,
) error {
	return parallel.Each(ctx, all, func(ctx context.Context, cl *cluster.Client) error {
		err := cl.Connect(ctx)
		if err == nil {
			return do(ctx, cl)
		}
		if len(c.current) > 1 {
			err = &clierr.Error{Err: fmt.Errorf("cluster %s: %w", cl.Name, err), Code: clierr.Code(err),
				Hint: clierr.Hint(err)}
		}
		return err
	})
}
