package shards

import (
	"context"
	"errors"
	"slices"

	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
	"github.com/kcpctl/kcpctl/internal/kit/poll"
)

// peer is another shard and a client of it.
type peer struct {
	id     topology.ID
	client *kcp.Client
}

// peers returns the registered shards of the setup without those that are removed.
func (r *RemoveShards) peers() ([]peer, error) {
	var out []peer
	for _, c := range r.mover.registered() {
		if slices.Contains(r.Names, c.ShardName()) {
			continue
		}
		client, err := r.mover.connect(c)
		if err != nil {
			return nil, err
		}
		out = append(out, peer{c.ID(), client})
	}
	return out, nil
}

// hasRemains reports whether entries of the shard are left in the cache or in endpoint slices. If the shard is
// neither registered nor running, an earlier removal has left them.
func (x *removal) hasRemains(ctx context.Context) bool {
	if x.name == topology.RootShardName {
		return false
	}
	peers, err := x.peers()
	return x.isCached(ctx) || err == nil && slices.ContainsFunc(peers, func(p peer) bool {
		n, err := p.client.CountEndpoints(ctx, x.name)
		return err == nil && n > 0
	})
}

// isCached reports whether the cache has entries of the shard.
func (x *removal) isCached(ctx context.Context) bool {
	client, err := x.mover.connect(x.Topology.CacheHolder())
	if err != nil {
		return false
	}
	entries, err := client.CountCache(ctx, x.name)
	return err == nil && kcp.Total(entries) > 0
}

// clearCache deletes the entries of the shards in the cache, which all other shards see. Their processes must have
// ended, or be unreachable, and they must not be registered. It can be repeated.
func (r *RemoveShards) clearCache(ctx context.Context) error {
	r.Step(stepCache, run.Running, "")
	holder := r.Topology.CacheHolder()
	client, err := r.mover.connect(holder)
	if err != nil {
		return err
	}
	removed := 0
	for _, name := range r.Names {
		entries, err := client.ClearCache(ctx, name)
		if err != nil {
			return clierr.New(clierr.Failed, awaitReady(holder.ID()), "%s still has entries of shard %s: %w",
				holder.ID(), name, err)
		}
		removed += kcp.Total(entries)
	}
	r.Step(stepCache, run.Done, gather.Count(removed, "entry", "entries")+" removed")
	return nil
}

// awaitReady is the next step if a component does not answer.
func awaitReady(id topology.ID) string {
	return "see with kcpctl status that " + string(id) + " is ready, then run the command again: it continues"
}

// clearEndpoints removes the endpoints of the shards from the endpoint slices of all other shards. Their processes must
// have ended, or be unreachable. It can be repeated.
func (r *RemoveShards) clearEndpoints(ctx context.Context) error {
	r.Step(stepEndpoints, run.Running, "")
	peers, err := r.peers()
	if err != nil {
		return err
	}
	removed := 0
	for _, p := range peers {
		for _, name := range r.Names {
			n, err := p.client.RemoveEndpoints(ctx, name)
			if err != nil {
				return clierr.New(clierr.Failed, awaitReady(p.id),
					"%s may still have endpoints of shard %s: %w", p.id, name, err)
			}
			removed += n
		}
	}
	r.Step(stepEndpoints, run.Done, gather.Count(removed, "endpoint", "endpoints")+" removed")
	return nil
}

// awaitRelease waits until kcp no longer needs an empty shard: it needs the shard to delete the Workspaces whose
// logical clusters were there. Without the shard their deletion would never end.
func (x *removal) awaitRelease(ctx context.Context) error {
	if x.registered() >= 0 {
		if err := x.awaitWorkspaces(ctx); err != nil {
			return x.Fail(x.stepOf(stepContents), err)
		}
	}
	x.Step(x.stepOf(stepContents), run.Done, "empty")
	return nil
}

// awaitWorkspaces waits until none of the shard's workspaces is being deleted.
func (x *removal) awaitWorkspaces(ctx context.Context) error {
	peers, err := x.peers()
	if err != nil {
		return err
	}
	identity, err := workspaceIdentity(ctx, x.mover.root)
	if err != nil {
		return err
	}
	last := ""
	report := func(reason string) { x.Step(x.stepOf(stepContents), run.Running, reason) }
	err = poll.Until(ctx, run.PollInterval, report, func() (string, error) {
		name, at, err := deletedWorkspace(ctx, peers, identity, x.name)
		switch {
		case err != nil && (last == "" || ctx.Err() == nil):
			return "", cannotListWorkspaces(at, err)
		case err == nil && name == "":
			return "", nil
		case err == nil:
			last = name
		}
		return "waits until workspace " + last + " is deleted", nil
	})
	if late := (*poll.Expired)(nil); errors.As(err, &late) {
		return clierr.New(clierr.NotReady, "see with kubectl describe workspace what it waits for"+rerun,
			"workspace %s is being deleted, for which kcp needs %s: %w", last, x.id(), late.Cause)
	}
	return err
}

// deletedWorkspace returns one of the shard's workspaces that are being deleted, none if it is empty, or the peer
// that failed to list them.
func deletedWorkspace(ctx context.Context, peers []peer,
	identity, shard string) (name string, at topology.ID, err error) {
	for _, p := range peers {
		names, err := p.client.DeletedWorkspaces(ctx, identity, shard)
		if err != nil {
			return "", p.id, err
		}
		if len(names) > 0 {
			return names[0], p.id, nil
		}
	}
	return "", "", nil
}
