package shards

import (
	"context"
	"fmt"
	"slices"

	"github.com/kcpctl/kcpctl/internal/api/risk"
	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
)

// leaveOut excludes the clusters that cannot be reached. The consequences for the removal are decided once the record
// is read.
func (r *RemoveShards) leaveOut(ctx context.Context) error {
	r.left = r.Runtime.Unreachable(ctx)
	if home, lost := plan.UnreachableIn(r.left, r.Topology.Home.Name); lost {
		return home.Err
	}
	r.Runtime.LeaveOut(r.left)
	return nil
}

// checkLeftOut fails if a cluster is left out that the removal needs: one with a shard that is kept, or with the cache.
// Entries and endpoints of the removed shards would remain there.
func (r *RemoveShards) checkLeftOut(all []*removal) error {
	for _, l := range r.left {
		var there []topology.ID
		for _, c := range r.Topology.Components {
			stays := c.IsShard() && !slices.Contains(r.Names, c.ShardName()) || c == r.Topology.CacheHolder()
			if c.Cluster.Name == l.Cluster && stays {
				there = append(there, c.ID())
			}
		}
		if len(there) == 0 {
			continue
		}
		err := clierr.New(clierr.Failed, "", "cluster %s, with %s, cannot be reached; nothing was changed: %w",
			l.Cluster, run.Some(there), l.Err)
		if slices.ContainsFunc(all, func(x *removal) bool { return x.cluster() == l.Cluster }) {
			return clierr.Also(err, "if the cluster is lost for good, remove all of its shards: place/"+l.Cluster)
		}
		return err
	}
	return nil
}

// cluster is the name of the cluster that the shard is on.
func (x *removal) cluster() string {
	if c := x.Topology.Component(x.id()); c != nil {
		return c.Cluster.Name
	}
	return x.known.Data[x.id()].Cluster
}

// lose continues the removal of a registered shard whose logical clusters cannot be listed, if the user accepts the
// loss. It names the workspaces on it that other shards know.
func (x *removal) lose(ctx context.Context, why error) error {
	step := x.stepOf(stepContents)
	known, err := x.workspaces(ctx)
	if err != nil {
		return x.Fail(step, err)
	}
	if !x.AllowWorkspaceLoss {
		return x.Fail(step, clierr.New(clierr.NotReady,
			"repair it first: kcpctl status and kcpctl logs "+string(x.id())+"; if the shard is lost for good, pass "+
				risk.WorkspaceLoss.Flag(),
			"cannot list the logical clusters of %s: %w%s", x.id(), why, knownWorkspaces(known)))
	}
	if l, left := plan.UnreachableIn(x.left, x.cluster()); left && x.Purge {
		return x.Fail(step, clierr.New(clierr.Failed,
			"omit --purge: if the cluster comes back, kcpctl up removes the workload and keeps the data",
			"the data of %s cannot be deleted; nothing was changed: %w", x.id(), l.Err))
	}
	x.Step(step, run.Done, "lost: "+run.FirstLine(why))
	if text := knownWorkspaces(known); text != "" {
		x.Note("shard " + x.name + " is lost" + text)
	}
	return nil
}

// knownWorkspaces continues a sentence with the workspaces on a lost shard that other shards know.
func knownWorkspaces(all []kcp.Workspace) string {
	if len(all) == 0 {
		return ""
	}
	return fmt.Sprintf("; it has at least %s, and all below them\n%s",
		gather.Count(len(all), "workspace", "workspaces"), paths(all))
}

// workspaces returns the workspaces on the shard whose Workspace objects are on shards that are kept.
func (x *removal) workspaces(ctx context.Context) ([]kcp.Workspace, error) {
	peers, err := x.peers()
	if err != nil {
		return nil, err
	}
	identity, err := workspaceIdentity(ctx, x.mover.root)
	if err != nil {
		return nil, err
	}
	var out []kcp.Workspace
	for _, p := range peers {
		on, err := p.client.Workspaces(ctx, identity, x.name)
		if err != nil {
			return nil, cannotListWorkspaces(p.id, err)
		}
		out = append(out, on...)
	}
	return out, nil
}
