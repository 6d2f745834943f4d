package deploy

import (
	"context"
	"slices"

	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// readData returns where components keep data according to the rendered objects, with details from the storage.
func (p *preparation) readData(ctx context.Context) (map[topology.ID]record.Data, error) {
	out := map[topology.ID]record.Data{}
	for _, o := range p.objects {
		d, ok := record.Of(p.Topology.Name, o.Component, o.Cluster, o.Unstructured)
		if !ok {
			continue
		}
		if c := p.Topology.Component(o.Component); c != nil {
			d.Release = record.ReleaseOf(c, o.Unstructured)
		}
		out[o.Component] = d
	}
	found, err := p.Runtime.Storage(ctx, out)
	if err != nil {
		return nil, err
	}
	for id, d := range out {
		d = d.On(found[id])
		if d.Volumes == nil && p.mayLose(id) {
			d.Volumes = map[string]string{} // those that were recorded are lost
		}
		out[id] = d
	}
	return out, nil
}

// noneUnused refuses to make an installation where volumes of one remain whose record is lost, although the setup does
// not use them: its file was changed since.
func (g *guard) noneUnused(ctx context.Context) error {
	if len(g.before.Data) > 0 { // what runs shows which volumes are in use
		return nil
	}
	unused, err := g.Runtime.Unused(ctx, g.data)
	if err != nil {
		return err
	}
	return record.CheckUnused(unused, g.scope().Includes, g.mayLose)
}

// sameRecordedData refuses objects that would separate a component from its data, by the record. Without a record, or
// with a restored one, guard decides once the live objects are known.
func (p *preparation) sameRecordedData() error {
	if p.known.Empty() || p.known.Restored() {
		return p.sameLostData(p.known)
	}
	return p.sameData(p.known)
}

// sameData refuses objects that would separate a component from its data.
func (p *preparation) sameData(known *record.Record) error {
	if err := p.sameLostData(known); err != nil {
		return err
	}
	return known.CheckData(p.data, p.scope().Includes, p.mayLose)
}

// mayLose reports whether a component may leave its data.
func (p *preparation) mayLose(id topology.ID) bool {
	return slices.Contains(p.Options.AllowDataChange, id)
}

// recordVolumes records the volumes that the components of a run have now: the volumes of new components did not exist
// when the run began.
func (u *Up) recordVolumes(ctx context.Context, res *Result) error {
	found, err := u.Runtime.Storage(ctx, res.data)
	if err != nil {
		return err
	}
	res.record.SetVolumes(found)
	return nil
}
