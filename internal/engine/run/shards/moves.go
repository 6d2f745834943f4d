// Package shards removes shards, and moves workspaces and their logical clusters between shards.
package shards

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
)

// The steps of moves, besides one for each workspace.
const (
	stepChoice    = "workspaces"
	stepMigration = "migration"
)

// MovesRuntime is what Moves needs of a runtime.
type MovesRuntime interface {
	run.Archive
	run.Locker
	run.RunReader
	run.Applier
	run.Reacher
	MoverRuntime
	// Objects returns everything that the setup has applied.
	Objects(ctx context.Context) ([]plan.Item, error)
}

// Moves moves workspaces to other shards, several at a time. An interrupted run continues when it is run again.
type Moves struct {
	Topology *topology.Topology
	Runtime  MovesRuntime
	// Choice decides what moves.
	Choice Choice
	MoveOptions
	// Confirmed are the moves that the user has confirmed. If the run would make other ones, it refuses. Nil allows
	// all.
	Confirmed []WorkspaceMove
	Observe   run.Observer
	Now       func() time.Time
	// Timeout limits the whole run; 0 means no limit.
	Timeout time.Duration

	*mover
	known *record.Record
}

// Choice decides which workspaces move: Selected or Balanced.
type Choice interface {
	// choose returns the moves, or everything that prevents them.
	choose(w *whole) ([]WorkspaceMove, error)
	// limited returns the moves that one run makes.
	limited(all []WorkspaceMove) []WorkspaceMove
}

// whole has the workspaces of all shards.
type whole struct {
	*mover
	to *destinations
	// clusters are on the shards that they are being moved to, if an earlier run has begun to move them.
	clusters []located
	// begun are the moves of earlier runs by logical cluster, and bound means that one of them has not ended, or has
	// left a logical cluster closed.
	begun map[string]kcp.Begun
	bound bool
	moves []WorkspaceMove
}

// Check returns the moves that Run makes. It fails if they are not possible, and writes nothing.
func (r *Moves) Check(ctx context.Context) ([]WorkspaceMove, error) {
	w, err := r.read(ctx)
	if err != nil {
		return nil, err
	}
	return w.moves, nil
}

// Run moves the workspaces. It reads and writes under the lock.
func (r *Moves) Run(ctx context.Context) error {
	ctx, cancel := run.WithTimeout(ctx, r.Timeout)
	defer cancel()
	return run.Locked(ctx, r.Runtime, r.locked, nil)
}

// read reads everything that the moves depend on, and decides what moves.
func (r *Moves) read(ctx context.Context) (*whole, error) {
	m := mover{
		reporter: run.NewReporter(r.Observe, r.Now), MoveOptions: r.MoveOptions, topology: r.Topology,
		runtime: r.Runtime, now: r.Now,
	}
	if err := reachAll(ctx, r.Topology, r.Runtime); err != nil {
		return nil, err
	}
	var err error
	if r.known, m.state, err = run.LoadInstallation(ctx, r.Runtime); err != nil {
		return nil, err
	}
	if r.mover, err = newMover(ctx, m); err != nil {
		return nil, err
	}
	w, err := r.whole(ctx)
	if err == nil && !w.bound {
		err = r.mayBegin(len(w.moves))
	}
	return w, err
}

// reachAll returns an error unless all shards can be reached: workspaces can be on any of them.
func reachAll(ctx context.Context, t *topology.Topology, rt run.Reacher) error {
	left := rt.Unreachable(ctx)
	rt.LeaveOut(left)
	var errs []error
	for _, l := range left {
		var there []topology.ID
		for _, c := range t.Shards() {
			if c.Cluster.Name == l.Cluster {
				there = append(there, c.ID())
			}
		}
		if len(there) > 0 {
			errs = append(errs, clierr.New(clierr.Failed, clierr.Hint(l.Err),
				"cluster %s, with %s, cannot be reached; nothing was changed: %w", l.Cluster, run.Some(there), l.Err))
		}
	}
	return parallel.Join(errs)
}

