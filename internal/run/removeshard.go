package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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

// RemoveShardRuntime is what RemoveShard needs of a runtime.
type RemoveShardRuntime interface {
	Archive
	Locker
	Applier
	Deleter
	kcp.Dialer
}

// RemoveShard removes a shard from a running kcp: the shard is cordoned, emptied or found empty, and unregistered;
// then it is removed from the setup file, and its workload is deleted. An interrupted removal continues when it is
// run again.
type RemoveShard struct {
	// Topology is the setup with the shard, or without it if an earlier removal has got that far.
	Topology *topology.Topology
	Runtime  RemoveShardRuntime
	// Name is the shard's name in kcp.
	Name string
	// Drain moves the logical clusters of the shard to other shards.
	Drain bool
	// Purge also deletes the shard's data.
	Purge bool
	// CheckEdit returns an error if the setup file cannot be edited now. It is called before anything is changed.
	CheckEdit func() error
	// Before is the setup in the file. Edit removes the shard from the file and returns the setup that is left. It is
	// called after the shard was unregistered and before its workload is deleted.
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
	// moving is set once something may have been moved.
	moving bool
}

// id is the shard as a component, and ids are all components that belong to it.
func (r *RemoveShard) id() topology.ID { return topology.IDOf(topology.Shard, r.Name) }

func (r *RemoveShard) ids() []topology.ID {
	return []topology.ID{r.id(), topology.IDOf(topology.Etcd, r.Name)}
}

// Run removes the shard. It reads and writes under the lock.
func (r *RemoveShard) Run(ctx context.Context) error {
	r.reporter = newReporter(r.Observe, r.Now)
	if r.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, r.Timeout, errTimeout{r.Timeout})
		defer cancel()
	}
	return Locked(ctx, r.Runtime, r.run, nil)
}

func (r *RemoveShard) run(ctx context.Context) error {
	objects, err := r.read(ctx)
	if err != nil {
		return err
	}
	own, others := split(objects, func(it plan.Item) bool { return slices.Contains(r.ids(), it.Component) })
	if !r.isShard(own) && !r.hasRemains(ctx) {
		return clierr.New(clierr.BadInput, "kcpctl status lists the shards; remove-shard removes nothing else",
			"shard %q does not exist", r.Name)
	}
	if err := r.CheckEdit(); err != nil {
		return err
	}
	verified, err := r.ensureEmpty(ctx, own)
	if err != nil {
		return err
	}
	return r.remove(ctx, own, others, verified)
}

