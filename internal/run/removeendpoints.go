package run

import (
	"context"
	"slices"
	"time"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/kcp"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// server is a shard and a client of it.
type server struct {
	id     topology.ID
	client *kcp.Client
}

// peers are the registered shards of the setup but for the one that is removed.
func (r *RemoveShard) peers() ([]server, error) {
	var out []server
	for _, c := range r.Topology.Shards() {
		registered := slices.ContainsFunc(r.shards, func(s kcp.Shard) bool { return s.Name == c.ShardName() })
		if c.ID() == r.id() || !registered {
			continue
		}
		client, err := Connect(r.Runtime, c, r.state, r.Now())
		if err != nil {
			return nil, err
		}
		out = append(out, server{c.ID(), client})
	}
	return out, nil
}

// clearEndpoints removes the shard's endpoints from the endpoint slices of all other shards. The shard's process must have ended.
// It can be done again and again.
func (r *RemoveShard) clearEndpoints(ctx context.Context) error {
	r.step(stepEndpoints, Running, "")
	peers, err := r.peers()
	if err != nil {
		return err
	}
	removed := 0
	for _, s := range peers {
		n, err := s.client.RemoveEndpoints(ctx, r.Name)
		if err != nil {
			return clierr.New(clierr.Failed, "see with kcpctl status that "+string(s.id)+" is ready, then run the command again: it continues",
				"%s may still have endpoints of shard %s: %w", s.id, r.Name, err)
		}
		removed += n
	}
	r.step(stepEndpoints, Done, count(removed, "endpoint", "endpoints")+" removed")
	return nil
}

// left reports whether something of the shard is left in the cache or in endpoint slices. If it neither is registered nor runs, an
// earlier removal has left it.
func (r *RemoveShard) left(ctx context.Context) bool {
	if r.Name == topology.RootShardName {
		return false
	}
	peers, err := r.peers()
	return r.cached(ctx) || err == nil && slices.ContainsFunc(peers, func(s server) bool {
		n, err := s.client.CountEndpoints(ctx, r.Name)
		return err == nil && n > 0
	})
}

// released makes sure that kcp needs an empty shard no more. It asks the shard about the Workspaces that were there and are being
// deleted: without the shard they stay, so they are waited for.
func (r *RemoveShard) released(ctx context.Context) error {
	if r.registered() >= 0 {
		if err := r.awaitWorkspaces(ctx); err != nil {
			return r.fail(stepContents, err)
		}
	}
	r.step(stepContents, Done, "nothing lives there")
	return nil
}

// awaitWorkspaces waits until none of the shard's workspaces is being deleted.
func (r *RemoveShard) awaitWorkspaces(ctx context.Context) error {
	const again = ", then run the same command again"
	peers, err := r.peers()
	if err != nil {
		return err
	}
	identity, err := r.root.WorkspaceIdentity(ctx)
	if err != nil {
		return clierr.New(clierr.NotReady, "see with kcpctl status that the root shard is ready"+again, "cannot list workspaces: %w", err)
	}
	last := ""
	for {
		name, at, err := deletedWorkspace(ctx, peers, identity, r.Name)
		switch {
		case ctx.Err() != nil && last != "":
			return clierr.New(clierr.NotReady, "see with kubectl describe workspace what it waits for"+again,
				"workspace %s is being deleted, for which kcp needs %s: %w", last, r.id(), context.Cause(ctx))
		case err != nil:
			return clierr.New(clierr.NotReady, "see with kcpctl status that "+string(at)+" is ready"+again, "cannot list the workspaces on %s: %w", at, err)
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

// deletedWorkspace is one of the workspaces of the shard that are being deleted, none if it is empty, or the shard that cannot
// list them.
func deletedWorkspace(ctx context.Context, peers []server, identity, shard string) (name string, at topology.ID, err error) {
	for _, s := range peers {
		names, err := s.client.DeletedWorkspaces(ctx, identity, shard)
		if err != nil {
			return "", s.id, err
		}
		if len(names) > 0 {
			return names[0], s.id, nil
		}
	}
	return "", "", nil
}
