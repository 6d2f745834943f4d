package schedule

import (
	"cmp"
	"maps"
	"slices"
)

const (
	// movesPart is the part of the replicas, as its inverse, that moves at a time.
	movesPart = 10
	// leastMoves is how many replicas of a small workload may move in a minute.
	leastMoves = 5
)

// Moves returns how many replicas may move at a time: a tenth of all, and at least one.
func Moves(replicas int64) int64 { return max(1, replicas/movesPart) }

// MovesPerMinute returns how many replicas may move in a minute: a tenth of all, and at least five. A small workload
// moves one at a time, each when the one before is available: with a tenth in a minute, nine replicas would take nine
// minutes.
func MovesPerMinute(replicas int64) int64 { return max(leastMoves, Moves(replicas)) }

// step returns the next step to the goal, and how many replicas move with it. Missing replicas are created at once.
// Others move: the cluster that receives them grows first, and the one that gives them shrinks when they are available.
// A workload that must be alone shrinks first.
func (a *assignment) step(goal map[string]int64, moves int64) (next map[string]Share, moved int64) {
	next = map[string]Share{}
	for name := range goal {
		next[name] = Share{}
	}
	running := int64(0)
	for name, share := range a.previous {
		if a.clusters[name].lost {
			continue
		}
		share.Available = min(share.Available,
			share.Replicas) // the status of a cluster that has just shrunk is that of before
		next[name] = share
		running += share.Replicas
	}
	if a.workload.Alone {
		for _, share := range a.ending {
			running += share.Replicas
		}
	}
	if moves == 0 {
		moves = Moves(a.workload.Replicas)
	}
	switch missing := a.workload.Replicas - running; {
	case missing < 0:
		if a.shrink(next, goal, -missing) == 0 && a.replacing(next, goal) {
			moved = grow(next, goal, moves)
		}
	case a.workload.Alone:
		if held := a.held(); grow(next, goal, missing-held) == 0 && held == 0 {
			moved = a.give(next, goal, moves)
		}
	default:
		grow(next, goal, missing)
		moved = grow(next, goal, moves)
	}
	maps.DeleteFunc(next, func(name string, s Share) bool {
		_, wanted := goal[name]
		return s.Replicas == 0 && !wanted
	})
	return next, moved
}

// held returns how many pods exist beside those that are wanted: what ends still runs.
func (a *assignment) held() (n int64) {
	for name, share := range a.previous {
		if !a.clusters[name].lost {
			n += max(0, share.Existing-share.Replicas)
		}
	}
	return n
}

// portion returns how many of n replicas are given out at a time: one, unless a user wants so many that this would take
// long.
func portion(n int64) int64 { return max(1, n/1000) }

// grow adds replicas to the clusters that lack the most of their goal, and returns how many.
func grow(next map[string]Share, goal map[string]int64, n int64) (grown int64) {
	for most := portion(n); n > 0; {
		name, lacks := furthest(next, func(name string) int64 { return goal[name] - next[name].Replicas })
		if lacks <= 0 {
			return grown
		}
		add := min(n, lacks, most)
		s := next[name]
		s.Replicas += add
		next[name] = s
		n -= add
		grown += add
	}
	return grown
}

// give removes replicas from the clusters that exceed their goal the most, before others replace them, and returns how
// many.
func (a *assignment) give(next map[string]Share, goal map[string]int64, n int64) (given int64) {
	for most := portion(n); n > 0; {
		name, exceeds := furthest(next, func(name string) int64 {
			if c := a.clusters[name]; !c.Settled && !c.Stale {
				return 0
			}
			return next[name].Replicas - goal[name]
		})
		if exceeds <= 0 || len(goal) == 0 {
			return given
		}
		s, less := next[name], min(n, exceeds, most)
		s.Replicas -= less
		next[name] = s
		n -= less
		given += less
	}
	return given
}

// shrink removes replicas from the clusters that exceed their goal the most. Available ones are removed only if enough
// others are available, as far as it is known: what a cluster says that has just come back, or does not answer, is old.
// One of a cluster whose status is stale is presumed to be available, so that another one has to replace it; it does
// not replace others. A Deployment that shrinks removes pods first that are not available. It returns how many are
// removed.
func (a *assignment) shrink(next map[string]Share, goal map[string]int64, n int64) (removed int64) {
	known, presumed := int64(0), int64(0)
	for name, s := range next {
		switch c := a.clusters[name]; {
		case c.Settled:
			known += s.Available
			presumed += s.Available
		case c.Stale:
			presumed += s.Replicas
		}
	}
	removable := func(name string) int64 {
		s, spare := next[name], max(0, known-a.workload.Replicas)
		switch c := a.clusters[name]; {
		case len(a.previous) == 1:
			return s.Replicas // only the user can have made it too much
		case c.Stale:
			return max(0, presumed-a.workload.Replicas)
		case !c.Settled && spare > 0:
			return s.Replicas // without them, as many are available
		case !c.Settled:
			return 0
		}
		return s.Replicas - s.Available + spare
	}
	for most := portion(n); n > 0; {
		name, exceeds := furthest(next, func(name string) int64 {
			if removable(name) == 0 {
				return 0
			}
			return next[name].Replicas - goal[name]
		})
		if exceeds <= 0 {
			return removed
		}
		s, remove := next[name], min(n, exceeds, most, removable(name))
		s.Replicas -= remove
		switch c := a.clusters[name]; {
		case c.Settled:
			known -= max(0, s.Available-s.Replicas)
			presumed -= max(0, s.Available-s.Replicas)
		case c.Stale:
			presumed -= remove
		}
		s.Available = min(s.Available, s.Replicas)
		next[name] = s
		n -= remove
		removed += remove
	}
	return removed
}

// replacing reports whether the next replacements can start although nothing shrinks: those that were started are
// available, and all that is left is to be replaced in clusters that are not heard, such as one that is refused, where
// nothing shrinks.
func (a *assignment) replacing(next map[string]Share, goal map[string]int64) bool {
	if a.workload.Alone {
		return false
	}
	for name, s := range next {
		if a.clusters[name].Settled && (s.Replicas > goal[name] || s.Available < s.Replicas) {
			return false
		}
	}
	return true
}

// furthest returns the cluster with the largest distance, the first by name if there are several.
func furthest(next map[string]Share, distance func(string) int64) (name string, far int64) {
	names := slices.Sorted(maps.Keys(next))
	if len(names) == 0 {
		return "", 0
	}
	name = slices.MaxFunc(names,
		func(x, y string) int { return cmp.Or(cmp.Compare(distance(x), distance(y)), cmp.Compare(y, x)) })
	return name, distance(name)
}
