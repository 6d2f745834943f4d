package deploy

import (
	"context"
	"time"

	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/engine/run/leader"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// Predecessor is what another tool has left of an installation that a setup has taken over.
type Predecessor interface {
	// Release takes from its objects what makes their deletion harmful, and deletes nothing. It fails if the other tool
	// still runs, or if the objects that the setup has rendered use something that would be deleted.
	Release(ctx context.Context, objects []render.Object) error
	// StopServers ends its servers, and waits until they are gone.
	StopServers(ctx context.Context) error
	// RemoveObjects removes the rest, and nothing that the setup has taken over.
	RemoveObjects(ctx context.Context) error
}

// TakeOver removes a predecessor, once the setup serves.
type TakeOver struct {
	Topology    *topology.Topology
	Runtime     run.Runtime
	Predecessor Predecessor
	// Name is the name of the predecessor in messages.
	Name    string
	Observe run.Observer
	Now     func() time.Time
}

// Run removes the predecessor. It refuses to if the setup is not applied completely, or does not serve. If it fails, it
// can be run again.
func (t *TakeOver) Run(ctx context.Context) error {
	up := &Up{Topology: t.Topology, Runtime: t.Runtime, Observe: t.Observe, Now: t.Now}
	up.Options.DryRun = true
	up.Options.Force = true // fields of the predecessor are changes, not conflicts
	res, err := up.Run(ctx)
	if err == nil && !res.Plan.Empty() {
		err = clierr.New(clierr.Failed, "run kcpctl up first",
			"kcp %q does not serve instead of %s yet: %s; nothing was removed", t.Topology.Name, t.Name,
			res.Plan.Summary())
	}
	if err != nil {
		return err
	}
	if err := up.components(ctx, res); err != nil {
		return err
	}
	return run.Locked(ctx, t.Runtime, func(ctx context.Context) error { return t.replace(ctx, up, res) }, nil)
}

// replace ends the servers of the predecessor. Its leaders do not release their leases, so the leaders of the setup
// would start a minute later.
func (t *TakeOver) replace(ctx context.Context, up *Up, res *Result) error {
	what := "installation of " + t.Name
	up.Step(what, run.Running, "releasing")
	objects, err := res.desired.Objects()
	if err == nil {
		err = t.Predecessor.Release(ctx, objects)
	}
	if err != nil {
		return up.Fail(what, err)
	}
	up.Step(what, run.Done, "released")
	servers := "servers of " + t.Name
	up.Step(servers, run.Running, "terminating")
	if err := t.Predecessor.StopServers(ctx); err != nil {
		return up.Fail(servers, err)
	}
	up.Step(servers, run.Done, "gone")
	r := &rollout{Up: up, state: res.PKI.State}
	for _, c := range t.Topology.Shards() {
		if leader.Has(c) {
			r.handOver(ctx, c)
		}
	}
	remains := "objects of " + t.Name
	up.Step(remains, run.Running, "deleting")
	if err := t.Predecessor.RemoveObjects(ctx); err != nil {
		return up.Fail(remains, err)
	}
	up.Step(remains, run.Done, "deleted")
	return nil
}
