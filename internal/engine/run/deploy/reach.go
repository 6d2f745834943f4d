package deploy

import (
	"context"

	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/check"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
)

// probe tries, from inside the clusters, the addresses at which components dial components of other clusters. The pods
// for it need the namespaces, and are the only other thing that a run creates before it takes the lock. Runs that
// change only certificates leave it out: they change no address.
func (u *Up) probe(ctx context.Context, res *Result) error {
	if !u.Topology.Probes() || u.change != nil || u.Options.Renew != nil {
		return nil
	}
	objects, err := res.desired.Objects()
	if err != nil {
		return err
	}
	u.Step(stepReachability, run.Running, "trying addresses from inside the clusters")
	report := check.Run(ctx, &check.Subject{
		Topology: u.Topology, Runtime: u.Runtime, Objects: objects, Now: u.Now, Network: u.Network,
		Moving: moving(u.Topology, res.Plan),
	}, check.WithPods())
	report.Ignore(u.Options.IgnoreChecks...)
	if u.scope().Limited() { // the components that the run leaves alone may have problems of their own
		for _, c := range check.WithPods() {
			report.Ignore(c.ID)
		}
	}
	u.Emit(run.Event{Scope: run.Note, Message: check.Summarize(report.Reachability),
		Table: check.Table(report.Reachability, false)})
	for _, w := range report.Warnings() {
		u.Note(w)
	}
	if err := report.Err(); err != nil {
		return u.Fail(stepReachability, err)
	}
	u.Step(stepReachability, run.Done, gather.Count(len(report.Reachability), "address", "addresses")+" tried")
	return nil
}

// notProbed says that a dry run, which has made a plan, has not tried addresses.
func (u *Up) notProbed(err error) {
	if err == nil && u.Topology.Probes() {
		u.Note("a dry run creates no pods: kcpctl check --pre tries the addresses between the clusters")
	}
}

// moving are the components whose address or serving certificate a plan changes. They cannot answer at the new address
// before the plan is applied.
func moving(t *topology.Topology, p *plan.Plan) map[topology.ID]bool {
	out := map[topology.ID]bool{}
	for _, it := range p.Items {
		c := t.Component(it.Component)
		if it.Action == plan.Unchanged || it.Action == plan.Unknown || c == nil || !c.Kind.Serves() {
			continue
		}
		switch it.Kind {
		case "Deployment", "ConfigMap", "PersistentVolumeClaim", "PodDisruptionBudget", "HorizontalPodAutoscaler":
		case "Secret":
			out[c.ID()] = out[c.ID()] || it.Name == c.CertSecret(topology.CertServer)
		default:
			out[c.ID()] = true
		}
	}
	return out
}
