package schedule

import (
	"cmp"
	"hash/fnv"
	"maps"
	"math"
	"slices"
)

const (
	// tolerance is the part of the replicas, as its inverse, that does not begin to move because of free capacity,
	// which changes all the time.
	tolerance = 5
	// few is the number of replicas of which each one is more than the tolerance.
	few = tolerance
	// advantage is how many times the room that a cluster leaves a cluster with a new replica must have, for workloads
	// of few replicas.
	advantage = 1.2
)

// rank orders candidates with the same weight: those that have a share first, then by a hash, so that different
// workloads prefer different clusters.
func (a *assignment) rank(x, y *candidate) int {
	return cmp.Or(
		cmp.Compare(a.previous[y.Name].Replicas, a.previous[x.Name].Replicas),
		cmp.Compare(a.hash(x.Name), a.hash(y.Name)),
		cmp.Compare(x.Name, y.Name),
	)
}

func (a *assignment) hash(cluster string) uint64 { return hashOf(a.workload.Key, cluster) }

func hashOf(key, cluster string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key + "\x00" + cluster)) // it never fails
	return h.Sum64()
}

func (a *assignment) has(x, y *candidate) int {
	_, hasX := a.previous[x.Name]
	_, hasY := a.previous[y.Name]
	return first(hasX, hasY)
}

func first(x, y bool) int {
	switch {
	case x == y:
		return 0
	case x:
		return -1
	}
	return 1
}

// limit keeps the best candidates if the workload has a largest number of clusters.
func (a *assignment) limit() {
	most := a.workload.Hints.MaxClusters
	all := a.chosen()
	if most == 0 || len(all) <= most {
		return
	}
	slices.SortFunc(all, func(x, y *candidate) int {
		return cmp.Or(a.has(x, y), cmp.Compare(y.weight, x.weight), a.rank(x, y))
	})
	for _, c := range all[most:] {
		c.ok = false
		c.reason = "other clusters are preferred, and the workload is limited by max-clusters"
	}
}

type bounds struct{ least, most int64 }

// divide returns the replicas of each candidate in the end, and how many no candidate can take. Running replicas are
// kept: only missing replicas are divided by the weights, or surplus ones removed. All replicas are divided if the user
// has set the weights, or wants them to be divided again.
func (a *assignment) divide() (goal map[string]int64, unplaced int64) {
	within := map[string]bounds{}
	for _, c := range a.chosen() {
		within[c.Name] = bounds{0, c.most}
	}
	again := a.workload.Rebalance || a.workload.Hints.Weights != nil
	if !again {
		kept := a.kept()
		sum := int64(0)
		for _, n := range kept {
			sum += n
		}
		for name, b := range within {
			if sum <= a.workload.Replicas {
				b.least = kept[name]
			}
			if sum > a.workload.Replicas || kept[name] < min(a.previous[name].Replicas, b.most) {
				b.most = kept[name] // it has too many, or cannot run them
			}
			within[name] = b
		}
	}
	goal, unplaced = a.fill(within)
	if again && a.byRoom && unplaced == 0 && a.near(goal) && !a.continues(goal) {
		for name := range goal {
			goal[name] = a.previous[name].Replicas
		}
	}
	for name, n := range goal {
		if _, had := a.previous[name]; n == 0 && (!had || a.workload.Replicas > 0) {
			delete(goal, name)
		}
	}
	if a.workload.Replicas == 0 {
		// A workload without replicas keeps its leaves, so that its status is known, and gets one if there is no leaf.
		a.keepOne(goal)
	}
	return goal, unplaced
}

// kept returns the replicas that each candidate keeps: not those that cannot run there, and can or do run elsewhere.
func (a *assignment) kept() map[string]int64 {
	all := a.chosen()
	elsewhere := -a.workload.Replicas
	for _, c := range all {
		elsewhere += a.previous[c.Name].Replicas
	}
	elsewhere = max(0, elsewhere)
	for _, c := range all {
		if a.byRoom && c.most == math.MaxInt64 {
			elsewhere = min(math.MaxInt32, elsewhere+c.room)
		}
	}
	out := map[string]int64{}
	for _, c := range all {
		share := a.previous[c.Name]
		stay := min(share.Replicas, c.most)
		if a.byRoom && c.room == 0 {
			moving := min(share.Stuck, elsewhere, stay)
			stay -= moving
			elsewhere -= moving
		}
		out[c.Name] = stay
	}
	return out
}

// fill divides the replicas of the workload by the weights of the candidates, within bounds. Bounds that the
// proportional shares violate are reached first, and the rest is divided among the other candidates.
func (a *assignment) fill(within map[string]bounds) (goal map[string]int64, unplaced int64) {
	goal = map[string]int64{}
	left, open := a.workload.Replicas, a.chosen()
	for {
		shares := a.proportional(left, open)
		fixed := map[string]int64{}
		for _, c := range open {
			if b := within[c.Name]; shares[c.Name] < b.least {
				fixed[c.Name] = b.least
			}
		}
		if len(fixed) == 0 {
			for _, c := range open {
				if b := within[c.Name]; shares[c.Name] > b.most {
					fixed[c.Name] = b.most
				}
			}
		}
		if len(fixed) == 0 {
			for name, n := range shares {
				goal[name] = n
				left -= n
			}
			return goal, a.top(goal, within, left)
		}
		open = slices.DeleteFunc(slices.Clone(open), func(c *candidate) bool {
			n, is := fixed[c.Name]
			if is {
				goal[c.Name] = n
				left -= n
			}
			return is
		})
	}
}

