package deploy

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
	"github.com/kcpctl/kcpctl/internal/kit/poll"
)

// addressRuntime is the part of a runtime that knows the addresses of a setup.
type addressRuntime interface {
	run.Addresser
	run.Reacher
	Record(ctx context.Context) (*record.Record, error)
}

// KnownAddresses returns the addresses that clusters have assigned to the components of a setup: the current ones, or
// else the recorded ones. A recorded host is kept as long as it is one of the current hosts. Clusters that cannot be
// reached are left out of the following calls: their addresses are from the record.
func KnownAddresses(ctx context.Context, rt addressRuntime, t *topology.Topology) (topology.Addresses, error) {
	known, _, err := reachedAddresses(ctx, rt, t)
	return known, err
}

// reachedAddresses excludes the clusters that cannot be reached.
func reachedAddresses(
	ctx context.Context, rt addressRuntime, t *topology.Topology,
) (topology.Addresses, map[topology.ID]string, error) {
	if len(t.Assigned()) == 0 {
		return nil, nil, nil
	}
	left := rt.Unreachable(ctx)
	rt.LeaveOut(left)
	return addresses(ctx, rt, t, left)
}

// addresses also returns, by component, why a run has to wait for an address. The clusters in left are left out.
func addresses(
	ctx context.Context, rt addressRuntime, t *topology.Topology, left []plan.Unreachable,
) (topology.Addresses, map[topology.ID]string, error) {
	assigned := t.Assigned()
	rec, err := rt.Record(ctx)
	if err != nil {
		return nil, nil, err
	}
	reached := slices.DeleteFunc(slices.Clone(assigned), func(c *topology.Component) bool {
		_, out := plan.UnreachableIn(left, c.Cluster.Name)
		return out
	})
	live, err := rt.Addresses(ctx, reached)
	if err != nil {
		return nil, nil, err
	}
	known := topology.Addresses{}
	missing := map[topology.ID]string{}
	for _, c := range assigned {
		now, a := live[c.ID()], topology.Address{}
		if rec != nil {
			a = rec.Addresses[c.ID()]
		}
		if l, out := plan.UnreachableIn(left, c.Cluster.Name); out {
			if known[c.ID()] = a; a == (topology.Address{}) {
				return nil, nil, fmt.Errorf("the address of %s is not known: %w", c.ID(), l.Err)
			}
			continue
		}
		if len(now.Hosts) > 0 && !slices.Contains(now.Hosts, a.Host) {
			a.Host = now.Hosts[0]
		}
		if now.Port != 0 {
			a.Port = now.Port
		}
		known[c.ID()] = a
		if c.Assignment.Host && len(now.Hosts) == 0 || c.Assignment.Port && a.Port == 0 {
			missing[c.ID()] = now.Reason
		}
	}
	return known, missing, nil
}

// Expose requests the addresses that the setup leaves to clusters, because certificates and URLs depend on them: it
// applies the Services of these components, after everything that would refuse the whole run, and waits. Like all
// objects of a run they are remembered first. A run that only changes certificates uses the recorded addresses, also
// while a load balancer has no address.
func (u *Up) Expose(ctx context.Context) (topology.Addresses, error) {
	u.reporter = run.NewReporter(u.Observe, u.Now)
	known, missing, err := reachedAddresses(ctx, u.Runtime, u.Topology)
	if err != nil || len(missing) == 0 || u.Options.DryRun || u.Options.Unedited != nil {
		return known, err
	}
	res, err := (&preparation{Up: u, quiet: true}).run(ctx)
	if err != nil {
		return nil, err
	}
	u.Step(stepAddresses, run.Running, "")
	if !servicesOf(res.Plan, missing).Empty() {
		if err := u.applyServices(ctx, res.Plan, missing); err != nil {
			return nil, u.Fail(stepAddresses, err)
		}
	}
	if known, err = u.waitForAddresses(ctx); err != nil {
		return nil, u.Fail(stepAddresses, err)
	}
	return known, nil
}

