package check

import (
	"cmp"
	"context"

	"github.com/kcpctl/kcpctl/internal/client/kcp"
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
	busy := s.busy(ctx)
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
	if moves := found.Unfinished(); len(moves) > 0 && !busy && !s.busy(ctx) {
		o.left(moves)
	}
	return o
}

// busy reports whether a run is in progress, or may be.
func (s *Subject) busy(ctx context.Context) bool {
	current, _, err := s.Runtime.Runs(ctx)
	return err != nil || current != nil
}

// left records moves that an interrupted run has left.
func (o *outcome) left(moves []kcp.Unfinished) {
	o.fix = "run " + moves[0].Command() + ", which completes all of these moves"
	if len(o.causes) > 0 {
		o.fix += ", then run kcpctl restore repair, which lists the other workspaces, and repairs them"
	}
	var paths []string
	for _, m := range moves {
		paths = append(paths, m.Path)
	}
	o.fail("workspaces that are being moved, although no run is in progress: %s", list(paths))
}
