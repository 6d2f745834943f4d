package run

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/pki"
	"github.com/kcpctl/kcpctl/internal/plan"
	"github.com/kcpctl/kcpctl/internal/record"
	"github.com/kcpctl/kcpctl/internal/release"
	"github.com/kcpctl/kcpctl/internal/render"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// loadOwn reads what the installation knows of itself, and its PKI. It refuses a PKI that is not the installation's.
func loadOwn(ctx context.Context, rt Runtime) (*record.Record, *pki.State, error) {
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
func (u *Up) sameAuthorities(r *record.Record, loaded *pki.State) error {
	if u.Options.ReplaceAuthorities {
		return nil
	}
	return r.CheckAuthorities(loaded, u.Runtime.Store().String())
}

// sameForAll refuses a run for some components while others still have certificates of other authorities: a replacement was
// interrupted, and those that it has not reached would not trust the ones that it has.
func (u *Up) sameForAll(loaded *pki.State) error {
	if len(u.Options.Only) == 0 {
		return nil
	}
	for _, c := range pki.Untrusted(u.Topology, loaded) {
		return clierr.New(clierr.Failed, "run kcpctl up first: it completes the replacement everywhere",
			"certificate authorities are being replaced: %s of %s is not signed by the ones in %s", c.Secret, c.Component, u.Runtime.Store())
	}
	return nil
}

// sameData refuses objects that would take data away from who uses it.
func (u *Up) sameData(known *record.Record, objects []render.Object) error {
	return known.CheckData(u.data(objects), u.about, func(id topology.ID) bool { return slices.Contains(u.Options.AllowDataChange, id) })
}

// data is where rendered objects let components hold data.
func (u *Up) data(objects []render.Object) map[topology.ID]record.Data {
	out := map[topology.ID]record.Data{}
	for _, o := range objects {
		if d, ok := record.Of(u.Topology.Name, o.Component, o.Cluster, o.Unstructured); ok {
			out[o.Component] = d
		}
	}
	return out
}

// guard refuses a plan that would lose data or trust although every object of it can be applied. It notes in the result what the
// installation will know of itself.
func (u *Up) guard(ctx context.Context, known *record.Record, loaded *pki.State, objects []render.Object, res *Result) error {
	before := known
	if known.Empty() {
		before = u.adopt(loaded, res.Plan)
		if err := errors.Join(u.sameAuthorities(before, loaded), u.sameData(before, objects)); err != nil {
			return err
		}
	}
	want := u.data(objects)
	chosen := maps.Clone(want)
	maps.DeleteFunc(chosen, func(id topology.ID, _ record.Data) bool { return !u.about(id) })
	res.record = before.With(res.PKI.State, chosen)
	u.recordLabels(known, res.record)
	switch {
	case len(u.Options.Only) == 0:
		res.record.Drop(want)
	case !known.Empty():
		res.record.Authorities, res.record.Retired = known.Authorities, known.Retired // the other components do not have a next step of a rotation yet
	}
	res.Plan.Stale = res.Plan.Stale || !res.record.Equal(known)
	return u.nextRelease(ctx, res.Plan)
}

// adopt reads what an installation without a record, made by an earlier kcpctl, shows of itself in its objects.
func (u *Up) adopt(loaded *pki.State, p *plan.Plan) *record.Record {
	r := &record.Record{
		Installation: loaded.Installation.ID, Authorities: map[string]pki.Fingerprints{}, Data: map[topology.ID]record.Data{},
	}
	for _, it := range p.Items {
		if it.Live == nil {
			continue
		}
		if d, ok := record.Of(u.Topology.Name, it.Component, it.Cluster, it.Live); ok {
			r.Data[it.Component] = d
		}
		for key, bundle := range render.TrustIn(u.Topology, it.Live) {
			r.Authorities[key] = pki.BundleFingerprints(bundle)
		}
	}
	if len(r.Authorities) > 0 && r.Installation == "" {
		r.Installation = u.Topology.Name // as long as it has no other
	}
	return r
}

// nextRelease refuses to skip a release, and to go back to an earlier one. What runs decides, not what a file says.
func (u *Up) nextRelease(ctx context.Context, p *plan.Plan) error {
	if u.Options.AllowReleaseChange {
		return nil
	}
	var errs []error
	for _, it := range p.Items {
		c := u.Topology.Component(it.Component)
		if it.Action != plan.Change || it.Kind != "Deployment" || c == nil {
			continue
		}
		runs := []string{imageTag(it.Live)}
		if runs[0] == c.Version || runs[0] == "" {
			continue
		}
		if s, err := u.Runtime.State(ctx, c); err == nil && s.Version != "" {
			runs = append(runs, s.Version) // a rollout may be stuck
		}
		for _, from := range slices.Compact(runs) {
			if step, err := release.StepTo(from, c.Version); err == nil && step.Refused != "" && from != c.Version {
				errs = append(errs, clierr.New(clierr.Failed, step.Instead+"; to do it all the same: --allow-release-change",
					"%s runs kcp %s: %s", c.ID(), from, step.Refused))
				break
			}
		}
	}
	return errors.Join(errs...)
}

// imageTag is the tag of the image that a workload runs; nothing if it has none.
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
