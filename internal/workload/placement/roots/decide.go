package roots

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/kcpctl/kcpctl/internal/workload/placement/schedule"
	"github.com/kcpctl/kcpctl/internal/workload/placement/splitter"
)

type decider struct {
	*view
	decisions *decisions

	// mu is held for a decision, so that each one knows what others take. While it is held, the locks of the view and
	// of the decisions are taken, and never the other way round.
	mu       sync.Mutex
	reserved reservations
}

func newDecider(v *view) *decider {
	return &decider{view: v, decisions: newDecisions(), reserved: reservations{}}
}

// decide decides where a workload runs, and remembers it. It reports whether the decision affects the places of the
// objects that the workload needs. A mistake in an annotation must not move anything that runs.
func (d *decider) decide(sub *subject) (_ schedule.Decision, affects bool) {
	neighbours := d.neighbours(sub.item, sub.workload.Hints)
	needs := splitter.NeedsOf(sub.root.Unstructured)
	d.mu.Lock()
	defer d.mu.Unlock()
	last, _ := d.decisions.of(sub.item)
	d.decisions.near(neighbours, &sub.workload)
	if last.uid != sub.root.GetUID() {
		last.moved = movesOf(sub.root.Unstructured).now(sub.now) // of the previous controller
		last.shares = nil
	}
	candidates := d.candidates(sub)
	next := decided{moved: last.moved, stuck: stuckSince(last.stuck, sub, candidates), uid: sub.root.GetUID()}
	for cluster, since := range next.stuck {
		if share := sub.previous[cluster]; sub.now.Sub(since) >= stuckAfter {
			share.Stuck = share.Replicas - share.Available
			sub.previous[cluster] = share
		}
	}
	decision := sub.assign(candidates, last.moved)
	next.shares = sharesOf(decision)
	next.divided = sub.workload.Hints.Spread == schedule.Divide
	next.leaving = sub.leaving
	if decision.Moved > 0 {
		sub.moved = last.moved.add(decision.Moved, sub.now)
	}
	d.reserved.record(sub, decision.Next, last.shares)
	next.clusters = slices.Sorted(maps.Keys(decision.Next))
	// Leaves that are not wanted count until they are gone.
	next.seen = fmt.Sprint(next.shares, next.divided, slices.Sorted(maps.Keys(sub.leaves)), sub.root.GetUID(),
		needs, sub.root.GetLabels())
	waits := len(decision.Goal) == 0 || decision.Unplaced > 0 || decision.Message != "" || sub.workload.Rebalance ||
		len(next.stuck) > 0
	d.decisions.remember(sub.item, next, waits, sub.workload.Hints.Spread == schedule.Duplicate)
	return decision, last.seen != next.seen
}

func (d *decider) forget(i item) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reserved.forget(i)
	d.decisions.forget(i)
}

func sharesOf(d schedule.Decision) map[string]int64 {
	out := map[string]int64{}
	for name, share := range d.Next {
		out[name] = share.Replicas
	}
	return out
}
