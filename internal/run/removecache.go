package run

import (
	"context"
	"time"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/kcp"
	"github.com/kcpctl/kcpctl/internal/pki"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// clearCache deletes what a shard that is being removed has left in the cache, where all other shards see it, and returns how many
// objects that were. The shard's process must have ended and the shard must not be registered. It can be done again and again.
func clearCache(ctx context.Context, rt Runtime, t *topology.Topology, s *pki.State, now time.Time, name string) (int, error) {
	client, err := Connect(rt, t.CacheHolder(), s, now)
	if err != nil {
		return 0, err
	}
	entries, err := client.ClearCache(ctx, name)
	if err != nil {
		return kcp.Total(entries), clierr.New(clierr.Failed, "see with kcpctl status that "+string(t.CacheHolder().ID())+" is ready, then run the removal again",
			"%s still has entries of shard %s: %w", t.CacheHolder().ID(), name, err)
	}
	return kcp.Total(entries), nil
}

// countCache counts what a shard has in the cache. What is there of one that neither is registered nor runs was left by an earlier
// removal.
func countCache(ctx context.Context, rt Runtime, t *topology.Topology, s *pki.State, now time.Time, name string) (int, error) {
	client, err := Connect(rt, t.CacheHolder(), s, now)
	if err != nil {
		return 0, err
	}
	entries, err := client.CountCache(ctx, name)
	return kcp.Total(entries), err
}