// applyServices applies the Services of components, with everything that has to come first.
func (u *Up) applyServices(ctx context.Context, p *plan.Plan, of map[topology.ID]string) error {
	if err := u.applyNamespaces(ctx, p); err != nil {
		return err
	}
	return run.Locked(ctx, u.Runtime, func(ctx context.Context) error {
		again := &preparation{Up: u, quiet: true, again: true}
		res, err := again.run(ctx)
		if err != nil {
			return err
		}
		services := servicesOf(res.Plan, of)
		if err := u.Runtime.Begin(ctx, services, again.known); err != nil {
			return err
		}
		return u.Runtime.Apply(ctx, services.Items, u.Options.PlanOptions)
	}, nil)
}

// servicesOf returns the part of a plan that creates or changes the Services of components.
func servicesOf(p *plan.Plan, of map[topology.ID]string) *plan.Plan {
	out := &plan.Plan{}
	for _, it := range p.Items {
		_, wanted := of[it.Component]
		if wanted && it.Kind == "Service" && (it.Action == plan.Create || it.Action == plan.Change) {
			out.Items = append(out.Items, it)
		}
	}
	return out
}

// waitForAddresses waits until all addresses are assigned, with the reasons while they are not.
func (u *Up) waitForAddresses(ctx context.Context) (topology.Addresses, error) {
	ctx, cancel := run.WithTimeout(ctx, u.Options.Timeout)
	defer cancel()
	var known topology.Addresses
	last := ""
	reasons := run.NewReasons(func(message string) { last = message; u.Step(stepAddresses, run.Running, message) })
	err := poll.Until(ctx, 4*run.PollInterval, nil, func() (_ string, err error) {
		var missing map[topology.ID]string
		known, missing, err = addresses(ctx, u.Runtime, u.Topology, u.left)
		if err != nil && ctx.Err() == nil || err == nil && len(missing) == 0 {
			return "", err
		}
		for _, c := range u.Topology.Assigned() {
			reasons.Set(string(c.ID()), missing[c.ID()])
		}
		return "an address is missing", nil
	})
	switch late := (*poll.Expired)(nil); {
	case err == nil:
		u.Step(stepAddresses, run.Done, gather.Count(len(known), "address is", "addresses are")+" assigned")
		return known, nil
	case !errors.As(err, &late):
		return nil, err
	case !errors.As(late.Cause, new(run.TimedOut)):
		return nil, late.Cause
	}
	return nil, clierr.New(clierr.NotReady, "rerun the command: it continues to wait",
		"no address was assigned within %s: %s", u.Options.Timeout, last)
}

// RequireAddresses returns an error if an address of a setup is not assigned yet.
func RequireAddresses(t *topology.Topology) error { return requireAddresses(t, false) }

// requireAddresses does the same. offline: no cluster was asked.
func requireAddresses(t *topology.Topology, offline bool) error {
	for _, c := range t.Pending() {
		if offline {
			return clierr.New(clierr.Failed, "write the address into the setup file; kcpctl up prints it",
				"the address of %s is assigned by its cluster, and this command contacts no cluster", c.ID())
		}
		return clierr.New(clierr.Failed,
			"run kcpctl up, which asks the cluster for it, or write the address into the setup file",
			"the address of %s is assigned by its cluster, and is not known yet", c.ID())
	}
	return nil
}

// recordAddresses records the addresses of the setup, and notes the ones that change: certificates and URLs change with
// them.
func (g *guard) recordAddresses() {
	assigned := g.Topology.Assigned()
	if g.res.record.SetAddresses(assigned); g.again || g.known.Empty() {
		return
	}
	for _, c := range assigned {
		before, now := g.known.Addresses[c.ID()], c.Assignment.Known
		if before != (topology.Address{}) && before != now {
			g.Note(fmt.Sprintf("%s: its address changes from %s to %s", c.ID(), before, now))
		}
	}
}
