package deploy

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
	"github.com/kcpctl/kcpctl/internal/kit/poll"
)

// rewrite makes all shards store all objects again, until nothing needs the previous key.
func (r *RotateEncryption) rewrite(ctx context.Context, state *pki.State) error {
	defer r.Begin("encrypt the existing objects again")()
	r.Up.reporter = run.NewReporter(r.Up.Observe, r.Up.Now)
	if err := r.noMoves(ctx, state); err != nil {
		return err
	}
	return parallel.Each(ctx, r.Topology.Shards(), func(ctx context.Context, c *topology.Component) error {
		written, err := r.rewriteShard(ctx, c, state)
		if err != nil {
			return fmt.Errorf("%s: %w", c.ID(), r.Up.Failed(c.ID(), err))
		}
		r.Up.Component(c.ID(), run.Done, written)
		return nil
	})
}

// rewriteShard returns how many objects of each resource a shard has.
func (r *RotateEncryption) rewriteShard(ctx context.Context, c *topology.Component, s *pki.State) (string, error) {
	if err := r.awaitLeaving(ctx, c); err != nil {
		return "", err
	}
	client, err := kcp.Connect(r.Up.Runtime, c, s, r.Now())
	if err != nil {
		return "", err
	}
	defer client.Close()
	var all []string
	for _, resource := range s.Encryption.Covers(pki.EncryptedResources(r.Topology)) {
		n, err := client.Rewrite(ctx, schema.GroupVersionResource{Version: "v1", Resource: resource}, func(done int) {
			r.Up.Component(c.ID(), run.Running, fmt.Sprintf("%d %s", done, resource))
		})
		if err != nil {
			return "", err
		}
		all = append(all, fmt.Sprintf("%d %s", n, resource))
	}
	return strings.Join(all, ", "), r.verifyUnused(ctx, c, s.Encryption)
}

// awaitLeaving waits until the pods of a shard that do not encrypt with the new key are gone. The shard has rolled, and
// they still serve while they leave.
func (r *RotateEncryption) awaitLeaving(ctx context.Context, c *topology.Component) error {
	ctx, cancel := run.WithTimeout(ctx, r.Up.Options.Timeout)
	defer cancel()
	report := func(reason string) { r.Up.Component(c.ID(), run.Running, reason) }
	err := poll.Until(ctx, run.PollInterval, report, func() (string, error) {
		s, err := r.Up.Runtime.State(ctx, c)
		leaving := slices.DeleteFunc(slices.Sorted(maps.Keys(s.Pods)), func(pod string) bool { return s.Pods[pod] })
		switch {
		case err != nil:
			return poll.Reason(err), nil // a lost connection recovers, or the time runs out
		case !s.Ready:
			return run.WaitMessage(s), nil
		case len(leaving) > 0:
			return fmt.Sprintf("%s terminates, and encrypts with the previous key until then",
				gather.Few(leaving, gather.Listed, ", ")), nil
		}
		return "", nil
	})
	if err == nil {
		return nil
	}
	return clierr.New(clierr.NotReady, "rerun the command: it continues. No key has been removed", "%w", err)
}

// verifyUnused fails if something in the etcd of a shard is encrypted with the previous key.
func (r *RotateEncryption) verifyUnused(ctx context.Context, c *topology.Component, e pki.Encryption) error {
	if e.Previous == "" {
		return nil
	}
	client, err := r.Etcd(ctx, c)
	if err != nil {
		return err
	}
	if client == nil {
		r.Up.Note(fmt.Sprintf("%s has an etcd that kcpctl cannot read: that the previous key is not needed any more "+
			"follows from the answers of kcp", c.ID()))
		return nil
	}
	defer client.Close()
	var found []string
	previous := e.EncryptedWith(e.Previous)
	err = client.Each(ctx, c.Storage.KeyPrefix(), func(name string, value []byte) {
		if bytes.HasPrefix(value, previous) {
			found = append(found, name)
		}
	})
	if err != nil || len(found) == 0 {
		return err
	}
	return clierr.New(clierr.Failed, "rerun the command: it writes them again. No key has been removed",
		"the previous key is still needed in etcd for %s", gather.Few(found, gather.Listed, ", "))
}

// noMoves refuses to continue while workspaces move: their objects arrive as they were stored before.
func (r *RotateEncryption) noMoves(ctx context.Context, state *pki.State) error {
	root, err := kcp.Connect(r.Up.Runtime, r.Topology.Root(), state, r.Now())
	if err != nil {
		return err
	}
	defer root.Close()
	begun, err := root.Migrating(ctx)
	switch {
	case err != nil:
		return clierr.New(clierr.NotReady, "run kcpctl up first, which also brings changes of spec.encryption to the "+
			"shards, and rerun the command", "the root shard does not answer: %w", err)
	case len(begun) == 0:
		return nil
	}
	return clierr.New(clierr.Failed, "complete it with "+begun[0].Command()+", and rerun the command",
		"logical cluster %s is being moved to another shard", begun[0].Cluster)
}
