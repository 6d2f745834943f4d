package schedule_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kcpctl/kcpctl/internal/workload/placement/schedule"
)

// pods are those that each cluster of these tests has room for.
const pods = 110

// crowd returns clusters with room for the pods that do not run there yet, as far as their last reports tell: off is
// the difference.
func crowd(previous map[string]schedule.Share, off map[string]int64, names ...string) []schedule.Cluster {
	var all []schedule.Cluster
	for _, name := range names {
		all = append(all, with(ready(name), func(c *schedule.Cluster) { c.Free = free("4", fmt.Sprint(pods-previous[name].Replicas+off[name])) }))
	}
	return all
}

// move makes decisions until the goal is reached. All replicas are available before the next one.
func move(t require.TestingT, w schedule.Workload, previous map[string]schedule.Share, names ...string) (schedule.Decision, map[string]schedule.Share) {
	for n := 0; ; n++ {
		d := schedule.Assign(w, crowd(previous, nil, names...), previous, 0)
		if d.Done(previous) {
			return d, previous
		}
		require.Less(t, n, 200, "%+v %+v", d, previous)
		raw, err := json.Marshal(d.Verdicts)
		require.NoError(t, err)
		w.Goal, previous = schedule.GoalOf(string(raw)), d.Next
		for name, s := range previous {
			s.Available = s.Replicas
			previous[name] = s
		}
	}
}

// rebalanced returns a workload whose replicas are to be divided once again.
func rebalanced(n int64) schedule.Workload {
	w := divided(n)
	w.Rebalance = true
	return w
}

// A cluster that joins gets nothing of what runs. When users ask for it, it gets as much as the others: a move that has
// begun goes on, though free capacity alone would not begin one for the rest.
func TestAClusterThatJoinsGetsItsWholeShare(t *testing.T) {
	for _, n := range []int64{9, 60, 61} {
		_, now := move(t, divided(n), nil, "c1", "c2")
		_, after := move(t, divided(n), now, "c1", "c2", "c3")
		require.Equal(t, replicas(now), replicas(after))
		_, now = move(t, rebalanced(n), now, "c1", "c2", "c3")
		for name, s := range now {
			require.LessOrEqual(t, s.Replicas, (n+2)/3, "%s of %v", name, replicas(now))
		}
		require.Equal(t, min(n, 3), int64(len(now)), replicas(now))
	}
}

// When the goal is reached, free capacity may change: nothing moves back and forth.
func TestWhatHasMovedStays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := rebalanced(int64(rapid.IntRange(10, 90).Draw(t, "replicas")))
		_, now := move(t, w, nil, "c1", "c2")
		d, now := move(t, w, now, "c1", "c2", "c3")
		w.Goal = d.Goal
		off := map[string]int64{}
		for _, name := range []string{"c1", "c2", "c3"} {
			off[name] = int64(rapid.IntRange(-10, 10).Draw(t, name))
		}
		require.Equal(t, replicas(now), replicas(schedule.Assign(w, crowd(now, off, "c1", "c2", "c3"), now, 0).Next))
	})
}

func TestGoalOf(t *testing.T) {
	for text, want := range map[string]map[string]int64{
		"": nil, "{}": nil, "null": {}, `[{"cluster":"c1","goal":3},{"cluster":"c2","goal":0}]`: {"c1": 3, "c2": 0},
	} {
		require.Equal(t, want, schedule.GoalOf(text), text)
	}
}
