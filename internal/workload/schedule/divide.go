package schedule

import (
	"cmp"
	"hash/fnv"
	"math"
	"slices"
)

// tolerance is the part of the replicas, as its inverse, that does not begin to move because of free capacity alone, which changes all the time.
const tolerance = 5

// rank orders candidates with the same weight: those that have a share first, then by a hash, so that different
// workloads prefer different clusters.
func (a *assignment) rank(x, y *candidate) int {
	return cmp.Or(
		cmp.Compare(a.previous[y.Name].Replicas, a.previous[x.Name].Replicas),
		cmp.Compare(a.hash(x.Name), a.hash(y.Name)),
		cmp.Compare(x.Name, y.Name),
	)
}

func (a *assignment) hash(cluster string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(a.workload.Key + "\x00" + cluster)) // it never fails
	return h.Sum64()
}

// has orders candidates that have a share before others.
func (a *assignment) has(x, y *candidate) int {
	present := func(c *candidate) int {
		if _, ok := a.previous[c.Name]; ok {
			return 0
		}
		return 1
	}
	return cmp.Compare(present(x), present(y))
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
		c.ok, c.reason = false, "other clusters are preferred, and the workload is limited by max-clusters"
	}
}

// best returns the cluster of a workload that runs on one: where it is, or else the one with the largest weight.
func (a *assignment) best() *candidate {
	all := a.chosen()
	if len(all) == 0 {
		return nil
	}
	chosen := slices.MinFunc(all, func(x, y *candidate) int {
		return cmp.Or(a.has(x, y), cmp.Compare(y.weight, x.weight), a.rank(x, y))
	})
	for _, c := range all {
		if c != chosen {
			c.ok, c.reason = false, "the workload runs on one cluster, and "+chosen.Name+" is preferred"
		}
	}
	return chosen
}

// divide returns the replicas of each candidate in the end, and those that none can take. The shares are proportional to the weights, by
// the method of the largest remainder. Clusters that accept nothing new get no more than they have.
func (a *assignment) divide() (goal map[string]int64, unplaced int64) {
	goal = map[string]int64{}
	left, open := a.workload.Replicas, a.chosen()
	for {
		shares := a.proportional(left, open)
		capped := false
		open = slices.DeleteFunc(slices.Clone(open), func(c *candidate) bool {
			if shares[c.Name] <= c.most {
				return false
			}
			goal[c.Name], capped = c.most, true
			left -= c.most
			return true
		})
		if capped {
			continue
		}
		for _, c := range open {
			goal[c.Name] = shares[c.Name]
			left -= shares[c.Name]
		}
		break
	}
	if a.byRoom && left == 0 && a.near(goal) && !a.continues(goal) {
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
		// A workload without replicas keeps its leaves, so that its status is known, and gets one if it has none.
		a.keepOne(goal)
	}
	return goal, left
}

// keepOne adds the best candidate to an empty goal.
func (a *assignment) keepOne(goal map[string]int64) {
	if all := a.chosen(); len(goal) == 0 && len(all) > 0 {
		c := slices.MinFunc(all, func(x, y *candidate) int { return cmp.Or(cmp.Compare(y.weight, x.weight), a.rank(x, y)) })
		goal[c.Name] = 0
	}
}

// exceeds returns 1 if a candidate has more replicas than its share, or else 0: it got one of the remaining ones before.
func (a *assignment) exceeds(c *candidate, shares map[string]int64) int {
	if a.previous[c.Name].Replicas > shares[c.Name] {
		return 1
	}
	return 0
}

// near reports whether the clusters have all replicas already, and hardly any would move.
func (a *assignment) near(goal map[string]int64) bool {
	total, moved := int64(0), int64(0)
	for name, share := range a.previous {
		if _, ok := goal[name]; !ok && share.Replicas > 0 {
			return false
		}
	}
	for name, n := range goal {
		had := a.previous[name].Replicas
		if had == 0 && n > 0 {
			return false
		}
		total += had
		moved += max(0, n-had)
	}
	return total == a.workload.Replicas && moved*tolerance <= total
}

// continues reports whether a move that has begun goes on, also if hardly any replicas are left of it: a cluster that has joined would stay
// with less than the others. The last goal and this one agree that a cluster gets more. When the last goal is reached, the move has ended,
// whatever the free capacity has become.
func (a *assignment) continues(goal map[string]int64) bool {
	for name, n := range a.workload.Goal {
		if had := a.previous[name].Replicas; n > had && goal[name] > had {
			return true
		}
	}
	return false
}

// proportional divides replicas by the weights of candidates.
func (a *assignment) proportional(replicas int64, all []*candidate) map[string]int64 {
	total := 0.0
	for _, c := range all {
		total += float64(c.weight)
	}
	if total == 0 {
		// Only clusters that keep what they have, and have nothing.
		return map[string]int64{}
	}
	shares := map[string]int64{}
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
		return cmp.Or(cmp.Compare(remainder[y.Name], remainder[x.Name]), a.exceeds(y, shares)-a.exceeds(x, shares), a.rank(x, y))
	})
	for i := range left {
		shares[order[int(i)%len(order)].Name]++
	}
	return shares
}
