package check

import (
	"cmp"
	"context"

	"github.com/kcpctl/kcpctl/internal/engine/backup/content"
	"github.com/kcpctl/kcpctl/internal/engine/backup/live"
)

// workspaces compares the shards with each other. It skips if one is not ready: what is not found could be there.
func workspaces(ctx context.Context, s *Subject) (o outcome) {
	for _, c := range s.Topology.Shards() {
		if !s.serves(c.ID()) {
			return skipped("%s is not ready", c.ID())
		}
	}
	r := &live.Reader{Topology: s.Topology, Connect: s.client, Pause: cmp.Or(s.Pause, live.Pause)}
	found, err := r.Find(ctx)
	if err != nil {
		return fromError(err)
	}
	counts := map[content.Reason][]string{}
	for _, t := range found.Tears {
		counts[t.Reason] = append(counts[t.Reason], t.Path)
	}
	for _, k := range []struct {
		reason content.Reason
		what   string
	}{
		{content.WithoutWorkspace, "logical clusters without a Workspace"},
		{content.WithoutCluster, "Workspaces without a logical cluster"},
		{content.OnTwoShards, "logical clusters on two shards"},
	} {
		if paths := counts[k.reason]; len(paths) > 0 {
			o.fail("%s: %s", k.what, list(paths))
		}
	}
	return o
}
