package shards

import (
	"context"
	"errors"
	"fmt"

	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
	"github.com/kcpctl/kcpctl/internal/kit/poll"
)

// drain moves the logical clusters of a shard to other shards.
type drain struct {
	*removal
	c      *topology.Component
	from   *kcp.Client
	to     *destinations
	report moveReport
	moved  int
}

// drain moves the logical clusters of the shard to the other shards, and waits until it is empty. If some can be on no
// other shard, they are not moved, and drain fails.
func (x *removal) drain(ctx context.Context) error {
	step := x.stepOf(stepDrain)
	x.Step(step, run.Running, "")
	d, err := x.newDrain(ctx)
	if err != nil {
		return x.Fail(step, err)
	}
	x.moving = true
	// If it is interrupted, kcpctl status shows it: workspaces are closed while they move.
	if err := x.Runtime.Begin(ctx, &plan.Plan{Stale: true}, x.known); err != nil {
		return x.Fail(step, err)
	}
	if err := x.mover.root.BindMigration(ctx, func(reason string) { x.Step(step, run.Running, reason) }); err != nil {
		return x.Fail(step, err)
	}
	if d.moved, err = x.mover.complete(ctx, d.to, d.report); err != nil {
		return x.Fail(step, err)
	}
	if err := d.empty(ctx); err != nil {
		return x.Fail(step, err)
	}
	if err := x.mover.root.UnbindMigration(ctx); err != nil {
		return x.Fail(step, err)
	}
	x.Step(step, run.Done, gather.Count(d.moved, "logical cluster", "logical clusters")+" moved")
	return nil
}

// newDrain refuses what can be known before anything is changed.
func (x *removal) newDrain(ctx context.Context) (*drain, error) {
	d := &drain{removal: x, c: x.Topology.Component(x.id()), report: x.mover.asOneStep(x.stepOf(stepDrain))}
	err := x.mover.canMigrate(ctx, d.c)
	if err == nil {
		d.from, err = x.mover.connect(d.c)
	}
	if err == nil {
		d.to, err = x.mover.destinations(ctx)
	}
	if err == nil {
		err = d.to.accepting()
	}
	if err != nil {
		return nil, err
	}
	if staying := d.staying(x.clusters); len(staying) > 0 && len(staying) == len(x.clusters) {
		return nil, x.notMoved(staying)
	}
	return d, nil
}

// empty moves logical clusters until none is left that can move.
func (d *drain) empty(ctx context.Context) error {
	err := poll.Until(ctx, run.PollInterval, nil, func() (string, error) {
		for {
			clusters, err := d.from.LogicalClusters(ctx)
			if err != nil {
				return "", err
			}
			staying := d.staying(clusters)
			if len(staying) == len(clusters) {
				return "", d.notMoved(staying)
			}
			moved, err := d.round(ctx, clusters)
			if err != nil || moved == 0 {
				return fmt.Sprintf("%s still has %s", d.c.ID(), clusters[0]), err
			}
		}
	})
	if late := (*poll.Expired)(nil); errors.As(err, &late) {
		return clierr.New(clierr.NotReady, "run the command again: it continues", "%w", late)
	}
	return err
}

// round moves those logical clusters that can move now, and returns their number. Others are being created or deleted.
func (d *drain) round(ctx context.Context, clusters []kcp.LogicalCluster) (int, error) {
	var moves []WorkspaceMove
	for _, l := range clusters {
		to, reason := d.to.of(l, d.name)
		switch {
		case reason != "":
		case l.Deleting:
			d.Step(d.stepOf(stepDrain), run.Running, l.String())
		case l.Phase != kcp.PhaseReady && !l.Moving:
			d.Step(d.stepOf(stepDrain), run.Running, l.Path+" is "+l.Phase)
		default:
			moves = append(moves, WorkspaceMove{l.Path, l.Name, d.name, to[(d.moved+len(moves))%len(to)]})
		}
	}
	if err := d.mover.mayBegin(len(moves)); err != nil {
		return 0, err
	}
	d.moved += len(moves)
	return len(moves), joinMoves(ctx, d.mover.moveAll(ctx, moves, d.report, true))
}

// staying returns the logical clusters that cannot move.
func (d *drain) staying(all []kcp.LogicalCluster) []staying {
	var out []staying
	for _, l := range all {
		if _, reason := d.to.of(l, d.name); reason != "" && !l.Deleting {
			out = append(out, staying{l, reason})
		}
	}
	return out
}

// notMoved returns the error for logical clusters that cannot move, or nil.
func (x *removal) notMoved(all []staying) error {
	if len(all) == 0 {
		return nil
	}
	return clierr.New(clierr.Failed,
		"add a shard with the labels that they select (kcpctl add-shard NAME --label KEY=VALUE), or change what keeps "+
			"them; then run the command again",
		"%s is not removed: it keeps %s\n%s", x.id(), gather.Count(len(all), "workspace", "workspaces"), paths(all))
}