// whole reads all shards.
func (r *Moves) whole(ctx context.Context) (*whole, error) {
	w := &whole{mover: r.mover, begun: map[string]kcp.Begun{}}
	var err error
	if w.bound, err = r.root.MigrationBound(ctx); err != nil {
		return nil, err
	}
	if w.bound {
		if err := w.readBegun(ctx); err != nil {
			return nil, err
		}
	}
	clusters, err := r.locate(ctx)
	if err != nil {
		return nil, err
	}
	if !w.bound && slices.ContainsFunc(clusters, func(l located) bool { return l.Moving }) {
		w.bound = true // such as after a restore, which brings the shards back from different moments
		if err := r.knowsAll(); err != nil {
			return nil, err
		}
	}
	w.clusters = w.moved(clusters)
	if w.to, err = r.destinations(ctx); err != nil {
		return nil, err
	}
	all, err := r.Choice.choose(w)
	w.moves = r.Choice.limited(all)
	return w, err
}

// readBegun reads the moves of earlier runs.
func (w *whole) readBegun(ctx context.Context) error {
	begun, err := w.root.Migrating(ctx)
	if err != nil {
		return err
	}
	for _, b := range begun {
		w.begun[b.Cluster] = b
	}
	return w.knowsAll()
}

// moved returns the logical clusters, as if the moves that have begun had ended.
func (w *whole) moved(all []located) []located {
	var out []located
	seen := map[string]bool{}
	for _, l := range all {
		if b, begun := w.begun[l.Name]; begun {
			if seen[l.Name] {
				continue
			}
			seen[l.Name] = true
			if b.Shard != "" {
				l.shard = b.Shard
			}
		}
		out = append(out, l)
	}
	return out
}

func (r *Moves) locked(ctx context.Context) error {
	w, err := r.read(ctx)
	if err != nil {
		return err
	}
	if r.Confirmed != nil && !slices.Equal(r.Confirmed, w.moves) {
		return clierr.New(clierr.Conflict, lookAgain,
			"other workspaces would move now than the ones that were confirmed, because workspaces or shards have "+
				"changed; nothing was changed")
	}
	r.Step(stepChoice, run.Done, gather.Count(len(w.moves), "workspace to move", "workspaces to move"))
	if len(w.moves) == 0 && !w.bound {
		return r.finishEarlier(ctx)
	}
	finish, err := r.begin(ctx)
	if err != nil {
		return err
	}
	err = r.moveChosen(ctx, w)
	undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	r.restoreReplicas(undo)
	if err != nil {
		return err
	}
	return finish(ctx)
}

// moveChosen completes what earlier runs have begun, and then moves what is chosen.
func (r *Moves) moveChosen(ctx context.Context, w *whole) error {
	r.Step(stepMigration, run.Running, "")
	waits := func(reason string) { r.Step(stepMigration, run.Running, reason) }
	if err := r.root.BindMigration(ctx, waits); err != nil {
		return r.Fail(stepMigration, err)
	}
	moved, err := r.complete(ctx, w.to, r.eachOwnStep)
	if err != nil {
		return r.Fail(stepMigration, err)
	}
	var changed []WorkspaceMove
	if w.bound {
		if w, err = r.whole(ctx); err != nil {
			return r.Fail(stepMigration, err)
		}
		w.moves, changed = r.confirmed(w.moves)
	}
	if err := r.mayBegin(len(w.moves)); err != nil {
		return r.Fail(stepMigration, err)
	}
	errs := r.moveAll(ctx, w.moves, r.eachOwnStep, true)
	if err := joinMoves(ctx, errs); err != nil {
		return r.Fail(stepMigration, r.explain(ctx, w.moves, errs, err))
	}
	if err := r.root.UnbindMigration(ctx); err != nil {
		return r.Fail(stepMigration, err)
	}
	if len(changed) > 0 {
		return r.Fail(stepMigration, clierr.New(clierr.Conflict, lookAgain, "%s would move otherwise than confirmed, "+
			"because workspaces or shards have changed, and did not move\n%s",
			gather.Count(len(changed), "workspace", "workspaces"), paths(changed)))
	}
	r.Step(stepMigration, run.Done, gather.Count(moved+len(w.moves), "workspace", "workspaces")+" moved")
	return nil
}

