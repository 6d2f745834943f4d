package run

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
)

// RotateEncryption replaces the key with which shards encrypt objects in etcd. It is also the way to encrypt more
// resources, or fewer, in a setup that runs.
type RotateEncryption struct{ Rotate }

// Run distributes a new key to all shards, encrypts with it, makes the shards store all objects again, and removes the
// previous key. If it is interrupted, the next run continues.
func (r *RotateEncryption) Run(ctx context.Context) error {
	state, err := r.load(ctx)
	if err != nil {
		return err
	}
	if len(pki.EncryptedResources(r.Topology)) == 0 {
		err = r.decrypt(ctx, state)
	} else {
		_, err = r.Rotate.Run(ctx)
	}
	if err != nil || r.Show != nil {
		return err
	}
	if state, err = r.load(ctx); err != nil {
		return err
	}
	if err := r.rewrite(ctx, state); err != nil {
		return err
	}
	return r.roll(ctx, "remove the previous "+r.Rotations.String(), r.finish(state.Encryption))
}

// decrypt begins to store objects as they are. Shards do so for new objects as soon as the setup does not encrypt.
func (r *RotateEncryption) decrypt(ctx context.Context, s *pki.State) error {
	if len(s.Encryption.Resources) == 0 && s.Encryption.Phase == pki.PhaseNone {
		return clierr.New(clierr.Failed, "set spec.encryption in the setup file, and run kcpctl up",
			"kcp %q encrypts nothing", r.Topology.Name)
	}
	if r.Show != nil {
		return nil
	}
	if err := r.settle(ctx, "make sure that no shard encrypts"); err != nil {
		return err
	}
	for _, from := range []pki.Phase{pki.PhaseNone, pki.PhaseDistribute} {
		if s.Encryption.Phase != from {
			continue
		}
		if err := ChangeStore(ctx, r.Topology, r.storeRuntime(), r.Store, r.next(r.Rotations, from)); err != nil {
			return err
		}
		s.Encryption.Phase = pki.PhaseDistribute
	}
	return nil
}

// finish ends the rotation in which all objects were written again. Another run may have begun one since.
func (r *RotateEncryption) finish(written pki.Encryption) pkiChange {
	return func(s *pki.State) (*pki.State, error) {
		if s.Encryption.Key != written.Key {
			return nil, clierr.New(clierr.Conflict, "rerun the command: it continues from there",
				"another run has changed the %s in the meantime", r.Rotations)
		}
		return r.Rotations.Advance(r.Topology, s, pki.PhaseSwitch, r.Now())
	}
}

// rewrite makes all shards store all objects again.
func (r *RotateEncryption) rewrite(ctx context.Context, state *pki.State) error {
	defer r.Begin("encrypt the existing objects again")()
	r.Up.reporter = newReporter(r.Up.Observe, r.Up.Now)
	if err := r.noMoves(ctx, state); err != nil {
		return err
	}
	return parallel.Each(ctx, r.Topology.Shards(), func(ctx context.Context, c *topology.Component) error {
		written, err := r.rewriteShard(ctx, c, state)
		if err != nil {
			r.Up.failed(c.ID(), err)
			return fmt.Errorf("%s: %w", c.ID(), err)
		}
		r.Up.component(c.ID(), Done, written)
		return nil
	})
}

// rewriteShard returns how many objects of each resource a shard has.
func (r *RotateEncryption) rewriteShard(ctx context.Context, c *topology.Component, s *pki.State) (string, error) {
	client, err := kcp.Connect(r.Up.Runtime, c, s, r.Now())
	if err != nil {
		return "", err
	}
	defer client.Close()
	var all []string
	for _, resource := range s.Encryption.Covers(pki.EncryptedResources(r.Topology)) {
		n, err := client.Rewrite(ctx, schema.GroupVersionResource{Version: "v1", Resource: resource}, func(done int) {
			r.Up.component(c.ID(), Running, fmt.Sprintf("%d %s", done, resource))
		})
		if err != nil {
			return "", err
		}
		all = append(all, fmt.Sprintf("%d %s", n, resource))
	}
	return strings.Join(all, ", "), nil
}

// noMoves refuses to continue while workspaces move: their objects arrive as they were stored before.
func (r *RotateEncryption) noMoves(ctx context.Context, state *pki.State) error {
	root, err := kcp.Connect(r.Up.Runtime, r.Topology.Root(), state, r.Now())
	if err != nil {
		return err
	}
	defer root.Close()
	begun, err := root.Migrating(ctx)
	if err != nil || len(begun) == 0 {
		return err
	}
	return clierr.New(clierr.Failed, "complete it with kcpctl move, and rerun the command: it continues",
		"logical cluster %s is being moved to another shard", begun[0].Cluster)
}
