package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/format"
)

// loadInstallation reads the record of the installation and its PKI. It refuses a PKI that is not the installation's.
func loadInstallation(ctx context.Context, rt Archive) (*record.Record, *pki.State, error) {
	known, err := rt.Record(ctx)
	if err == nil {
		err = known.CheckRestored()
	}
	if err != nil {
		return nil, nil, err
	}
	state, err := rt.Store().Load(ctx)
	if err != nil {
		return nil, nil, err
	}
	return known, state, known.CheckAuthorities(state, rt.Store().String())
}

// sameForAll refuses a run for some components while others still have certificates of previous authorities: a
// replacement was interrupted, and components with old certificates do not trust components with new ones.
func (p *preparation) sameForAll(loaded *pki.State) error {
	if !p.scope().limited() {
		return nil
	}
	for _, c := range pki.Untrusted(p.Topology, loaded) {
		return clierr.New(clierr.Failed, "run kcpctl up first: it completes the replacement everywhere",
			"certificate authorities are being replaced: %s of %s is not signed by the ones in %s",
			c.Secret, c.Component, p.Runtime.Store())
	}
	return nil
}

// guard refuses a plan that would lose data or trust although every object of it can be applied. It adds the next
// record of the installation to the result.
func (p *preparation) guard(ctx context.Context, res *Result) error {
	if err := p.inherits(ctx, res.Plan); err != nil {
		return err
	}
	before, only := p.known, p.scope()
	switch {
	case p.known.Restored():
		before = p.completed(res.Plan)
		if err := p.sameData(before); err != nil {
			return err
		}
	case p.known.Empty():
		before = p.adopt(res.Plan)
		err := errors.Join(p.adoptable(before), p.sameAuthorities(before, p.desired.Loaded), p.sameData(before),
			p.noneUnused(ctx, before))
		if err != nil {
			return err
		}
	}
	if err := p.ownPrefixes(ctx, res.Plan, before); err != nil {
		return err
	}
	if err := errors.Join(p.sameTrust(res.Plan), p.newerLeaves(res)); err != nil {
		return err
	}
	want := p.data
	res.data = maps.Clone(want)
	maps.DeleteFunc(res.data, func(id topology.ID, _ record.Data) bool { return !only.includes(id) })
	res.record = before.With(res.PKI.State, res.data)
	if res.PKI.Renewed() > 0 {
		res.record.Renewals++
	}
	p.recordLabels(res.record)
	p.recordAddresses(res.record)
	res.record.SetPlaced(res.Plan, only.limited())
	p.recordMoved(res)
	res.record.Forget(p.Options.ForgetClusters)
	switch {
	case !only.limited():
		res.record.Drop(want)
	case !p.known.Empty():
		// The other components have not gone through the next step of a rotation.
		res.record.Authorities = p.known.Authorities
		res.record.Keyed = p.known.Keyed
		res.record.Retired = p.known.Retired
		res.record.AuthoritiesApplied = p.known.AuthoritiesApplied
	}
	res.record.AcceptRestored()
	res.Plan.Stale = res.Plan.Stale || p.known.Unnoted() || !res.record.Equal(p.known) ||
		p.known.Format.Number < format.Number
	return p.nextRelease(ctx, res.Plan, before)
}

// recordLabels records which labels the setup has for its shards in kcp, and notes the ones that change: no object
// shows them.
func (p *preparation) recordLabels(next *record.Record) {
	for _, c := range p.Topology.Shards() {
		if p.scope().includes(c.ID()) {
			next.SetLabels(c.ID(), c.ShardLabels)
		}
	}
	if p.again {
		return
	}
	var notes []string
	for _, c := range p.relabelled() {
		notes = append(notes, fmt.Sprintf("%s: labels in kcp change from %s to %s", c.ID(),
			labelText(p.known.Labels[c.ID()]), labelText(c.ShardLabels)))
	}
	p.note(notes...)
}

// relabelled returns the shards in the scope that have other labels in the setup than before.
func (p *preparation) relabelled() []*topology.Component {
	return slices.DeleteFunc(p.Topology.Shards(), func(c *topology.Component) bool {
		return p.known.Empty() || !p.scope().includes(c.ID()) || maps.Equal(p.known.Labels[c.ID()], c.ShardLabels)
	})
}

func labelText(all map[string]string) string { return cmp.Or(labels.Set(all).String(), "none") }

// adopt makes a record of the live objects of an installation without a record, because an earlier kcpctl has made it.
func (p *preparation) adopt(live *plan.Plan) *record.Record {
	r := &record.Record{
		Installation: p.desired.Loaded.Installation.ID,
		Authorities:  map[string]pki.Fingerprints{}, Data: map[topology.ID]record.Data{}, Witnessed: p.known.Witnessed,
	}
	for _, it := range live.Items {
		if it.Live == nil {
			continue
		}
		if d, ok := record.Of(p.Topology.Name, it.Component, it.Cluster, it.Live); ok {
			r.Data[it.Component] = d
		}
		for key, bundle := range render.TrustIn(p.Topology, it.Live) {
			r.Authorities[key] = pki.BundleFingerprints(bundle)
		}
	}
	if len(r.Authorities) > 0 && r.Installation == "" {
		r.Installation = p.Topology.Name // until it has an ID of its own
	}
	return r
}
