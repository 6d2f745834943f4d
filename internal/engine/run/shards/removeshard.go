package shards

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/kcpctl/kcpctl/internal/api/release"
	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/client/ready"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
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
	run.Archive
	run.Locker
	run.Applier
	run.Deleter
	kcp.Dialer
	run.Reacher
	run.Scaler
	State(ctx context.Context, c *topology.Component) (ready.State, error)
}

// RemoveShards removes shards from a running kcp: they are cordoned, emptied or found empty, and unregistered; then
// they are removed from the setup file, and their workloads are deleted. An interrupted removal continues when it is
// run again.
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
	// AllowWorkspaceLoss also removes shards whose logical clusters cannot be listed, such as shards on a lost cluster.
	// It does not remove shards that answer and are not empty.
	AllowWorkspaceLoss bool
	// MoveOptions are the options of the drain.
	MoveOptions
	// CheckEdit returns an error if the setup file cannot be edited now. It is called before anything is changed.
	CheckEdit func() error
	// Before is the setup in the file. Edit removes the shards from the file and returns the setup that is left. It is
	// called after the shards were unregistered and before their workloads are deleted.
	Before  []byte
	Edit    func() (plan.Applied, error)
	Observe run.Observer
	Now     func() time.Time
	// Timeout limits the whole removal; 0 means no limit.
	Timeout time.Duration

	*reporter
	known *record.Record
	// left are the clusters that cannot be reached.
	left []plan.Unreachable
	// mover has the clients and the registered shards.
	mover *mover
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
	r.reporter = run.NewReporter(r.Observe, r.Now)
	ctx, cancel := run.WithTimeout(ctx, r.Timeout)
	defer cancel()
	return run.Locked(ctx, r.Runtime, r.run, nil)
}

// Check returns the objects that Run deletes. It fails if the shards do not exist or cannot be removed and, with
// contents, if they have logical clusters that Run does not move. It writes nothing.
func (r *RemoveShards) Check(ctx context.Context, contents bool) ([]plan.Item, error) {
	r.reporter = run.NewReporter(r.Observe, r.Now)
	all, own, _, err := r.existing(ctx)
	if err != nil || !contents {
		return own, err
	}
	var errs []error
	for _, x := range all {
		errs = append(errs, x.look(ctx))
	}
	return own, parallel.Join(errs)
}

// existing returns the removals, their objects and the other objects, if the shards exist and can be removed.
func (r *RemoveShards) existing(ctx context.Context) (all []*removal, own, others []plan.Item, err error) {
	objects, err := r.read(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	for _, name := range r.Names {
		all = append(all, &removal{RemoveShards: r, name: name})
	}
	own, others = r.divide(objects, all)
	for _, x := range all {
		if !x.isShard() && !x.hasRemains(ctx) {
			return nil, nil, nil, clierr.New(clierr.BadInput,
				"kcpctl status lists the shards; remove-shard removes nothing else", "shard %q does not exist", x.name)
		}
	}
	if err := r.checkLeftOut(all); err != nil {
		return nil, nil, nil, err
	}
	return all, own, others, r.CheckEdit()
}

func (r *RemoveShards) run(ctx context.Context) error {
	all, own, others, err := r.existing(ctx)
	if err != nil {
		return err
	}
	if err := r.ensureEmpty(ctx, all); err != nil {
		return err
	}
	if r.mover.scaled() {
		objects, err := r.Runtime.Objects(ctx)
		if err != nil {
			return err
		}
		own, others = r.divide(objects, all)
	}
	return r.remove(ctx, all, own, others)
}

// divide gives each removal its objects, and returns the objects of all removals and the other objects.
func (r *RemoveShards) divide(objects []plan.Item, all []*removal) (own, others []plan.Item) {
	own, others = plan.Split(objects, func(it plan.Item) bool { return slices.Contains(r.ids(), it.Component) })
	for _, x := range all {
		x.own, _ = plan.Split(own, func(it plan.Item) bool { return slices.Contains(x.ids(), it.Component) })
	}
	return own, others
}

// read reads everything that the removal depends on.
func (r *RemoveShards) read(ctx context.Context) ([]plan.Item, error) {
	if v := r.Topology.Root().Version; release.Of(v).OwnShards {
		return nil, clierr.New(clierr.Failed, "move its workspaces with kcpctl rebalance, and keep it cordoned",
			"kcp %s has no way to remove the Shard object of a shard that is gone (kcp#4336), and would schedule "+
				"workspaces there", v)
	}
	if err := r.leaveOut(ctx); err != nil {
		return nil, err
	}
	known, state, err := run.LoadInstallation(ctx, r.Runtime)
	if err != nil {
		return nil, err
	}
	r.known = known
	objects, err := r.Runtime.Objects(ctx)
	if err != nil {
		return nil, err
	}
	r.mover, err = newMover(ctx, mover{
		reporter: r.reporter, MoveOptions: r.MoveOptions, topology: r.Topology, runtime: r.Runtime, state: state,
		now: r.Now, leaving: r.Names,
	})
	return objects, err
}

// remove does the rest of the removal once the shards are empty. An earlier run may have done some of it.
func (r *RemoveShards) remove(ctx context.Context, all []*removal, own, others []plan.Item) error {
	for _, x := range all {
		r.known = r.known.Remove(x.verified, x.id())
		for _, id := range x.ids() {
			if _, ok := r.known.Data[id]; ok {
				r.known = r.known.Remove(x.verified, id)
			}
		}
	}
	err := r.unregister(ctx, all)
	if err == nil {
		err = r.Runtime.Begin(ctx, &plan.Plan{Items: append(slices.Clone(others), own...), Stale: true}, r.known)
	}
	if err != nil {
		return r.Fail(stepShard, errors.Join(err, clierr.Remains(r.register(ctx, all))))
	}
	if err := r.forget(ctx); err != nil { // while the topology still has the shards
		return r.Fail(stepShard, err)
	}
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	history, err := r.Runtime.History(ctx)
	if err != nil {
		return err
	}
	edited, err := r.Edit()
	if err != nil {
		return r.Fail(stepShard, err)
	}
	r.Step(stepShard, run.Done, "shard "+strings.Join(r.Names, ", ")+" removed from kcp and from the setup file")
	for _, x := range all {
		if err := x.delete(ctx); err != nil {
			return err
		}
	}
	if err := r.clearCache(ctx); err != nil {
		return r.Fail(stepCache, err)
	}
	if err := r.clearEndpoints(ctx); err != nil {
		return r.Fail(stepEndpoints, err)
	}
	if r.Purge {
		r.known = r.known.Purge(r.ids()...)
	}
	return r.Runtime.Finish(ctx, &plan.Plan{Items: others}, r.known, r.applied(history, edited))
}

// applied returns what the removal has applied: the setup without the shards, or only the removal if the setup has
// other changes.
func (r *RemoveShards) applied(history []plan.Revision, a plan.Applied) plan.Applied {
	if latest, complete := plan.Latest(history); !complete ||
		!plan.SameSetup(latest, r.Before) && !plan.SameSetup(latest, a.Setup) {
		for _, name := range r.Names {
			a.Only = append(a.Only, run.Names(idsOfShard(name)[:1])...)
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
