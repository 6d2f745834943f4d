package backup

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/kcpctl/kcpctl/internal/engine/backup/archive"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
)

// Keep is which backups are kept. A backup is deleted only if no rule keeps it.
type Keep struct {
	// Last is how many of the newest are kept, at least one.
	Last int
	// Within keeps what is younger. Zero keeps nothing because of its age.
	Within time.Duration
}

// Prunable returns the backups that no rule keeps, oldest first. The rules are for the backups of each installation.
// Partial backups do not count among the newest, so they never displace one with all shards. Those that are newer than
// all others count among the partial ones that lack the same shards. One that may lack the last writes of a shard
// counts as partial: it can be older than one that was taken before. The newest backup that can bring back the
// installation is kept, however many without keys are newer.
func Prunable(all []*archive.Manifest, keep Keep, now time.Time) []*archive.Manifest {
	newest := slices.Clone(all)
	slices.SortFunc(newest, func(a, b *archive.Manifest) int { return b.Created.Compare(a.Created) })
	var out []*archive.Manifest
	type class struct{ installation, lacks string } // lacks names the shards that are missing
	kept := map[class]int{}
	complete := map[string]*archive.Manifest{} // the newest one of each installation
	for _, m := range newest {
		if m.Complete() && complete[m.Installation] == nil {
			complete[m.Installation] = m
		}
		its := class{m.Installation, strings.Join(append(missing(m), m.Doubtful()...), ",")}
		if (its.lacks == "" || kept[class{m.Installation, ""}] == 0) && kept[its] < max(1, keep.Last) {
			kept[its]++
			continue
		}
		if m == complete[m.Installation] || keep.Within > 0 && now.Sub(m.Created) < keep.Within {
			continue
		}
		out = append(out, m)
	}
	slices.Reverse(out)
	return out
}

// Prune deletes backups. One that cannot be deleted does not keep the others, or the target would fill.
func Prune(ctx context.Context, from archive.Target, all []*archive.Manifest, report func(name string)) error {
	var errs []error
	for _, m := range all {
		err := archive.Delete(ctx, from, m.Name)
		if err == nil {
			report(m.Name)
			continue
		}
		if errs = append(errs, err); ctx.Err() != nil {
			break
		}
	}
	return parallel.Join(errs)
}
