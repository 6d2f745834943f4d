package shards

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kcpctl/kcpctl/internal/api/risk"
	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
	"github.com/kcpctl/kcpctl/internal/kit/poll"
)

// removal is the removal of one shard of several.
type removal struct {
	*RemoveShards
	// name is the shard's name in kcp.
	name string
	// own are its objects.
	own []plan.Item
	// clusters are the logical clusters that were found on it.
	clusters []kcp.LogicalCluster
	// verified means that it has no logical clusters. Otherwise its data is kept.
	verified bool
	// settled means that there is no need to wait for its contents.
	settled bool
	// cordoned means that this run has cordoned it.
	cordoned bool
	// moving is set once something may have been moved.
	moving bool
}

// id is the shard as a component, and ids are all components that belong to it.
func (x *removal) id() topology.ID { return topology.IDOf(topology.Shard, x.name) }

func (x *removal) ids() []topology.ID { return idsOfShard(x.name) }

// stepOf is the name of a step that is about this shard.
func (x *removal) stepOf(step string) string {
	if len(x.Names) > 1 {
		return step + " " + x.name
	}
	return step
}

// isShard reports whether the name belongs to a shard: in the setup, in kcp, or in what an earlier run has applied.
// An etcd of that name is not enough: the cache server and the root shard have one too.
func (x *removal) isShard() bool {
	_, recorded := x.known.Data[x.id()]
	applied := slices.ContainsFunc(x.own, func(it plan.Item) bool { return it.Component == x.id() })
	return x.name != topology.CacheName && x.name != topology.RootShardName &&
		(recorded || applied || x.registered() >= 0 || x.Topology.Component(x.id()) != nil)
}

// registered is the index of the shard among the registered ones; -1 if it is not registered.
func (x *removal) registered() int {
	return slices.IndexFunc(x.mover.shards, func(s kcp.Shard) bool { return s.Name == x.name })
}

// undoTime limits how long undoing a cordon may take when the run ends anyway.
const undoTime = 10 * time.Second

// ensureEmpty makes sure that the shards have no logical clusters. Shards that are not empty, and cannot be drained,
// keep their previous state.
func (r *RemoveShards) ensureEmpty(ctx context.Context, all []*removal) error {
	err := r.empty(ctx, all)
	undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	if r.Drain {
		var removed []string
		if err == nil {
			removed = r.Names
		}
		r.mover.restoreReplicas(undo, removed...)
	}
	if err == nil {
		return nil
	}
	for _, x := range all {
		if x.cordoned && !x.moving {
			x.uncordon(undo)
		}
	}
	return err
}

func (r *RemoveShards) empty(ctx context.Context, all []*removal) error {
	for _, step := range []func(*removal) error{
		func(x *removal) error { return x.begin() },
		func(x *removal) error { return x.cordon(ctx) },
	} {
		for _, x := range all {
			if err := step(x); err != nil {
				return err
			}
		}
	}
	var errs []error
	for _, x := range all { // all of them, so that the error has the contents of all
		errs = append(errs, x.inspect(ctx))
	}
	if err := parallel.Join(errs); err != nil {
		return err
	}
	for _, x := range all {
		if err := x.release(ctx); err != nil {
			return err
		}
	}
	return nil
}

// begin decides what is known without asking the shard.
func (x *removal) begin() error {
	c, at := x.Topology.Component(x.id()), x.registered()
	was, recorded := x.known.Data[x.id()]
	switch {
	case was.Removed && was.Emptied && at < 0, // an earlier removal has made sure
		at < 0 && len(x.own) == 0 && !recorded: // it never ran
		x.verified = true
		x.settled = true
		return nil
	case c == nil && at >= 0:
		return clierr.New(clierr.Failed, "add it to spec.shards again",
			"%s is registered and may have workspaces, but is not in the setup file", x.id())
	case c == nil:
		x.settled = true
		return x.unknown(errors.New("it is not in the setup file"))
	}
	return nil
}

func (x *removal) cordon(ctx context.Context) error {
	if at := x.registered(); x.settled || at < 0 || x.mover.shards[at].Cordoned {
		return nil
	}
	step := x.stepOf(stepCordon)
	x.Step(step, run.Running, "")
	if err := x.mover.root.Cordon(ctx, x.name, true); err != nil {
		return x.Fail(step, err)
	}
	x.cordoned = true
	x.Step(step, run.Done, "no new workspaces")
	return nil
}

