package cmd

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/kcpctl/kcpctl/internal/desired/operator"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run/deploy"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
	"github.com/kcpctl/kcpctl/internal/runtime/kube"
	"github.com/kcpctl/kcpctl/internal/runtime/kube/adopt"
)

// removeRemains removes what kcp-operator has left of an installation that the setup has taken over.
func (o *importOptions) removeRemains(ctx context.Context) error {
	s, err := openSetup(ctx, o.env, &o.setup)
	if err != nil {
		return err
	}
	defer s.close()
	installation, origin, err := openPredecessor(o.env, &o.setup, s.topology)
	if err != nil {
		return err
	}
	remains, err := installation.Remains(ctx, origin, s.topology.ApplySet(s.topology.Home))
	if err == nil && !remains.Empty() {
		err = installation.Stopped(ctx)
	}
	if err != nil {
		return err
	}
	if len(remains.Left) > 0 {
		fmt.Fprintf(o.env.Streams.Err, "These objects of kcp-operator stay: %s.\n", strings.Join(remains.Left, ", "))
	}
	if remains.Empty() {
		fmt.Fprintf(o.env.Streams.Err, "kcp-operator has left nothing to remove in %s.\n", installation.Where())
		return nil
	}
	if o.dryRun {
		s.env.printPlan(remainsPlan(remains))
		return nil
	}
	if yes, err := o.mayRemove(ctx, installation, remains); err != nil || !yes {
		return err
	}
	end := s.reporter.begin(ctx,
		fmt.Sprintf("remove kcp-operator's part of kcp %q from %s", s.topology.Name, installation.Where()))
	err = (&deploy.TakeOver{
		Topology: s.topology, Runtime: s.runtime, Predecessor: predecessor{installation, remains,
			s.topology}, Name: operator.ManagedBy,
		Observe: s.reporter.observe, Now: o.env.Now,
	}).Run(ctx)
	end()
	if err == nil && len(remains.Authorities) > 0 {
		fmt.Fprintf(o.env.Streams.Err,
			"The keys of the authorities are in %s now. kcp-operator's copies are in the Secrets %s: "+
				"back up the keys with %s, then delete these Secrets.\n",
			s.store(), strings.Join(remains.Authorities, ", "), o.setup.command("certs export DIR"))
	}
	return err
}

func remainsPlan(r *adopt.Remains) *plan.Plan {
	var items []plan.Item
	for _, o := range slices.Concat(r.Servers, r.Objects) {
		items = append(items, plan.Item{Ref: plan.Ref{
			GroupVersionKind: o.GroupVersionKind(), Namespace: o.GetNamespace(), Name: o.GetName(),
		}})
	}
	return deletionOf(items)
}

func (o *importOptions) mayRemove(ctx context.Context, i *adopt.Installation, r *adopt.Remains) (bool, error) {
	return o.env.confirmed(ctx, o.yes, fmt.Sprintf("Remove %s and %s of kcp-operator from %s?",
		gather.Count(len(r.Servers), "Deployment", "Deployments"),
		gather.Count(len(r.Objects), "object", "objects"), i.Where()))
}

// predecessor is the installation of kcp-operator, with its remains.
type predecessor struct {
	*adopt.Installation
	remains  *adopt.Remains
	topology *topology.Topology
}

// Release implements run.Predecessor.
func (p predecessor) Release(ctx context.Context, objects []render.Object) error {
	uses, err := kube.UsedAtHome(p.topology, objects)
	if err != nil {
		return err
	}
	if err := p.RefuseUsed(ctx, uses); err != nil {
		return err
	}
	return p.Installation.Release(ctx, p.remains)
}

// StopServers implements run.Predecessor.
func (p predecessor) StopServers(ctx context.Context) error {
	return p.Installation.StopServers(ctx, p.remains)
}

// RemoveObjects implements run.Predecessor.
func (p predecessor) RemoveObjects(ctx context.Context) error {
	return p.Installation.RemoveObjects(ctx, p.remains)
}