// read reads everything that the removal depends on.
func (r *RemoveShard) read(ctx context.Context) ([]plan.Item, error) {
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

// isShard reports whether the name belongs to a shard: in the setup, in kcp, or in what an earlier run has applied.
// An etcd of that name is not enough: the cache server and the root shard have one too.
func (r *RemoveShard) isShard(own []plan.Item) bool {
	_, recorded := r.known.Data[r.id()]
	applied := slices.ContainsFunc(own, func(it plan.Item) bool { return it.Component == r.id() })
	return r.Name != topology.CacheName && r.Name != topology.RootShardName &&
		(recorded || applied || r.registered() >= 0 || r.Topology.Component(r.id()) != nil)
}

// registered is the index of the shard among the registered ones; -1 if it is not registered.
func (r *RemoveShard) registered() int {
	return slices.IndexFunc(r.shards, func(s kcp.Shard) bool { return s.Name == r.Name })
}

// undoTime limits how long undoing a cordon may take when the run ends anyway.
const undoTime = 10 * time.Second

// ensureEmpty makes sure that the shard has no logical clusters. A shard that is not empty, and cannot be drained,
// stays as it was. verified is false if that could not be determined: the shard's data is kept then.
func (r *RemoveShard) ensureEmpty(ctx context.Context, own []plan.Item) (verified bool, err error) {
	c, at := r.Topology.Component(r.id()), r.registered()
	was, recorded := r.known.Data[r.id()]
	switch {
	case was.Removed && was.Emptied && at < 0:
		return true, nil // an earlier removal has made sure
	case c == nil && at >= 0:
		return false, clierr.New(clierr.Failed, "add it to spec.shards again",
			"%s is registered and may have workspaces, but is not in the setup file", r.id())
	case at < 0 && len(own) == 0 && !recorded:
		return true, nil // it never ran
	case c == nil:
		return false, r.unknown(errors.New("it is not in the setup file"))
	}
	cordoned := false
	if at >= 0 && !r.shards[at].Cordoned {
		r.step(stepCordon, Running, "")
		if err := r.root.Cordon(ctx, r.Name, true); err != nil {
			return false, r.fail(stepCordon, err)
		}
		cordoned = true
		r.step(stepCordon, Done, "no new workspaces")
	}
	verified, err = r.checkContents(ctx, c, at >= 0)
	if err != nil && cordoned && !r.moving {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
		defer cancel()
		if err := r.root.Cordon(undo, r.Name, false); err == nil {
			r.step(stepCordon, Done, "undone")
		} else {
			r.step(stepCordon, Failed, fmt.Sprintf("shard %s stays cordoned: kcpctl uncordon %[1]s", r.Name))
		}
	}
	return verified, err
}

// unknown continues a removal that cannot list the contents of the shard: it keeps the data, and refuses to purge it.
func (r *RemoveShard) unknown(why error) error {
	if r.Purge || r.Drain {
		return r.fail(stepContents, clierr.New(clierr.Failed,
			"run kcpctl up first, or remove it without --purge and --drain: then its data is kept",
			"%s may have workspaces, but they cannot be listed: %w", r.id(), why))
	}
	r.step(stepContents, Done, "unknown: unreachable and not registered, so kcp routes no requests to it; its data is kept")
	return nil
}

// checkContents lists the logical clusters of the shard, and moves them to other shards if Drain is set.
func (r *RemoveShard) checkContents(ctx context.Context, c *topology.Component, registered bool) (verified bool, err error) {
	r.step(stepContents, Running, "")
	client, err := r.connect(c)
	if err != nil {
		return false, err
	}
	clusters, err := r.settled(ctx, client)
	switch {
	case err != nil && registered:
		return false, r.fail(stepContents, clierr.New(clierr.NotReady, "repair it first: kcpctl status and kcpctl logs "+string(c.ID()),
			"cannot list the logical clusters of %s: %w", c.ID(), err))
	case err != nil:
		return false, r.unknown(err)
	case len(clusters) == 0:
		return true, r.awaitRelease(ctx)
	}
	r.step(stepContents, Done, count(len(clusters), "logical cluster", "logical clusters"))
	if !r.Drain {
		return false, r.notEmpty(clusters)
	}
	if err := r.drain(ctx, c, client, r.shards); err != nil {
		return true, err
	}
	return true, r.awaitRelease(ctx)
}

func (r *RemoveShard) notEmpty(clusters []kcp.LogicalCluster) error {
	return clierr.New(clierr.Failed, "delete them, or move them to other shards with --drain; nothing was changed",
		"%s is not empty: it has %s\n%s", r.id(), count(len(clusters), "logical cluster", "logical clusters"), paths(clusters))
}

// settled returns the logical clusters of the shard. If all of them are being deleted, it waits until they are gone.
func (r *RemoveShard) settled(ctx context.Context, shard *kcp.Client) ([]kcp.LogicalCluster, error) {
	for {
		clusters, err := shard.LogicalClusters(ctx)
		if err != nil || len(clusters) == 0 || slices.ContainsFunc(clusters, func(l kcp.LogicalCluster) bool { return !l.Deleting }) {
			return clusters, err
		}
		r.step(stepContents, Running, clusters[0].String())
		select {
		case <-ctx.Done():
			return clusters, nil
		case <-time.After(pollInterval):
		}
	}
}

// paths lists logical clusters, one per line, up to a limit.
func paths(all []kcp.LogicalCluster) string {
	const most = 50
	var lines []string
	for _, l := range all[:min(most, len(all))] {
		lines = append(lines, "    "+l.String())
	}
	if more := len(all) - most; more > 0 {
		lines = append(lines, fmt.Sprintf("    and %d more", more))
	}
	return strings.Join(lines, "\n")
}

// remove does what is left to do once the shard is empty. An earlier run may have done some of it.
func (r *RemoveShard) remove(ctx context.Context, own, others []plan.Item, verified bool) error {
	r.known = r.known.Remove(verified, r.id())
	for _, id := range r.ids() {
		if _, ok := r.known.Data[id]; ok {
			r.known = r.known.Remove(verified, id)
		}
	}
	if err := r.unregister(ctx, verified); err != nil {
		return r.fail(stepShard, err)
	}
	if err := r.Runtime.Begin(ctx, &plan.Plan{Items: append(slices.Clone(others), own...), Stale: true}, r.known); err != nil {
		return err
	}
	if err := r.forget(ctx); err != nil { // while the topology still has the shard
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
	r.step(stepShard, Done, "shard "+r.Name+" removed from kcp and from the setup file")
	for _, id := range r.ids() { // the shard before its etcd
		items, _ := split(own, func(it plan.Item) bool { return it.Component == id })
		if err := r.delete(ctx, id, items); err != nil {
			return err
		}
		// A process that was restarted in the meantime has registered again.
		if err := r.root.DeleteShard(ctx, r.Name); err != nil {
			return r.fail(stepShard, err)
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

// applied is what the removal has applied: the setup without the shard, or only the removal if the setup has other
// changes.
func (r *RemoveShard) applied(history []plan.Revision, setup []byte) plan.Applied {
	a := plan.Applied{Setup: setup}
	if latest, complete := plan.Latest(history); !complete || !bytes.Equal(latest, r.Before) && !bytes.Equal(latest, setup) {
		a.Only = names(r.ids()[:1])
	}
	return a
}

// unregister deletes the Shard object, so that nothing is scheduled there any more, and checks once more that the
// shard is empty: a workspace that was created in the last moment keeps the shard.
func (r *RemoveShard) unregister(ctx context.Context, verified bool) error {
	r.step(stepShard, Running, "")
	at, c := r.registered(), r.Topology.Component(r.id())
	if err := r.root.DeleteShard(ctx, r.Name); err != nil {
		return err
	}
	if at < 0 || c == nil || !verified {
		return nil
	}
	client, err := r.connect(c)
	if err != nil {
		return err
	}
	clusters, err := client.LogicalClusters(ctx)
	if err == nil && len(clusters) > 0 {
		err = r.notEmpty(clusters)
	}
	if err != nil {
		return errors.Join(err, r.root.RegisterShard(ctx, r.shards[at]))
	}
	return nil
}

func (r *RemoveShard) delete(ctx context.Context, id topology.ID, items []plan.Item) error {
	if len(items) > 0 {
		r.step(string(id), Running, "removing "+count(len(items), "object", "objects"))
		if err := r.Runtime.Delete(ctx, items); err != nil {
			return r.fail(string(id), err)
		}
		r.step(string(id), Done, count(len(items), "object", "objects")+" removed")
	}
	if !r.Purge {
		return nil
	}
	if err := r.Runtime.PurgeData(ctx, id); err != nil {
		return r.fail(stepData, err)
	}
	r.step(stepData, Done, "deleted")
	return nil
}

// forget deletes the shard's certificates from the PKI store.
func (r *RemoveShard) forget(ctx context.Context) error {
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
func (r *RemoveShard) connect(c *topology.Component) (*kcp.Client, error) {
	return kcp.Connect(r.Runtime, c, r.state, r.Now())
}