// top divides the replicas that are left among the candidates that have not reached their largest share: one that got
// its smallest share while others were to get more than they can. If only clusters without room accept more, they get
// the rest: the pods wait there, as in a single cluster.
func (a *assignment) top(goal map[string]int64, within map[string]bounds, left int64) int64 {
	for left > 0 {
		open := slices.DeleteFunc(a.chosen(),
			func(c *candidate) bool { return c.weight == 0 || goal[c.Name] >= within[c.Name].most })
		if len(open) == 0 && a.full {
			return left
		}
		if len(open) == 0 {
			a.full = true
			for _, c := range a.chosen() {
				c.weight = max(1, c.weight)
			}
			continue
		}
		for name, n := range a.proportional(left, open) {
			n = min(n, within[name].most-goal[name])
			goal[name] += n
			left -= n
		}
	}
	return left
}

func (a *assignment) keepOne(goal map[string]int64) {
	if all := a.chosen(); len(goal) == 0 && len(all) > 0 {
		c := slices.MinFunc(all,
			func(x, y *candidate) int { return cmp.Or(cmp.Compare(y.weight, x.weight), a.rank(x, y)) })
		goal[c.Name] = 0
	}
}

// exceeds reports whether a candidate has more replicas than its share: it got one of the remaining ones before.
func (a *assignment) exceeds(c *candidate, shares map[string]int64) bool {
	return a.previous[c.Name].Replicas > shares[c.Name]
}

// near reports whether the candidates have all replicas already, and hardly any would move. For few replicas, a move
// has to be worth it: more clusters run some, or the clusters that get some have more room afterwards than those that
// lose them, by a margin, so that nothing moves back.
func (a *assignment) near(goal map[string]int64) bool {
	total, moved := int64(0), int64(0)
	most, least := int64(0), int64(math.MaxInt64)
	more := 0
	for name, n := range goal {
		had := a.previous[name].Replicas
		room := a.clusters[name].room
		total += had
		moved += max(0, n-had)
		switch {
		case n > 0 && had == 0:
			more++
		case n == 0 && had > 0:
			more--
		}
		switch {
		case n > had:
			least = min(least, room-(n-had))
		case n < had:
			most = max(most, room+(had-n))
		}
	}
	switch {
	case total != a.workload.Replicas || moved == 0:
		return false
	case total < few && more > 0:
		return false
	case total < few:
		return float64(least) < advantage*float64(most)
	}
	return moved*tolerance <= total
}

// continues reports whether a move that has begun continues, also if hardly any replicas are left of it: a cluster that
// has joined would otherwise keep less than the others. The last goal and this one agree that a cluster gets more. When
// the last goal is reached, the move has ended, whatever the free capacity has become.
func (a *assignment) continues(goal map[string]int64) bool {
	for name, n := range a.workload.Goal {
		if had := a.previous[name].Replicas; n > had && goal[name] > had {
			return true
		}
	}
	return false
}

// proportional divides replicas by the weights of candidates, by the method of the largest remainder.
func (a *assignment) proportional(replicas int64, all []*candidate) map[string]int64 {
	total := 0.0
	for _, c := range all {
		total += float64(c.weight)
	}
	shares := map[string]int64{}
	if total == 0 {
		for _, c := range all {
			shares[c.Name] = 0 // only clusters that keep what they have, and have nothing
		}
		return shares
	}
	remainder := map[string]float64{}
	left := replicas
	for _, c := range all {
		exact := float64(replicas) * float64(c.weight) / total
		// Rounded first: remainders that differ by an error of the division are equal.
		shares[c.Name] = int64(math.Floor(math.Round(exact*1e6) / 1e6))
		remainder[c.Name] = math.Round((exact-float64(shares[c.Name]))*1e6) / 1e6
		left -= shares[c.Name]
	}
	all = slices.DeleteFunc(slices.Clone(all), func(c *candidate) bool { return c.weight == 0 })
	order := slices.SortedFunc(slices.Values(all), func(x, y *candidate) int {
		return cmp.Or(cmp.Compare(remainder[y.Name], remainder[x.Name]),
			first(a.exceeds(x, shares), a.exceeds(y, shares)), a.rank(x, y))
	})
	for i := range left {
		shares[order[int(i)%len(order)].Name]++
	}
	return shares
}

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

// give removes replicas from the clusters that exceed their goal the most, before others replace them.
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
// not replace others. A Deployment that shrinks removes pods first that are not available.
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
