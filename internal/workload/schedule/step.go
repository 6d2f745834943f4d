package schedule

import (
	"cmp"
	"maps"
	"slices"
)

// atOnce returns the goal as the next step. Workloads that are not divided do not move gradually: two instances of a workload that runs
// on one cluster could harm each other.
func (a *assignment) atOnce(goal map[string]int64) map[string]Share {
	next := map[string]Share{}
	for name, n := range goal {
		next[name] = Share{Replicas: n, Available: a.previous[name].Available}
	}
	return next
}

// movesPart is the part of the replicas, as its inverse, that moves at a time.
const movesPart = 10

// Moves returns how many replicas may move at a time: a tenth of all, and at least one.
func Moves(replicas int64) int64 { return max(1, replicas/movesPart) }

// step returns the next step to the goal. Missing replicas are created at once, surplus ones removed at once. Others move: the cluster
// that receives them grows first, and the one that gives them shrinks when they are available.
func (a *assignment) step(goal map[string]int64, moves int64) (next map[string]Share, moved map[string]int64) {
	next, running := a.running(goal)
	total := int64(0)
	for _, n := range goal {
		total += n
	}
	if moves == 0 {
		moves = Moves(total)
	}
	moved = map[string]int64{}
	if running > total {
		shrink(next, goal, running-total, total)
	} else {
		for name, s := range next {
			s.Surge = false // all replicas that were replaced are gone
			next[name] = s
		}
		grow(next, goal, total-running, false)
		before := maps.Clone(next)
		grow(next, goal, moves, true)
		for name, s := range next {
			if n := s.Replicas - before[name].Replicas; n > 0 {
				moved[name] = n
			}
		}
	}
	maps.DeleteFunc(next, func(name string, s Share) bool {
		_, wanted := goal[name]
		return s.Replicas == 0 && !wanted
	})
	return next, moved
}

// running returns the shares without those of lost clusters, and the number of their replicas.
func (a *assignment) running(goal map[string]int64) (next map[string]Share, replicas int64) {
	next = map[string]Share{}
	for name := range goal {
		next[name] = Share{}
	}
	for name, share := range a.previous {
		if c := a.clusters[name]; c == nil || c.Evicted && !c.ok {
			continue // what runs there is removed when the cluster returns
		}
		next[name] = share
		replicas += share.Replicas
	}
	return next, replicas
}

// grow adds replicas to the clusters that lack the most of their goal. Replicas that are to replace running ones are a surge.
func grow(next map[string]Share, goal map[string]int64, n int64, surge bool) {
	for ; n > 0; n-- {
		name, lacks := furthest(next, func(name string) int64 { return goal[name] - next[name].Replicas })
		if lacks <= 0 {
			return
		}
		s := next[name]
		s.Replicas++
		s.Surge = s.Surge || surge
		next[name] = s
	}
}

// shrink removes replicas from the clusters that exceed their goal the most. After a surge, available ones are only removed if total
// others are available. A Deployment that shrinks removes pods first that are not available.
func shrink(next map[string]Share, goal map[string]int64, n, total int64) {
	available, moving := int64(0), false
	for _, s := range next {
		available += s.Available
		moving = moving || s.Surge
	}
	for ; n > 0; n-- {
		name, exceeds := furthest(next, func(name string) int64 {
			if s := next[name]; moving && available <= total && s.Available >= s.Replicas {
				return 0
			}
			return next[name].Replicas - goal[name]
		})
		if exceeds <= 0 {
			return
		}
		s := next[name]
		s.Replicas--
		if s.Available > s.Replicas {
			s.Available--
			available--
		}
		next[name] = s
	}
}

// furthest returns the cluster with the largest distance, the first by name if there are several.
func furthest(next map[string]Share, distance func(string) int64) (name string, far int64) {
	names := slices.Sorted(maps.Keys(next))
	if len(names) == 0 {
		return "", 0
	}
	name = slices.MaxFunc(names, func(x, y string) int { return cmp.Or(cmp.Compare(distance(x), distance(y)), cmp.Compare(y, x)) })
	return name, distance(name)
}