// lookAgain is what to do if other moves than the confirmed ones would be made.
const lookAgain = "run the command again, and look at the moves"

// confirmed returns the moves that the user has confirmed, and the other moves of the same workspaces.
func (r *Moves) confirmed(all []WorkspaceMove) (same, changed []WorkspaceMove) {
	for _, w := range all {
		switch {
		case r.Confirmed == nil || slices.Contains(r.Confirmed, w):
			same = append(same, w)
		case slices.ContainsFunc(r.Confirmed, func(c WorkspaceMove) bool { return c.Cluster == w.Cluster }):
			changed = append(changed, w)
		}
	}
	return same, changed
}

// eachOwnStep reports moves as a step each.
func (r *Moves) eachOwnStep(w WorkspaceMove, s run.Status, message string) {
	if w.To != "" {
		message = strings.TrimSuffix(fmt.Sprintf("from shard %s to shard %s: %s", w.From, w.To, message), ": ")
	}
	r.Step(w.Workspace, s, message)
}

// explain adds to the error of moves where each workspace is now that has not moved.
func (r *Moves) explain(parent context.Context, moves []WorkspaceMove, errs []error, why error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(parent), undoTime)
	defer cancel()
	all, unknown := r.locate(ctx) // with the shards that answer
	var lines []string
	for i, w := range moves {
		switch {
		case errs[i] == nil:
			continue
		case errors.Is(errs[i], errNotBegun):
			r.Step(w.Workspace, run.NotStarted, "is "+whereabouts(all, w.Cluster))
		}
		lines = append(lines, w.Workspace+" is "+whereabouts(all, w.Cluster))
	}
	if unknown != nil {
		lines = append(lines, run.FirstLine(unknown))
	}
	const most = 50
	if more := len(lines) - most; more > 0 {
		lines = append(lines[:most], fmt.Sprintf("and %d more", more))
	}
	return &clierr.Error{Err: fmt.Errorf("%w\n    %s", why, strings.Join(lines, "\n    ")), Code: clierr.Code(why),
		Hint: clierr.Hint(why)}
}

// movesCommands are the commands that run Moves.
var movesCommands = []string{"kcpctl move ", "kcpctl rebalance"}

// otherThanMoves reports whether a run is one of another command. Only that command may mark it as finished.
func otherThanMoves(last *record.Run) bool {
	return last != nil &&
		!slices.ContainsFunc(movesCommands, func(c string) bool { return strings.HasPrefix(last.Command, c) })
}

// begin remembers that the run has begun, so that kcpctl status shows it if it is interrupted. If the run of another
// command has not finished, status continues to show that one.
func (r *Moves) begin(ctx context.Context) (finish func(context.Context) error, err error) {
	_, unfinished, err := r.Runtime.Runs(ctx)
	if err != nil {
		return nil, err
	}
	if otherThanMoves(unfinished) {
		return func(context.Context) error { return nil }, nil
	}
	objects, err := r.Runtime.Objects(ctx)
	if err != nil {
		return nil, err
	}
	if err := r.Runtime.Begin(ctx, &plan.Plan{Items: objects, Stale: true}, r.known); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		return r.Runtime.Finish(ctx, &plan.Plan{Items: objects}, r.known, plan.Applied{})
	}, nil
}

// finishEarlier marks an earlier run as finished that has moved everything and was interrupted after that.
func (r *Moves) finishEarlier(ctx context.Context) error {
	_, unfinished, err := r.Runtime.Runs(ctx)
	if err != nil || unfinished == nil || otherThanMoves(unfinished) {
		return err
	}
	r.restoreReplicas(ctx)
	finish, err := r.begin(ctx)
	if err != nil {
		return err
	}
	return finish(ctx)
}
