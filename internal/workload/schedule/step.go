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

const (
	// movesPart is the part of the replicas, as its inverse, that moves at a time.
	movesPart = 10
	// leastMoves is how many replicas of a small workload may move in a minute.
	leastMoves = 5
)

// Moves returns how many replicas may move at a time: a tenth of all, and at least one.
func Moves(replicas int64) int64 { return max(1, replicas/movesPart) }

// MovesPerMinute returns how many replicas may move in a minute: a tenth of all, and at least five. A small workload moves one at a time, each
// when the one before is available: with a tenth in a minute, nine replicas would take nine minutes.
func MovesPerMinute(replicas int64) int64 { return max(leastMoves, Moves(replicas)) }

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
		share.Available = min(share.Available, share.Replicas) // the status of a cluster that has just shrunk is that of before
		next[name] = share
		replicas += share.Replicas
	}
	return next, replicas
}

// portion returns how many of n replicas are given out at a time: one, unless a user wants so many that this would take long.
func portion(n int64) int64 { return max(1, n/1000) }

// grow adds replicas to the clusters that lack the most of their goal. Replicas that are to replace running ones are a surge.
func grow(next map[string]Share, goal map[string]int64, n int64, surge bool) {
	for most := portion(n); n > 0; {
		name, lacks := furthest(next, func(name string) int64 { return goal[name] - next[name].Replicas })
		if lacks <= 0 {
			return
		}
		s, add := next[name], min(n, lacks, most)
		s.Replicas += add
		s.Surge = s.Surge || surge
		next[name] = s
		n -= add
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
	for most := portion(n); n > 0; {
		name, exceeds := furthest(next, func(name string) int64 {
			if s := next[name]; moving && available <= total && s.Available >= s.Replicas {
				return 0
			}
			return next[name].Replicas - goal[name]
		})
		if exceeds <= 0 {
			return
		}
		s, remove := next[name], min(n, exceeds, most)
		if moving {
			remove = min(remove, s.Replicas-s.Available+max(0, available-total))
		}
		s.Replicas -= remove
		available -= max(0, s.Available-s.Replicas)
		s.Available = min(s.Available, s.Replicas)
		next[name] = s
		n -= remove
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
