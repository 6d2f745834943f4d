package deploy

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/kcpctl/kcpctl/internal/api/risk"
	"github.com/kcpctl/kcpctl/internal/client/etcd"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// RotateEncryption replaces the key with which shards encrypt objects in etcd. It is also the way to encrypt more
// resources, or fewer, in a setup that runs.
type RotateEncryption struct {
	Rotate
	// Etcd returns a client of the etcd of a shard, which the caller closes. It returns nil if kcpctl cannot read it.
	Etcd func(context.Context, *topology.Component) (*etcd.Client, error)
}

// Run distributes a new key to all shards, encrypts with it, makes the shards store all objects again, and removes the
// previous key. If it is interrupted, the next run continues.
func (r *RotateEncryption) Run(ctx context.Context) error {
	state, err := r.load(ctx)
	if err != nil {
		return err
	}
	if state.Encryption.Phase != pki.PhaseSwitch && r.Show == nil {
		if err := r.noMoves(ctx, state); err != nil {
			return err
		}
	}
	if len(pki.EncryptedResources(r.Topology)) == 0 {
		err = r.decrypt(ctx, state)
	} else {
		_, err = r.Rotate.Run(ctx)
	}
	if err != nil || r.Show != nil {
		return err
	}
	known, err := r.Up.Runtime.Record(ctx)
	if err != nil {
		return err
	}
	if state, err = r.load(ctx); err != nil {
		return err
	}
	if err := r.rewrite(ctx, state); err != nil {
		return err
	}
	if err := r.noneKept(ctx, state.Encryption); err != nil {
		return err
	}
	_, err = r.roll(ctx, "remove the previous "+r.Rotations.String(), r.finish(ctx, state.Encryption, known))
	return err
}

// noneKept refuses to remove the previous key while the data of a removed shard may need it: the shard can return.
func (r *RotateEncryption) noneKept(ctx context.Context, e pki.Encryption) error {
	known, err := r.Up.Runtime.Record(ctx)
	if err != nil || e.Previous == "" {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(known.Data)) {
		was := known.Data[id]
		if id.Kind() != topology.Shard || !was.Removed || was.Emptied {
			continue
		}
		hint := fmt.Sprintf("add it again with kcpctl add-shard %[1]s, or delete its data with "+
			"kcpctl remove-shard %[1]s --purge %[2]s", id.Name(), risk.WorkspaceLoss.Flag())
		if was.Cluster != "" {
			hint += fmt.Sprintf(", or, if its cluster is lost for good, run kcpctl up --%s %s",
				run.FlagForgetCluster, was.Cluster)
		}
		return clierr.New(clierr.Failed, hint+"; then rerun the command: it continues. No key has been removed",
			"%s was removed, but its data on %s still exists, and may need the previous %s",
			id, was.Place(), r.Rotations)
	}
	return nil
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
	if _, err := r.settle(ctx, "make sure that no shard encrypts"); err != nil {
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

// finish ends the rotation in which all objects were written again. Since then, another run may have begun one, or have
// restored objects that the previous key has encrypted.
func (r *RotateEncryption) finish(ctx context.Context, written pki.Encryption, known *record.Record) pkiChange {
	const hint = "rerun the command: it continues from there"
	return func(s *pki.State) (*pki.State, error) {
		if s.Encryption.Key != written.Key {
			return nil, clierr.New(clierr.Conflict, hint, "another run has changed the %s in the meantime", r.Rotations)
		}
		now, err := r.Up.Runtime.Record(ctx)
		if err != nil {
			return nil, err
		}
		if now.Restores != known.Restores {
			return nil, clierr.New(clierr.Conflict, hint+". No key has been removed",
				"another run has restored data in the meantime, which may need the previous %s", r.Rotations)
		}
		return r.Rotations.Advance(r.Topology, s, pki.PhaseSwitch, r.Now())
	}
}