func (x *removal) uncordon(ctx context.Context) {
	step := x.stepOf(stepCordon)
	if err := x.mover.root.Cordon(ctx, x.name, false); err != nil {
		x.Step(step, run.Failed, fmt.Sprintf("shard %s stays cordoned: kcpctl uncordon %[1]s", x.name))
		return
	}
	x.Step(step, run.Done, "undone")
}

// unknown continues a removal that cannot list the contents of the shard: it keeps the data, and refuses to purge it
// unless the loss is allowed.
func (x *removal) unknown(why error) error {
	step := x.stepOf(stepContents)
	if !x.AllowWorkspaceLoss && (x.Purge || x.Drain) {
		return x.Fail(step, clierr.New(clierr.Failed,
			"run kcpctl up first, or remove it without --purge and --drain: then its data is kept; if it was removed "+
				"already, add it again with kcpctl add-shard "+x.name+" and the same members, or, if its workspaces "+
				"may be lost, pass "+risk.WorkspaceLoss.Flag(),
			"%s may have workspaces, but they cannot be listed: %w", x.id(), why))
	}
	data := "kept"
	if x.Purge {
		data = "deleted"
	}
	x.Step(step, run.Done,
		"unknown: unreachable and not registered, so kcp routes no requests to it; its data is "+data)
	return nil
}

// inspect lists the logical clusters of the shard.
func (x *removal) inspect(ctx context.Context) error {
	if x.settled {
		return nil
	}
	c, step := x.Topology.Component(x.id()), x.stepOf(stepContents)
	x.Step(step, run.Running, "")
	client, err := x.mover.connect(c)
	if err == nil {
		x.clusters, err = x.ended(ctx, client)
	}
	switch {
	case err != nil && x.registered() >= 0:
		x.settled = true
		return x.lose(ctx, err)
	case err != nil:
		x.settled = true
		return x.unknown(err)
	}
	if err := x.noMoves(ctx); err != nil {
		return x.Fail(step, err)
	}
	if len(x.clusters) == 0 {
		return nil
	}
	x.Step(step, run.Done, gather.Count(len(x.clusters), "logical cluster", "logical clusters"))
	if !x.Drain {
		return x.notEmpty(x.clusters)
	}
	return nil
}

// look fails if the shard has logical clusters that are not moved, or if they cannot be listed. It changes nothing, and
// does not wait for deletions.
func (x *removal) look(ctx context.Context) error {
	if err := x.begin(); err != nil || x.settled {
		return err
	}
	client, err := x.mover.connect(x.Topology.Component(x.id()))
	var clusters []kcp.LogicalCluster
	if err == nil {
		clusters, err = client.LogicalClusters(ctx)
	}
	switch {
	case err != nil && x.registered() >= 0:
		return x.lose(ctx, err)
	case err != nil:
		return x.unknown(err)
	}
	if err := x.noMoves(ctx); err != nil {
		return err
	}
	if len(clusters) > 0 && !x.Drain {
		return x.notEmpty(clusters)
	}
	return nil
}

// noMoves refuses a removal without a drain while an earlier run has not finished its moves: kcp may need the shard for
// them, and a drain completes them.
func (x *removal) noMoves(ctx context.Context) error {
	if x.Drain {
		return nil
	}
	begun, err := x.mover.root.Migrating(ctx)
	if err != nil || len(begun) == 0 {
		return err
	}
	return clierr.New(clierr.Failed, "add --drain, which completes the moves; nothing was changed",
		"%s is not removed: an earlier run has not finished its moves, and %s being moved", x.id(),
		gather.Count(len(begun), "logical cluster is", "logical clusters are"))
}

// release moves the logical clusters of the shard to other shards, and waits until kcp no longer needs the shard.
func (x *removal) release(ctx context.Context) error {
	if x.settled {
		return nil
	}
	if x.Drain {
		begun, err := x.mover.root.MigrationBound(ctx)
		switch {
		case err == nil && begun:
			err = x.mover.knowsAll()
		case err == nil:
			err = x.mover.mayBegin(len(x.clusters))
		}
		if err != nil {
			return x.Fail(x.stepOf(stepDrain), err)
		}
		if begun || len(x.clusters) > 0 {
			if err := x.drain(ctx); err != nil {
				return err
			}
		}
	}
	x.verified = true
	return x.awaitRelease(ctx)
}

