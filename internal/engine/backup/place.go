package backup

import (
	"context"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kcpctl/kcpctl/internal/client/etcd/database"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/backup/archive"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/bytesize"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
)

// place puts the data of all components in place. What is replaced is moved aside.
func (r *Restore) place(ctx context.Context, p *Plan, known *record.Record) error {
	r.step(stepPlace, run.Running, "")
	suffix := "before-" + known.Stopped.Format("20060102T150405Z")
	var kept []string
	for _, id := range p.Restored {
		d := r.manifest.Databases[slices.IndexFunc(r.manifest.Databases,
			func(d archive.Database) bool { return d.Component == id })]
		placed, err := r.placeOne(ctx, d, known.Stopped, suffix)
		if err != nil {
			return r.failComponent(id, err)
		}
		kept = append(kept, placed.Aside...)
		maps.Copy(known.Data, placed.Data)
		if err := r.Runtime.Keep(ctx, known); err != nil {
			return err
		}
		r.component(id, run.Done, gather.Count(d.Keys, "key", "keys")+", "+
			gather.Count(d.LogicalClusters, "logical cluster", "logical clusters"))
	}
	for _, id := range p.Emptied {
		c := r.Topology.Component(id)
		placed, err := r.Place.SetAside(ctx, c, r.restored(id, "", suffix))
		if err != nil {
			return r.failComponent(id, err)
		}
		kept = append(kept, placed.Aside...)
		delete(known.Data, id)
		delete(known.Data, c.Storage.Etcd) // its volumes may be lost
		maps.Copy(known.Data, placed.Data)
		r.component(id, run.Done, "empty: shards fill it again")
	}
	message := "nothing was replaced"
	switch {
	case len(kept) > 0:
		message = "what was there is kept: " + strings.Join(kept, ", ")
	case r.known.Restoring == r.Name:
		message = "nothing more was replaced"
	}
	r.step(stepPlace, run.Done, message)
	return nil
}

func (r *Restore) placeOne(ctx context.Context, d archive.Database, stopped time.Time,
	suffix string) (run.Placed, error) {
	r.component(d.Component, run.Running, "unpacking "+bytesize.Format(d.Size))
	raw := filepath.Join(r.dir, strings.ReplaceAll(path.Base(d.File), ".db.gz", ".db"))
	v := &Verify{Target: r.Target}
	if err := v.unpack(ctx, r.manifest, d, raw); err != nil {
		return run.Placed{}, err
	}
	defer os.Remove(raw) // several large databases may not fit
	if err := database.Prepare(raw, stopped); err != nil {
		return run.Placed{}, err
	}
	r.component(d.Component, run.Running, "writing "+bytesize.Format(d.Size))
	return r.Place.PlaceData(ctx, r.Topology.Component(d.Component), r.restored(d.Component, raw, suffix))
}

// restored describes the data of a component.
func (r *Restore) restored(id topology.ID, file, suffix string) run.Restored {
	report := func(message string) { r.component(id, run.Running, message) }
	return run.Restored{
		File: file, Suffix: suffix, Report: report,
		Progress: func(done, total int64) { report(bytesize.Of(done, total)) },
	}
}
