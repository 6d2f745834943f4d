package schedule

import (
	"cmp"
	"slices"
)

func (a *assignment) duplicate(d *Decision) {
	for _, c := range a.chosen() {
		d.Goal[c.Name] = a.workload.Replicas
		d.Next[c.Name] = Share{Replicas: a.workload.Replicas, Available: a.previous[c.Name].Available}
	}
	if !a.replaced(d.Goal) {
		a.keep(d, a.mayStay)
	}
}

// single decides about a workload that runs on one cluster. It ends there before it starts on another one, unless the
// cluster is lost and the user wants others to run it, too. Without another cluster, it is not moved.
func (a *assignment) single(d *Decision) {
	best := a.best()
	if best == nil {
		a.keep(d, func(*candidate) bool { return true })
		return
	}
	d.Goal[best.Name] = a.workload.Replicas
	_, here := a.previous[best.Name]
	_, endsHere := a.ending[best.Name]
	elsewhere := len(a.ending) > 0 && !endsHere || len(a.ending) > 1
	for name := range a.previous {
		elsewhere = elsewhere || name != best.Name && !a.clusters[name].lost
	}
	switch {
	case here:
		d.Next[best.Name] = Share{Replicas: a.workload.Replicas, Available: a.previous[best.Name].Available}
		if !a.replaced(d.Goal) {
			a.keep(d, a.mayStay)
		}
	case !elsewhere:
		d.Next[best.Name] = Share{Replicas: a.workload.Replicas}
	}
}

// replaced reports whether the clusters of a goal are known to have what they should have.
func (a *assignment) replaced(goal map[string]int64) bool {
	for name, n := range goal {
		if share, has := a.previous[name]; !has || share.Available < n || !a.clusters[name].Settled {
			return false
		}
	}
	return len(goal) > 0
}

func (a *assignment) mayStay(c *candidate) bool { return a.excluded(c.Cluster) == "" }

// keep adds shares to the next step that nothing replaces yet.
func (a *assignment) keep(d *Decision, which func(*candidate) bool) {
	for name, share := range a.previous {
		if _, there := d.Next[name]; !there && which(a.clusters[name]) {
			share.Replicas = min(share.Replicas, a.workload.Replicas)
			d.Next[name] = share
		}
	}
}

// best returns the cluster of a workload that runs on one: where it is, or where it was to be, or the one with the
// largest weight.
func (a *assignment) best() *candidate {
	all := a.chosen()
	if len(all) == 0 {
		return nil
	}
	chosen := slices.MinFunc(all, func(x, y *candidate) int {
		return cmp.Or(a.has(x, y), a.meant(x, y), steady(x, y), cmp.Compare(y.weight, x.weight), a.rank(x, y))
	})
	for _, c := range all {
		if c != chosen {
			c.ok = false
			c.reason = "the workload runs on one cluster, and " + chosen.Name + " is preferred"
		}
	}
	return chosen
}

// meant orders candidates of the last goal first: a workload that waits for the end of an earlier one starts where that
// has its data.
func (a *assignment) meant(x, y *candidate) int {
	_, toX := a.workload.Goal[x.Name]
	_, toY := a.workload.Goal[y.Name]
	return first(toX, toY)
}

func steady(x, y *candidate) int { return first(x.Ready, y.Ready) }
