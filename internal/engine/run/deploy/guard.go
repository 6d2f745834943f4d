package deploy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/format"
)

// sameForAll refuses a run for some components while others still have certificates of previous authorities: a
// replacement was interrupted, and components with old certificates do not trust components with new ones.
func (p *preparation) sameForAll(loaded *pki.State) error {
	if !p.scope().Limited() {
		return nil
	}
	for _, c := range pki.Untrusted(p.Topology, loaded) {
		return clierr.New(clierr.Failed, "run kcpctl up first: it completes the replacement everywhere",
			"certificate authorities are being replaced: %s of %s is not signed by the ones in %s",
			c.Secret, c.Component, p.Runtime.Store())
	}
	return nil
}

// guard refuses a plan that would lose data or trust although every object of it can be applied.
type guard struct {
	*preparation
	// res has the plan.
	res *Result
	// before is the record of the installation, or what the live objects say if it is lost or was restored.
	before *record.Record
}

// check adds the next record of the installation to the result.
func (g *guard) check(ctx context.Context) error {
	if err := g.inherits(ctx); err != nil {
		return err
	}
	res, only := g.res, g.scope()
	switch {
	case g.known.Restored():
		g.before = g.completed()
		if err := g.sameData(g.before); err != nil {
			return err
		}
	case g.known.Empty():
		g.before = g.adopt()
		err := errors.Join(g.noneLost(), g.adoptable(), g.sameAuthorities(g.before, g.desired.Loaded),
			g.sameData(g.before), g.noneUnused(ctx))
		if err != nil {
			return err
		}
	}
	if err := g.ownPrefixes(ctx); err != nil {
		return err
	}
	if err := errors.Join(g.sameTrust(), g.newerLeaves(), g.keepsKeys()); err != nil {
		return err
	}
	want := g.data
	res.data = maps.Clone(want)
	maps.DeleteFunc(res.data, func(id topology.ID, _ record.Data) bool { return !only.Includes(id) })
	res.record = g.before.With(res.PKI.State, res.data)
	res.replaced = res.record.Replaced
	if res.PKI.Renewed() > 0 {
		res.record.Renewals++
	}
	g.recordLabels()
	g.recordAddresses()
	res.record.SetPlaced(res.Plan, only.Limited())
	g.endUsers()
	g.recordAgents()
	g.recordMoved()
	res.record.Forget(g.Options.ForgetClusters)
	switch {
	case !only.Limited():
		res.record.Drop(want)
	case !g.known.Empty():
		// The other components have not gone through the next step of a rotation.
		res.record.Authorities = g.known.Authorities
		res.record.Keyed = g.known.Keyed
		res.record.Replaced = g.known.Replaced
		res.record.Retired = g.known.Retired
		res.record.AuthoritiesApplied = g.known.AuthoritiesApplied
	}
	res.record.AcceptRestored()
	res.Plan.Stale = res.Plan.Stale || g.desired.recovered || g.known.Unnoted() || !res.record.Equal(g.known) ||
		g.known.Format.Number < format.Number
	return g.nextRelease(ctx)
}

// endUsers ends the users whose rights in kcp the run takes away. Their certificates remain valid, and must not get the
// rights of a component that has the same ID later, such as another cluster with the name of one that was removed.
func (g *guard) endUsers() {
	entitled := g.res.record.Entitled()
	var ended []topology.ID
	for id := range g.known.Entitled() {
		if !entitled[id] {
			ended = append(ended, id)
		}
	}
	if len(ended) > 0 {
		g.res.PKI.State.EndUsers(ended...)
	}
}

// recordLabels records which labels the setup has for its shards in kcp, and notes the ones that change: no object
// shows them.
func (g *guard) recordLabels() {
	for _, c := range g.Topology.Shards() {
		if g.scope().Includes(c.ID()) {
			g.res.record.SetLabels(c.ID(), c.ShardLabels)
		}
	}
	if g.again {
		return
	}
	var notes []string
	for _, c := range g.relabelled() {
		notes = append(notes, fmt.Sprintf("%s: labels in kcp change from %s to %s", c.ID(),
			labelText(g.known.Labels[c.ID()]), labelText(c.ShardLabels)))
	}
	g.Note(notes...)
}

// relabelled returns the shards in the scope that have other labels in the setup than before.
func (p *preparation) relabelled() []*topology.Component {
	return slices.DeleteFunc(p.Topology.Shards(), func(c *topology.Component) bool {
		return p.known.Empty() || !p.scope().Includes(c.ID()) || maps.Equal(p.known.Labels[c.ID()], c.ShardLabels)
	})
}

func labelText(all map[string]string) string { return cmp.Or(labels.Set(all).String(), "none") }

// adopt makes a record of the live objects of an installation without a record, because an earlier kcpctl has made it.
func (g *guard) adopt() *record.Record {
	r := &record.Record{
		Installation: g.desired.Loaded.Installation.ID,
		Authorities:  map[string]pki.Fingerprints{}, Data: map[topology.ID]record.Data{}, Witnessed: g.known.Witnessed,
	}
	for _, it := range g.res.Plan.Items {
		if it.Live == nil {
			continue
		}
		if d, ok := record.Of(g.Topology.Name, it.Component, it.Cluster, it.Live); ok {
			r.Data[it.Component] = d
		}
		for key, bundle := range render.TrustIn(g.Topology, it.Live) {
			r.Authorities[key] = pki.BundleFingerprints(bundle)
		}
	}
	if len(r.Authorities) > 0 && r.Installation == "" {
		r.Installation = g.Topology.Name // until it has an ID of its own
	}
	return r
}
