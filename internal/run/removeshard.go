package run

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/kcp"
	"github.com/kcpctl/kcpctl/internal/pki"
	"github.com/kcpctl/kcpctl/internal/plan"
	"github.com/kcpctl/kcpctl/internal/record"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// The steps of a removal.
const (
	stepCordon    = "cordon"
	stepContents  = "contents"
	stepDrain     = "drain"
	stepShard     = "registration"
	stepData      = "data"
	stepCache     = "cache"
	stepEndpoints = "endpoints"
)

// RemoveShardRuntime is what RemoveShards needs of a runtime.
type RemoveShardRuntime interface {
	Archive
	Locker
	Applier
	Deleter
	kcp.Dialer
	Reacher
}

// RemoveShards removes shards from a running kcp: they are cordoned, emptied or found empty, and unregistered; then they
// are removed from the setup file, and their workloads are deleted. An interrupted removal continues when it is run
// again.
type RemoveShards struct {
	// Topology is the setup with the shards, or without them if an earlier removal has got that far.
	Topology *topology.Topology
	Runtime  RemoveShardRuntime
	// Names are the names of the shards in kcp.
	Names []string
	// Drain moves the logical clusters of the shards to other shards.
	Drain bool
	// Purge also deletes the data of the shards.
	Purge bool
	// AllowWorkspaceLoss also removes shards whose logical clusters cannot be listed, such as those on a cluster that is
	// lost. It does not remove shards that answer and are not empty.
	AllowWorkspaceLoss bool
	// CheckEdit returns an error if the setup file cannot be edited now. It is called before anything is changed.
	CheckEdit func() error
	// Before is the setup in the file. Edit removes the shards from the file and returns the setup that is left. It is
	// called after the shards were unregistered and before their workloads are deleted.
	Before  []byte
	Edit    func() ([]byte, error)
	Observe Observer
	Now     func() time.Time
	// Timeout limits the whole removal; 0 means no limit.
	Timeout time.Duration

	*reporter
	known  *record.Record
	state  *pki.State
	root   *kcp.Client
	shards []kcp.Shard
	// left are the clusters that cannot be reached.
	left []plan.Unreachable
}

// ids are all components that belong to the shards.
func (r *RemoveShards) ids() []topology.ID {
	var out []topology.ID
	for _, name := range r.Names {
		out = append(out, idsOfShard(name)...)
	}
	return out
}

// idsOfShard are the components that belong to a shard, the shard first.
func idsOfShard(name string) []topology.ID {
	return []topology.ID{topology.IDOf(topology.Shard, name), topology.IDOf(topology.Etcd, name)}
}

// Run removes the shards. It reads and writes under the lock.
func (r *RemoveShards) Run(ctx context.Context) error {
	r.reporter = newReporter(r.Observe, r.Now)
	if r.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, r.Timeout, errTimeout{r.Timeout})
		defer cancel()
	}
	return Locked(ctx, r.Runtime, r.run, nil)
}

func (r *RemoveShards) run(ctx context.Context) error {
	objects, err := r.read(ctx)
	if err != nil {
		return err
	}
	own, others := split(objects, func(it plan.Item) bool { return slices.Contains(r.ids(), it.Component) })
	var all []*removal
	for _, name := range r.Names {
		x := &removal{RemoveShards: r, name: name}
		x.own, _ = split(own, func(it plan.Item) bool { return slices.Contains(x.ids(), it.Component) })
		if !x.isShard() && !x.hasRemains(ctx) {
			return clierr.New(clierr.BadInput, "kcpctl status lists the shards; remove-shard removes nothing else",
				"shard %q does not exist", name)
		}
		all = append(all, x)
	}
	if err := r.checkLeftOut(all); err != nil {
		return err
	}
	if err := r.CheckEdit(); err != nil {
		return err
	}
	if err := r.ensureEmpty(ctx, all); err != nil {
		return err
	}
	return r.remove(ctx, all, own, others)
}

// read reads everything that the removal depends on.
func (r *RemoveShards) read(ctx context.Context) ([]plan.Item, error) {
	if err := r.leaveOut(ctx); err != nil {
		return nil, err
	}
	var err error
	if r.known, r.state, err = loadInstallation(ctx, r.Runtime); err != nil {
		return nil, err
	}
	objects, err := r.Runtime.Objects(ctx)
	if err != nil {
		return nil, err
	}
	if r.root, err = r.connect(r.Topology.Root()); err != nil {
		return nil, err
	}
	if r.shards, err = r.root.Shards(ctx); err != nil {
		return nil, clierr.New(clierr.NotReady, "run kcpctl up first", "the root shard does not answer: %w", err)
	}
	return objects, nil
}

// remove does what is left to do once the shards are empty. An earlier run may have done some of it.
func (r *RemoveShards) remove(ctx context.Context, all []*removal, own, others []plan.Item) error {
	for _, x := range all {
		r.known = r.known.Remove(x.verified, x.id())
		for _, id := range x.ids() {
			if _, ok := r.known.Data[id]; ok {
				r.known = r.known.Remove(x.verified, id)
			}
		}
	}
	for _, x := range all {
		if err := x.unregister(ctx); err != nil {
			return r.fail(stepShard, err)
		}
	}
	if err := r.Runtime.Begin(ctx, &plan.Plan{Items: append(slices.Clone(others), own...), Stale: true}, r.known); err != nil {
		return err
	}
	if err := r.forget(ctx); err != nil { // while the topology still has the shards
		return r.fail(stepShard, err)
	}
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	history, err := r.Runtime.History(ctx)
	if err != nil {
		return err
	}
	setup, err := r.Edit()
	if err != nil {
		return r.fail(stepShard, err)
	}
	r.step(stepShard, Done, "shard "+strings.Join(r.Names, ", ")+" removed from kcp and from the setup file")
	for _, x := range all {
		if err := x.delete(ctx); err != nil {
			return err
		}
	}
	if err := r.clearCache(ctx); err != nil {
		return r.fail(stepCache, err)
	}
	if err := r.clearEndpoints(ctx); err != nil {
		return r.fail(stepEndpoints, err)
	}
	if r.Purge {
		r.known = r.known.Purge(r.ids()...)
	}
	return r.Runtime.Finish(ctx, &plan.Plan{Items: others}, r.known, r.applied(history, setup))
}

// applied is what the removal has applied: the setup without the shards, or only the removal if the setup has other
// changes.
func (r *RemoveShards) applied(history []plan.Revision, setup []byte) plan.Applied {
	a := plan.Applied{Setup: setup}
	if latest, complete := plan.Latest(history); !complete || !bytes.Equal(latest, r.Before) && !bytes.Equal(latest, setup) {
		for _, name := range r.Names {
			a.Only = append(a.Only, names(idsOfShard(name)[:1])...)
		}
	}
	return a
}

// forget deletes the certificates of the shards from the PKI store.
func (r *RemoveShards) forget(ctx context.Context) error {
	var keys []pki.LeafKey
	for _, id := range r.ids() {
		if c := r.Topology.Component(id); c != nil {
			for _, cert := range pki.CertsOf(r.Topology, c) {
				keys = append(keys, cert.Key())
			}
		}
	}
	return r.Runtime.Store().DeleteLeaves(ctx, keys)
}

// connect returns an administrator's client of a component.
func (r *RemoveShards) connect(c *topology.Component) (*kcp.Client, error) {
	return kcp.Connect(r.Runtime, c, r.state, r.Now())
}