func (x *removal) notEmpty(clusters []kcp.LogicalCluster) error {
	return clierr.New(clierr.Failed, "delete them, or move them to other shards with --drain; nothing was changed",
		"%s is not empty: it has %s\n%s", x.id(),
		gather.Count(len(clusters), "logical cluster", "logical clusters"), paths(clusters))
}

// ended returns the logical clusters of the shard. If all of them are being deleted, it waits until they are gone.
func (x *removal) ended(ctx context.Context, shard *kcp.Client) ([]kcp.LogicalCluster, error) {
	var clusters []kcp.LogicalCluster
	report := func(reason string) { x.Step(x.stepOf(stepContents), run.Running, reason) }
	err := poll.Until(ctx, run.PollInterval, report, func() (_ string, err error) {
		clusters, err = shard.LogicalClusters(ctx)
		if err != nil || len(clusters) == 0 ||
			slices.ContainsFunc(clusters, func(l kcp.LogicalCluster) bool { return !l.Deleting }) {
			return "", err
		}
		return clusters[0].String(), nil
	})
	if errors.As(err, new(*poll.Expired)) {
		return clusters, nil
	}
	return clusters, err
}

// paths lists logical clusters or workspaces, one per line, up to a limit.
func paths[T fmt.Stringer](all []T) string {
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

func (r *RemoveShards) unregister(ctx context.Context, all []*removal) error {
	for _, x := range all {
		if err := x.unregister(ctx); err != nil {
			return err
		}
	}
	return nil
}

// register creates the Shard objects again that unregister has deleted: no record says yet that the shards go.
func (r *RemoveShards) register(ctx context.Context, all []*removal) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	var errs []error
	for _, x := range all {
		if at := x.registered(); at >= 0 {
			s := x.mover.shards[at]
			s.Cordoned = s.Cordoned || x.moving
			errs = append(errs, x.mover.root.RegisterShard(ctx, s))
		}
	}
	return errors.Join(errs...)
}

// unregister deletes the Shard object, so that workspaces are no longer scheduled there, and checks once more that the
// shard is empty: a workspace that was created in the last moment keeps the shard.
func (x *removal) unregister(ctx context.Context) error {
	x.Step(stepShard, run.Running, "")
	at, c := x.registered(), x.Topology.Component(x.id())
	if err := x.mover.root.DeleteShard(ctx, x.name); err != nil {
		return err
	}
	if at < 0 || c == nil || !x.verified {
		return nil
	}
	client, err := x.mover.connect(c)
	if err != nil {
		return err
	}
	clusters, err := client.LogicalClusters(ctx)
	if err == nil && len(clusters) > 0 {
		err = x.notEmpty(clusters)
	}
	return err
}

// delete deletes the shard's workload and then its etcd.
func (x *removal) delete(ctx context.Context) error {
	for _, id := range x.ids() {
		items, _ := plan.Split(x.own, func(it plan.Item) bool { return it.Component == id })
		if err := x.deleteComponent(ctx, id, items); err != nil {
			return err
		}
		// A process that was restarted in the meantime has registered again.
		if err := x.mover.root.DeleteShard(ctx, x.name); err != nil {
			return x.Fail(stepShard, err)
		}
	}
	return nil
}

func (x *removal) deleteComponent(ctx context.Context, id topology.ID, items []plan.Item) error {
	if len(items) > 0 {
		x.Step(string(id), run.Running, "removing "+gather.Count(len(items), "object", "objects"))
		if err := x.Runtime.Delete(ctx, items); err != nil {
			return x.Fail(string(id), err)
		}
		x.Step(string(id), run.Done, gather.Count(len(items), "object", "objects")+" removed")
	}
	if !x.Purge {
		return nil
	}
	step := x.stepOf(stepData)
	if err := x.Runtime.PurgeData(ctx, id); err != nil {
		return x.Fail(step, err)
	}
	x.Step(step, run.Done, "deleted")
	return nil
}
