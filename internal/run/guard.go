package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/pki"
	"github.com/kcpctl/kcpctl/internal/plan"
	"github.com/kcpctl/kcpctl/internal/record"
	"github.com/kcpctl/kcpctl/internal/release"
	"github.com/kcpctl/kcpctl/internal/render"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// loadInstallation reads the record of the installation and its PKI. It refuses a PKI that is not the installation's.
func loadInstallation(ctx context.Context, rt Archive) (*record.Record, *pki.State, error) {
	known, err := rt.Record(ctx)
	if err != nil {
		return nil, nil, err
	}
	state, err := rt.Store().Load(ctx)
	if err != nil {
		return nil, nil, err
	}
	return known, state, known.CheckAuthorities(state, rt.Store().String())
}

// sameAuthorities refuses a PKI that is not the installation's.
func (p *preparation) sameAuthorities(r *record.Record, loaded *pki.State) error {
	if p.Options.ReplaceAuthorities {
		return nil
	}
	return r.CheckAuthorities(loaded, p.Runtime.Store().String())
}

// sameForAll refuses a run for some components while others still have certificates of previous authorities: a
// replacement was interrupted, and components with old certificates do not trust those with new ones.
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

// sameData refuses objects that would separate a component from its data.
func (p *preparation) sameData(known *record.Record) error {
	if err := p.sameLostData(known); err != nil {
		return err
	}
	allowed := func(id topology.ID) bool { return slices.Contains(p.Options.AllowDataChange, id) }
	return known.CheckData(p.data(), p.scope().includes, allowed)
}

// data returns where the rendered objects let components keep data.
func (p *preparation) data() map[topology.ID]record.Data {
	out := map[topology.ID]record.Data{}
	for _, o := range p.objects {
		if d, ok := record.Of(p.Topology.Name, o.Component, o.Cluster, o.Unstructured); ok {
			out[o.Component] = d
		}
	}
	return out
}

// guard refuses a plan that would lose data or trust although every object of it can be applied. It adds the next
// record of the installation to the result.
func (p *preparation) guard(ctx context.Context, res *Result) error {
	before, only := p.known, p.scope()
	if p.known.Empty() {
		before = p.adopt(res.Plan)
		if err := errors.Join(p.adoptable(before), p.sameAuthorities(before, p.desired.Loaded), p.sameData(before)); err != nil {
			return err
		}
	}
	want := p.data()
	included := maps.Clone(want)
	maps.DeleteFunc(included, func(id topology.ID, _ record.Data) bool { return !only.includes(id) })
	res.record = before.With(res.PKI.State, included)
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
		res.record.Authorities, res.record.Retired = p.known.Authorities, p.known.Retired
		res.record.AuthoritiesApplied = p.known.AuthoritiesApplied
	}
	res.Plan.Stale = res.Plan.Stale || !res.record.Equal(p.known)
	return p.nextRelease(ctx, res.Plan)
}

// recordLabels records which labels the setup has for its shards in kcp, and notes the ones that change: no object shows
// them.
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
		notes = append(notes, fmt.Sprintf("%s: labels in kcp change from %s to %s", c.ID(), labelText(p.known.Labels[c.ID()]), labelText(c.ShardLabels)))
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

// adopt makes a record of the live objects of an installation that has none, because an earlier kcpctl has made it.
func (p *preparation) adopt(live *plan.Plan) *record.Record {
	r := &record.Record{
		Installation: p.desired.Loaded.Installation.ID,
		Authorities:  map[string]pki.Fingerprints{}, Data: map[topology.ID]record.Data{},
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

// nextRelease refuses to skip a kcp release, and to return to an earlier one. It compares with what runs, not with a
// file.
func (p *preparation) nextRelease(ctx context.Context, pl *plan.Plan) error {
	if p.Options.AllowReleaseChange {
		return nil
	}
	var errs []error
	for _, it := range pl.Items {
		c := p.Topology.Component(it.Component)
		if it.Action != plan.Change || it.Kind != "Deployment" || c == nil {
			continue
		}
		runs := []string{imageTag(it.Live)}
		if runs[0] == c.Version || runs[0] == "" {
			continue
		}
		if s, err := p.Runtime.State(ctx, c); err == nil && s.Version != "" {
			runs = append(runs, s.Version) // a rollout may be stuck
		}
		for _, from := range slices.Compact(runs) {
			if step, err := release.StepTo(from, c.Version); err == nil && step.Refused != "" && from != c.Version {
				errs = append(errs, clierr.New(clierr.Failed, step.Instead+"; to do it anyway: --allow-release-change",
					"%s runs kcp %s: %s", c.ID(), from, step.Refused))
				break
			}
		}
	}
	return errors.Join(errs...)
}

// imageTag returns the tag of the image that a workload runs; empty if it has none.
func imageTag(o *unstructured.Unstructured) string {
	containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
	for _, c := range containers[:min(1, len(containers))] {
		m, _ := c.(map[string]any)
		image := fmt.Sprint(m["image"])
		if at := strings.LastIndex(image, ":"); at > strings.LastIndex(image, "/") && !strings.Contains(image, "@") {
			return image[at+1:]
		}
	}
	return ""
}
