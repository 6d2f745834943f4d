package run

import (
	"context"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/kcp"
)

// clearCache deletes what the shard has left in the cache, where all other shards see it. The shard's process must have ended and
// the shard must not be registered. It can be done again and again.
func (r *RemoveShard) clearCache(ctx context.Context) error {
	r.step(stepCache, Running, "")
	holder := r.Topology.CacheHolder()
	client, err := Connect(r.Runtime, holder, r.state, r.Now())
	if err != nil {
		return err
	}
	entries, err := client.ClearCache(ctx, r.Name)
	if err != nil {
		return clierr.New(clierr.Failed, "see with kcpctl status that "+string(holder.ID())+" is ready, then run the command again: it continues",
			"%s still has entries of shard %s: %w", holder.ID(), r.Name, err)
	}
	r.step(stepCache, Done, count(kcp.Total(entries), "entry", "entries")+" removed")
	return nil
}

// cached reports whether the cache has entries of the shard. Those of one that neither is registered nor runs were left by an
// earlier removal.
func (r *RemoveShard) cached(ctx context.Context) bool {
	client, err := Connect(r.Runtime, r.Topology.CacheHolder(), r.state, r.Now())
	if err != nil {
		return false
	}
	entries, err := client.CountCache(ctx, r.Name)
	return err == nil && kcp.Total(entries) > 0
}
