package run

import (
	"context"
	"slices"
	"time"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/kcp"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// peer is another shard and a client of it.
type peer struct {
	id     topology.ID
	client *kcp.Client
}

// peers returns the registered shards of the setup without the one that is removed.
func (r *RemoveShard) peers() ([]peer, error) {
	var out []peer
	for _, c := range r.Topology.Shards() {
		registered := slices.ContainsFunc(r.shards, func(s kcp.Shard) bool { return s.Name == c.ShardName() })
		if c.ID() == r.id() || !registered {
			continue
		}
		client, err := r.connect(c)
		if err != nil {
			return nil, err
		}
		out = append(out, peer{c.ID(), client})
	}
	return out, nil
}

// hasRemains reports whether entries of the shard are left in the cache or in endpoint slices. If the shard is
// neither registered nor running, an earlier removal has left them.
func (r *RemoveShard) hasRemains(ctx context.Context) bool {
	if r.Name == topology.RootShardName {
		return false
	}
	peers, err := r.peers()
	return r.isCached(ctx) || err == nil && slices.ContainsFunc(peers, func(p peer) bool {
		n, err := p.client.CountEndpoints(ctx, r.Name)
		return err == nil && n > 0
	})
}

// isCached reports whether the cache has entries of the shard.
func (r *RemoveShard) isCached(ctx context.Context) bool {
	client, err := r.connect(r.Topology.CacheHolder())
	if err != nil {
		return false
	}
	entries, err := client.CountCache(ctx, r.Name)
	return err == nil && kcp.Total(entries) > 0
}

// clearCache deletes the shard's entries in the cache, which all other shards see. The shard's process must have
// ended and the shard must not be registered. It can be repeated.
func (r *RemoveShard) clearCache(ctx context.Context) error {
	r.step(stepCache, Running, "")
	holder := r.Topology.CacheHolder()
	client, err := r.connect(holder)
	if err != nil {
		return err
	}
	entries, err := client.ClearCache(ctx, r.Name)
	if err != nil {
		return clierr.New(clierr.Failed, awaitReady(holder.ID()), "%s still has entries of shard %s: %w", holder.ID(), r.Name, err)
	}
	r.step(stepCache, Done, count(kcp.Total(entries), "entry", "entries")+" removed")
	return nil
}

// awaitReady is the next step if a component does not answer.
func awaitReady(id topology.ID) string {
	return "see with kcpctl status that " + string(id) + " is ready, then run the command again: it continues"
}

// clearEndpoints removes the shard's endpoints from the endpoint slices of all other shards. The shard's process must
// have ended. It can be repeated.
func (r *RemoveShard) clearEndpoints(ctx context.Context) error {
	r.step(stepEndpoints, Running, "")
	peers, err := r.peers()
	if err != nil {
		return err
	}
	removed := 0
	for _, p := range peers {
		n, err := p.client.RemoveEndpoints(ctx, r.Name)
		if err != nil {
			return clierr.New(clierr.Failed, awaitReady(p.id), "%s may still have endpoints of shard %s: %w", p.id, r.Name, err)
		}
		removed += n
	}
	r.step(stepEndpoints, Done, count(removed, "endpoint", "endpoints")+" removed")
	return nil
}

// awaitRelease waits until kcp no longer needs an empty shard: it needs the shard to delete the Workspaces whose
// logical clusters were there. Without the shard their deletion would never end.
func (r *RemoveShard) awaitRelease(ctx context.Context) error {
	if r.registered() >= 0 {
		if err := r.awaitWorkspaces(ctx); err != nil {
			return r.fail(stepContents, err)
		}
	}
	r.step(stepContents, Done, "empty")
	return nil
}

// awaitWorkspaces waits until none of the shard's workspaces is being deleted.
func (r *RemoveShard) awaitWorkspaces(ctx context.Context) error {
	const rerun = ", then run the command again"
	peers, err := r.peers()
	if err != nil {
		return err
	}
	identity, err := r.root.WorkspaceIdentity(ctx)
	if err != nil {
		return clierr.New(clierr.NotReady, "see with kcpctl status that the root shard is ready"+rerun,
			"cannot list workspaces: %w", err)
	}
	last := ""
	for {
		name, at, err := deletedWorkspace(ctx, peers, identity, r.Name)
		switch {
		case ctx.Err() != nil && last != "":
			return clierr.New(clierr.NotReady, "see with kubectl describe workspace what it waits for"+rerun,
				"workspace %s is being deleted, for which kcp needs %s: %w", last, r.id(), context.Cause(ctx))
		case err != nil:
			return clierr.New(clierr.NotReady, "see with kcpctl status that "+string(at)+" is ready"+rerun,
				"cannot list the workspaces on %s: %w", at, err)
		case name == "":
			return nil
		}
		last = name
		r.step(stepContents, Running, "waits until workspace "+name+" is deleted")
		select {
		case <-ctx.Done():
		case <-time.After(pollInterval):
		}
	}
}

// deletedWorkspace returns one of the shard's workspaces that are being deleted, none if it is empty, or the peer
// that failed to list them.
func deletedWorkspace(ctx context.Context, peers []peer, identity, shard string) (name string, at topology.ID, err error) {
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
