// Package balance decides which workspaces move, so that all shards have about as many.
package balance

import (
	"cmp"
	"slices"
	"strings"
)

// Workspace is a workspace on a shard.
type Workspace struct {
	Path, Shard string
	// To are the other shards that it may move to. It counts on its shard also if there are none.
	To []string
}

// Move is a workspace that moves.
type Move struct{ Path, From, To string }

// Bounds returns how many workspaces a shard has at least and at most if it is within a percentage of the mean of all
// shards. Both are rounded away from the mean, so that there is a whole number between them.
func Bounds(workspaces, shards, percent int) (least, most int) {
	if shards == 0 {
		return 0, 0
	}
	least = workspaces * max(0, 100-percent) / (100 * shards)
	most = (workspaces*(100+percent) + 100*shards - 1) / (100 * shards)
	return least, most
}

// Counts returns how many workspaces each shard has after moves.
func Counts(shards []string, all []Workspace, moves []Move) map[string]int {
	out := map[string]int{}
	for _, s := range shards {
		out[s] = 0
	}
	for _, w := range all {
		out[w.Shard]++
	}
	for _, m := range moves {
		out[m.From]--
		out[m.To]++
	}
	return out
}

// Plan returns the fewest moves after which each shard is within a percentage of the mean. If workspaces that may not
// move prevent this, it returns the fewest moves after which as few workspaces as possible are outside of the bounds.
// The result depends only on the arguments, and not on their order. The first moves are those between the shards that
// differ most, so that a part of them is useful, too.
func Plan(shards []string, all []Workspace, percent int) []Move {
	shards = slices.Compact(slices.Sorted(slices.Values(shards)))
	index := map[string]int{}
	for i, s := range shards {
		index[s] = i
	}
	classes, total := classify(index, all)
	least, most := Bounds(total, len(shards), percent)
	n := newNetwork(len(classes), len(shards))
	for i, c := range classes {
		n.add(n.source, n.class(i), len(c.paths), 0)
		for _, to := range append([]int{c.from}, c.to...) {
			price := 0
			if to != c.from {
				price = 1
			}
			n.add(n.class(i), n.shard(to), len(c.paths), price)
		}
	}
	// A shard prefers to have what it needs, and to have no more than it may. Both count more than all moves.
	outside := 2*total + 1
	for i := range shards {
		n.add(n.shard(i), n.sink, least, -outside)
		n.add(n.shard(i), n.sink, most-least, 0)
		n.add(n.shard(i), n.sink, total, outside)
	}
	n.solve()
	return inOrder(shards, all, chosen(n, classes, shards))
}

// class has the workspaces of a shard that may move to the same other shards.
type class struct {
	from  int
	to    []int
	paths []string
}

// classify divides the workspaces on known shards, and counts them.
func classify(index map[string]int, all []Workspace) (out []class, total int) {
	by := map[string]int{}
	for _, w := range slices.SortedFunc(slices.Values(all),
		func(a, b Workspace) int { return strings.Compare(a.Path, b.Path) }) {
		from, known := index[w.Shard]
		if !known {
			continue
		}
		total++
		var to []int
		var key strings.Builder
		key.WriteString(w.Shard)
		for _, s := range slices.Compact(slices.Sorted(slices.Values(w.To))) {
			if at, known := index[s]; known && at != from {
				to = append(to, at)
				key.WriteString("/" + s)
			}
		}
		at, known := by[key.String()]
		if !known {
			at = len(out)
			by[key.String()] = at
			out = append(out, class{from: from, to: to})
		}
		out[at].paths = append(out[at].paths, w.Path)
	}
	// The order of the classes must not depend on which path is the first.
	slices.SortFunc(out, func(a, b class) int {
		return cmp.Or(cmp.Compare(a.from, b.from), slices.Compare(a.to, b.to))
	})
	return out, total
}

// chosen returns the moves of a solution: the first workspaces of each class move.
func chosen(n *network, classes []class, shards []string) []Move {
	var out []Move
	for i, c := range classes {
		next := 0
		for _, to := range c.to {
			for range n.flow(n.class(i), n.shard(to)) {
				out = append(out, Move{c.paths[next], shards[c.from], shards[to]})
				next++
			}
		}
	}
	return out
}

// inOrder sorts moves: each is one between the shards that differ most after the previous ones.
func inOrder(shards []string, all []Workspace, moves []Move) []Move {
	type lane struct{ from, to string }
	lanes := map[lane][]Move{}
	var keys []lane
	slices.SortFunc(moves, func(a, b Move) int { return strings.Compare(a.Path, b.Path) })
	for _, m := range moves {
		l := lane{m.From, m.To}
		if len(lanes[l]) == 0 {
			keys = append(keys, l)
		}
		lanes[l] = append(lanes[l], m)
	}
	slices.SortFunc(keys, func(a, b lane) int {
		return cmp.Or(strings.Compare(a.from, b.from), strings.Compare(a.to, b.to))
	})
	has := Counts(shards, all, nil)
	out := make([]Move, 0, len(moves))
	for range moves {
		keys = slices.DeleteFunc(keys, func(l lane) bool { return len(lanes[l]) == 0 })
		most := slices.MaxFunc(keys, func(a, b lane) int {
			return cmp.Compare(has[a.from]-has[a.to], has[b.from]-has[b.to])
		})
		out = append(out, lanes[most][0])
		lanes[most] = lanes[most][1:]
		has[most.from]--
		has[most.to]++
	}
	return out
}
