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

// RemoveShard takes a shard out of a running kcp: it is cordoned, emptied or found empty, forgotten by kcp, taken out of the
// setup file, and then its workload is removed. A removal that was interrupted continues when it is run again.
type RemoveShard struct {
	// Topology is the setup with the shard; or without, if an earlier removal has come so far.
	Topology *topology.Topology
	Runtime  Runtime
	// Name is the shard's name in kcp.
	Name string
	// Drain moves what lives on the shard to others.
	Drain bool
	// Purge deletes the shard's data too.
	Purge bool
	// CheckEdit reports why the setup file cannot be edited now. It is called before anything is changed.
	CheckEdit func() error
	// Before is the setup as the file has it, and Edit takes the shard out of it and returns what is left. It is called when
	// kcp has forgotten the shard and before its workload is removed.
	Before  []byte
	Edit    func() ([]byte, error)
	Observe Observer
	Now     func() time.Time
	// Timeout limits the wait for moves; 0 is none.
	Timeout time.Duration

	known  *record.Record
	state  *pki.State
	root   *kcp.Client
	shards []kcp.Shard
	// moving is set once something may have been moved.
	moving bool
}

// id is the shard as a component, and ids all components that belong to it.
func (r *RemoveShard) id() topology.ID { return topology.IDOf(topology.Shard, r.Name) }

func (r *RemoveShard) ids() []topology.ID {
	return []topology.ID{r.id(), topology.IDOf(topology.Etcd, r.Name)}
}

// Run removes the shard. It reads and writes under the lock.
func (r *RemoveShard) Run(ctx context.Context) error {
	if r.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, r.Timeout, errTimeout{r.Timeout})
		defer cancel()
	}
	return Locked(ctx, r.Runtime, r.run)
}

func (r *RemoveShard) run(ctx context.Context) error {
	objects, err := r.look(ctx)
	if err != nil {
		return err
	}
	own, others := split(objects, func(it plan.Item) bool { return slices.Contains(r.ids(), it.Component) })
	if !r.isShard(own) && !r.left(ctx) {
		return clierr.New(clierr.BadInput, "kcpctl status lists the shards; remove-shard removes nothing else", "there is no shard %q", r.Name)
	}
	if err := r.CheckEdit(); err != nil {
		return err
	}
	verified, err := r.empty(ctx, own)
	if err != nil {
		return err
	}
	return r.remove(ctx, own, others, verified)
}

// look reads all that the removal depends on.
func (r *RemoveShard) look(ctx context.Context) ([]plan.Item, error) {
	var err error
	if r.known, r.state, err = loadOwn(ctx, r.Runtime); err != nil {
		return nil, err
	}
	objects, err := r.Runtime.Objects(ctx)
	if err != nil {
		return nil, err
	}
	if r.root, err = Connect(r.Runtime, r.Topology.Root(), r.state, r.Now()); err != nil {
		return nil, err
	}
	if r.shards, err = r.root.Shards(ctx); err != nil {
		return nil, clierr.New(clierr.NotReady, "bring it up with kcpctl up first", "the root shard does not answer: %w", err)
	}
	return objects, nil
}

// isShard reports whether the name is that of a shard: in the setup, in kcp, or in what an earlier run has applied. An etcd
// that is called so is not enough: the cache server and the root shard have one too.
func (r *RemoveShard) isShard(own []plan.Item) bool {
	_, recorded := r.known.Data[r.id()]
	applied := slices.ContainsFunc(own, func(it plan.Item) bool { return it.Component == r.id() })
	return r.Name != topology.CacheName && r.Name != topology.RootShardName &&
		(recorded || applied || r.registered() >= 0 || r.Topology.Component(r.id()) != nil)
}

// registered is the place of the shard among the registered ones; -1 if it is not.
func (r *RemoveShard) registered() int {
	return slices.IndexFunc(r.shards, func(s kcp.Shard) bool { return s.Name == r.Name })
}

// undoTime limits how long taking back a cordon may take when the run ends anyway.
const undoTime = 10 * time.Second

