package balance_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kcpctl/kcpctl/internal/desired/balance"
)

// on returns n workspaces on a shard, which may move to others.
func on(shard string, n int, to ...string) []balance.Workspace {
	var out []balance.Workspace
	for i := range n {
		out = append(out, balance.Workspace{Path: fmt.Sprintf("root:%s%02d", shard, i), Shard: shard, To: to})
	}
	return out
}

func TestBounds(t *testing.T) {
	for _, tc := range []struct{ workspaces, shards, percent, least, most int }{
		{36, 3, 10, 10, 14}, // 12: from 10.8 to 13.2
		{300, 3, 10, 90, 110},
		{4, 3, 10, 1, 2},
		{4, 3, 0, 1, 2},
		{6, 3, 0, 2, 2},
		{1, 3, 10, 0, 1},
		{0, 3, 10, 0, 0},
		{10, 2, 200, 0, 15},
		{0, 0, 10, 0, 0},
	} {
		least, most := balance.Bounds(tc.workspaces, tc.shards, tc.percent)
		require.Equal(t, []int{tc.least, tc.most}, []int{least, most}, "%+v", tc)
	}
}

func TestPlan(t *testing.T) {
	three := []string{"a", "b", "c"}
	for name, tc := range map[string]struct {
		all     []balance.Workspace
		percent int
		moves   int
		counts  map[string]int
	}{
		"30, 6 and 0": {
			all:     slices.Concat(on("a", 30, "b", "c"), on("b", 6, "a", "c")),
			percent: 10, moves: 16, counts: map[string]int{"a": 14, "b": 12, "c": 10},
		},
		"exactly": {
			all: slices.Concat(on("a", 30, "b", "c"), on("b", 6, "a", "c")), moves: 18,
			counts: map[string]int{"a": 12, "b": 12, "c": 12},
		},
		"balanced": {
			all:     slices.Concat(on("a", 11, "b", "c"), on("b", 13, "a", "c"), on("c", 12, "a", "b")),
			percent: 10, counts: map[string]int{"a": 11, "b": 13, "c": 12},
		},
		"nothing may move": {all: on("a", 9), percent: 10, counts: map[string]int{"a": 9, "b": 0, "c": 0}},
		"as near as the selectors permit": {
			all: on("a", 9, "b"), percent: 0, moves: 3, counts: map[string]int{"a": 6, "b": 3, "c": 0},
		},
		"in a chain": { // what is on a may only move to b, and what is on b to c
			all:     slices.Concat(on("a", 6, "b"), on("b", 3, "c")),
			percent: 0, moves: 6, counts: map[string]int{"a": 3, "b": 3, "c": 3},
		},
		"one workspace": {all: on("a", 1, "b", "c"), percent: 10, counts: map[string]int{"a": 1, "b": 0, "c": 0}},
		"none":          {percent: 10, counts: map[string]int{"a": 0, "b": 0, "c": 0}},
		"unknown shards do not count": {
			all: on("z", 50, "a"), percent: 10, counts: map[string]int{"a": 0, "b": 0, "c": 0, "z": 50},
		},
	} {
		t.Run(name, func(t *testing.T) {
			moves := balance.Plan(three, tc.all, tc.percent)
			require.Len(t, moves, tc.moves)
			require.Equal(t, tc.counts, balance.Counts(three, tc.all, moves))
		})
	}
}

// The first moves are between the shards that differ most.
func TestPlanBeginsWithTheLargestDifference(t *testing.T) {
	moves := balance.Plan([]string{"a", "b", "c"}, slices.Concat(on("a", 30, "b", "c"), on("b", 6, "a", "c")), 10)
	require.Equal(t, balance.Move{Path: "root:a06", From: "a", To: "c"}, moves[0])
	require.Equal(t, map[string]int{"a": 24, "b": 6, "c": 6},
		balance.Counts(nil, slices.Concat(on("a", 30), on("b", 6)), moves[:6]))
}

// outside returns how many workspaces are missing from shards or more than they may have.
func outside(counts map[string]int, least, most int) int {
	sum := 0
	for _, n := range counts {
		sum += max(0, least-n) + max(0, n-most)
	}
	return sum
}

// best tries all possibilities, and returns the fewest workspaces outside of the bounds, and the fewest moves to it.
func best(shards []string, all []balance.Workspace, percent int) (left, moves int) {
	least, most := balance.Bounds(len(all), len(shards), percent)
	left, moves = len(all)*len(shards)+1, 0
	var try func(i int, made []balance.Move)
	try = func(i int, made []balance.Move) {
		if i < len(all) {
			try(i+1, made)
			for _, to := range all[i].To {
				try(i+1, append(slices.Clip(made), balance.Move{Path: all[i].Path, From: all[i].Shard, To: to}))
			}
			return
		}
		n := outside(balance.Counts(shards, all, made), least, most)
		if n < left || n == left && len(made) < moves {
			left, moves = n, len(made)
		}
	}
	try(0, nil)
	return left, moves
}

func TestPlanIsTheBest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shards := []string{"a", "b", "c", "d"}[:rapid.IntRange(1, 4).Draw(t, "shards")]
		percent := rapid.SampledFrom([]int{0, 10, 50}).Draw(t, "percent")
		var all []balance.Workspace
		for i := range rapid.IntRange(0, 7).Draw(t, "workspaces") {
			w := balance.Workspace{Path: fmt.Sprint("root:", i), Shard: rapid.SampledFrom(shards).Draw(t, "shard")}
			for _, s := range shards {
				if s != w.Shard && rapid.Bool().Draw(t, "may move to "+s) {
					w.To = append(w.To, s)
				}
			}
			all = append(all, w)
		}
		moves := balance.Plan(shards, all, percent)
		for _, m := range moves {
			at := slices.IndexFunc(all, func(w balance.Workspace) bool { return w.Path == m.Path })
			require.Equal(t, all[at].Shard, m.From)
			require.Contains(t, all[at].To, m.To)
		}
		require.Len(t, slices.Compact(slices.Sorted(func(yield func(string) bool) {
			for _, m := range moves {
				if !yield(m.Path) {
					return
				}
			}
		})), len(moves), "no workspace moves twice")
		least, most := balance.Bounds(len(all), len(shards), percent)
		left, fewest := best(shards, all, percent)
		require.Equal(t, left, outside(balance.Counts(shards, all, moves), least, most))
		require.Len(t, moves, fewest)
		shuffled := rapid.Permutation(all).Draw(t, "order")
		require.Equal(t, moves, balance.Plan(rapid.Permutation(shards).Draw(t, "order of shards"), shuffled, percent))
	})
}
