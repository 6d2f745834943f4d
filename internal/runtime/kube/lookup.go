package kube

import (
	"context"

	"github.com/kcpctl/kcpctl/internal/client/cluster"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// Lookup returns how a cluster serves a kind, without a setup that runs there. It fails if the cluster does not serve
// it.
func Lookup(ctx context.Context, c topology.Cluster, o Options, group, kind string) (*cluster.ServedKind, error) {
	cl, err := cluster.New(c, o.single())
	if err != nil {
		return nil, err
	}
	return cl.Lookup(ctx, group, kind)
}