// empty makes sure that nothing lives on the shard. A shard that is not empty, and cannot be drained, stays as it was. verified
// is false where nothing could tell what lives there: its data then stays.
func (r *RemoveShard) empty(ctx context.Context, own []plan.Item) (verified bool, err error) {
	c, at := r.Topology.Component(r.id()), r.registered()
	was, recorded := r.known.Data[r.id()]
	switch {
	case was.Removed && was.Emptied && at < 0:
		return true, nil // an earlier removal has made sure
	case c == nil && at >= 0:
		return false, clierr.New(clierr.Failed, "add it to spec.shards again", "%s is registered and may have workspaces, but the setup file does not have it", r.id())
	case at < 0 && len(own) == 0 && !recorded:
		return true, nil // it never ran
	case c == nil:
		return false, r.unknown(errors.New("the setup file does not have it"))
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
	verified, err = r.emptied(ctx, c, at >= 0)
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

// unknown is how a removal continues that cannot look into the shard: it keeps the data, and refuses to delete it.
func (r *RemoveShard) unknown(why error) error {
	if r.Purge || r.Drain {
		return r.fail(stepContents, clierr.New(clierr.Failed,
			"bring it up first (kcpctl up), or remove it without --purge and --drain: its data then stays",
			"%s may hold workspaces, and cannot be looked into: %w", r.id(), why))
	}
	r.step(stepContents, Done, "unknown: unreachable and not registered, so kcp routes no requests to it; its data stays")
	return nil
}

func (r *RemoveShard) emptied(ctx context.Context, c *topology.Component, registered bool) (verified bool, err error) {
	r.step(stepContents, Running, "")
	client, err := Connect(r.Runtime, c, r.state, r.Now())
	if err != nil {
		return false, err
	}
	living, err := r.settled(ctx, client)
	switch {
	case err != nil && registered:
		return false, r.fail(stepContents, clierr.New(clierr.NotReady, "repair it first: kcpctl status and kcpctl logs "+string(c.ID()),
			"cannot list what lives on %s: %w", c.ID(), err))
	case err != nil:
		return false, r.unknown(err)
	case len(living) == 0:
		return true, r.released(ctx)
	}
	r.step(stepContents, Done, count(len(living), "logical cluster", "logical clusters"))
	if !r.Drain {
		return false, r.notEmpty(living)
	}
	if err := r.drain(ctx, c, client, r.shards); err != nil {
		return true, err
	}
	return true, r.released(ctx)
}

func (r *RemoveShard) notEmpty(living []kcp.LogicalCluster) error {
	return clierr.New(clierr.Failed, "delete them, or move them to other shards with --drain; nothing was changed",
		"%s is not empty: %s\n%s", r.id(), count(len(living), "logical cluster lives there", "logical clusters live there"), paths(living))
}

// settled is what lives on the shard. If all of it is being deleted, that is waited for.
func (r *RemoveShard) settled(ctx context.Context, shard *kcp.Client) ([]kcp.LogicalCluster, error) {
	for {
		living, err := shard.LogicalClusters(ctx)
		if err != nil || len(living) == 0 || slices.ContainsFunc(living, func(l kcp.LogicalCluster) bool { return !l.Deleting }) {
			return living, err
		}
		r.step(stepContents, Running, living[0].String())
		select {
		case <-ctx.Done():
			return living, nil
		case <-time.After(pollInterval):
		}
	}
}

// paths lists logical clusters, one per line, but not endlessly.
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

// remove is what is left to do when nothing lives on the shard. Each part may have been done before.
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
	if err := r.forget(ctx); err != nil { // while it is known which they are
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
	r.step(stepShard, Done, "kcp and the setup file have no shard "+r.Name)
	for _, id := range r.ids() { // the shard before its etcd
		items, _ := split(own, func(it plan.Item) bool { return it.Component == id })
		if err := r.delete(ctx, id, items); err != nil {
			return err
		}
		// A process that was started again has registered again.
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

// applied is what the removal has applied: the setup without the shard, or only that of a setup with other changes.
func (r *RemoveShard) applied(history []plan.Revision, setup []byte) plan.Applied {
	a := plan.Applied{Setup: setup}
	if latest, complete := plan.Latest(history); !complete || !bytes.Equal(latest, r.Before) && !bytes.Equal(latest, setup) {
		a.Only = names(r.ids()[:1])
	}
	return a
}

// unregister takes the shard out of kcp, so that nothing is scheduled there any more, and looks once more: what arrived in
// the last moment keeps the shard.
func (r *RemoveShard) unregister(ctx context.Context, verified bool) error {
	r.step(stepShard, Running, "")
	at, c := r.registered(), r.Topology.Component(r.id())
	if err := r.root.DeleteShard(ctx, r.Name); err != nil {
		return err
	}
	if at < 0 || c == nil || !verified {
		return nil
	}
	client, err := Connect(r.Runtime, c, r.state, r.Now())
	if err != nil {
		return err
	}
	living, err := client.LogicalClusters(ctx)
	if err == nil && len(living) > 0 {
		err = r.notEmpty(living)
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

// forget deletes the shard's certificates where the store keeps them.
func (r *RemoveShard) forget(ctx context.Context) error {
	store, ok := r.Runtime.Store().(pki.Forgetter)
	if !ok {
		return nil
	}
	var keys []pki.LeafKey
	for _, id := range r.ids() {
		if c := r.Topology.Component(id); c != nil {
			for _, cert := range pki.CertsOf(r.Topology, c) {
				keys = append(keys, cert.Key())
			}
		}
	}
	return store.Forget(ctx, keys)
}

func (r *RemoveShard) step(name string, s Status, msg string) {
	r.Observe(Event{Time: r.Now(), Scope: Step, Name: name, Status: s, Message: msg})
}

func (r *RemoveShard) fail(step string, err error) error {
	r.step(step, Failed, firstLine(err))
	return err
}
