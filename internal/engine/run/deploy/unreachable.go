package deploy

import (
	"context"
	"fmt"
	"slices"

	"github.com/kcpctl/kcpctl/internal/api/risk"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
)

// scope returns the components that the run changes: Options.Only, or all, except on clusters that are left out.
func (u *Up) scope() plan.Scope {
	if len(u.left) == 0 {
		return u.Options.Only
	}
	var out plan.Scope
	for _, c := range u.Topology.Components {
		if _, left := plan.UnreachableIn(u.left, c.Cluster.Name); !left && plan.Scope(u.Options.Only).Includes(c.ID()) {
			out = append(out, c.ID())
		}
	}
	return out
}

// on returns the components on a cluster that the run is about, without the objects that they share.
func (u *Up) on(cluster string) []topology.ID {
	var out []topology.ID
	for _, c := range u.Topology.Components {
		if c.Cluster.Name == cluster && c.Kind != topology.Base && plan.Scope(u.Options.Only).Includes(c.ID()) {
			out = append(out, c.ID())
		}
	}
	return out
}

// withoutClusters returns the clusters that are left out although the run is about components on them.
func (u *Up) withoutClusters() []string {
	var out []string
	for _, l := range u.left {
		if len(u.on(l.Cluster)) > 0 {
			out = append(out, l.Cluster)
		}
	}
	return out
}

// reach finds out which clusters cannot be reached, and leaves them out. It fails if the run is about components there
// and the user does not allow that. A dry run shows the rest of the plan: then that error is the first result.
func (p *preparation) reach(ctx context.Context) (refused, err error) {
	p.left = p.Runtime.Unreachable(ctx)
	if home, lost := plan.UnreachableIn(p.left, p.Topology.Home.Name); lost && !p.Topology.Local() {
		return nil, home.Err
	}
	p.Runtime.LeaveOut(p.left)
	var refusals []error
	for _, l := range p.left {
		if err := p.mayLeaveOut(l); err != nil {
			refusals = append(refusals, err)
		} else if !p.again {
			p.Note(leftOut(l, p.on(l.Cluster)))
		}
	}
	if refused = parallel.Join(refusals); refused != nil && !p.Options.DryRun {
		return nil, p.Fail(stepPlan, refused)
	}
	return refused, p.anythingLeft()
}

// anythingLeft fails if everything that the run is about is on clusters that are left out. An empty scope would mean
// all components.
func (p *preparation) anythingLeft() error {
	if len(p.left) == 0 || len(p.scope()) > 0 {
		return nil
	}
	return p.Fail(stepPlan, clierr.New(clierr.Failed, clierr.Hint(p.left[0].Err),
		"nothing can be changed: %w", p.left[0].Err))
}

// mayLeaveOut refuses to exclude a cluster that the run is about, unless the user allows it and the run may exclude
// clusters.
func (p *preparation) mayLeaveOut(l plan.Unreachable) error {
	there := p.on(l.Cluster)
	if len(there) == 0 {
		return nil
	}
	reason, whole := p.needsAll()
	switch {
	case whole && slices.Contains(p.Options.AllowUnreachable, l.Cluster):
		return clierr.New(clierr.Failed, "", "cluster %s cannot be left out, because %s; nothing was changed: %w",
			l.Cluster, reason, l.Err)
	case slices.Contains(p.Options.AllowUnreachable, l.Cluster):
		return nil
	}
	err := clierr.About(l.Cluster, clierr.Failed, "",
		"cluster %s, with %s, cannot be reached; nothing was changed: %w", l.Cluster, run.Some(there), l.Err)
	if whole || l.Cluster == p.Topology.Home.Name {
		return err
	}
	return clierr.Also(err, "to leave it out for now, pass "+risk.Unreachable.Of(clierr.IDs))
}

// needsAll reports whether the run needs all clusters, and why.
func (p *preparation) needsAll() (reason string, whole bool) {
	switch {
	case p.change != nil:
		return "a step of a rotation must reach all components, or some would not trust the others", true
	case p.Options.ReplaceAuthorities:
		return "components with new authorities and those with previous ones do not trust each other", true
	case p.Options.Renew != nil || p.Options.Unedited != nil:
		return "the certificates of its components could not be renewed", true
	}
	return "", false
}

// leftOut is the note about a cluster that is left out.
func leftOut(l plan.Unreachable, there []topology.ID) string {
	if len(there) == 0 {
		return fmt.Sprintf("cluster %s cannot be reached; the run changes nothing there: %s",
			l.Cluster, run.FirstLine(l.Err))
	}
	return fmt.Sprintf("cluster %s cannot be reached; left out: %s. Run kcpctl up when it answers: %s", l.Cluster,
		run.Some(there), run.FirstLine(l.Err))
}

// frontProxy returns the front-proxy through which a run asks kcp: the one that kcpctl dials, or else the first one
// that accepts client certificates and can be reached, or nil.
func (u *Up) frontProxy() *topology.Component { return run.FrontProxy(u.Topology, u.left) }

// sameLostData refuses to start a component without its data while the cluster with the data cannot be reached: what
// still runs there would serve the same shard.
func (p *preparation) sameLostData(known *record.Record) error {
	for _, id := range p.Options.AllowDataChange {
		was := known.Data[id]
		if l, lost := plan.UnreachableIn(p.left, was.Cluster); lost && p.scope().Includes(id) {
			return clierr.New(clierr.Failed, clierr.Hint(l.Err),
				"%s is on %s, which cannot be reached, and may still run there: it cannot leave its data now: %w", id,
				was.Place(), l.Err)
		}
	}
	return nil
}

// adoptable refuses to record an installation that an earlier kcpctl has made while some of it cannot be seen.
func (g *guard) adoptable() error {
	if len(g.left) == 0 || g.Options.DryRun || len(g.before.Data)+len(g.before.Authorities) == 0 {
		return nil
	}
	l := g.left[0]
	return clierr.New(clierr.Failed, clierr.Hint(l.Err),
		"the installation has no record yet, and the first run must see all of its components: cluster %s cannot be "+
			"reached: %w", l.Cluster, l.Err)
}
