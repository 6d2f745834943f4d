package roots

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/placement/schedule"
	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

// Two decisions follow each other before the watch shows what the first one has written.
func TestADecisionKnowsWhatTheLastOneWrote(t *testing.T) {
	now := time.Now()
	last := decided{shares: map[string]int64{"c2": 1, "gone": 4}, removed: []string{"c1"}, at: now, uid: "1"}
	for _, tc := range []struct {
		name string
		uid  types.UID
		age  time.Duration
		want map[string]schedule.Share
	}{
		{"a moment later", "1", time.Millisecond, map[string]schedule.Share{"c1": {Replicas: 2, Ending: true}, "c2": {Replicas: 1}}},
		{"when the watch has shown it", "1", expectFor, map[string]schedule.Share{"c1": {Replicas: 2}, "c2": {Replicas: 3}}},
		{"another root of this name", "2", time.Millisecond, map[string]schedule.Share{"c1": {Replicas: 2}, "c2": {Replicas: 3}}},
	} {
		root := &unstructured.Unstructured{}
		root.SetUID(tc.uid)
		sub := &subject{
			root: watch.Object{Unstructured: root}, now: now.Add(tc.age),
			clusters: []*api.Cluster{{}, {}}, previous: map[string]schedule.Share{"c1": {Replicas: 2}, "c2": {Replicas: 3}},
		}
		sub.clusters[0].Name, sub.clusters[1].Name = "c1", "c2"
		last.expect(sub)
		require.Equal(t, tc.want, sub.previous, tc.name)
	}
}

// A workload with an autoscaler leaves c1. The watch shows the leaf that was written and not yet the root: the two
// replicas that begin in c2 are no reason to replace more.
func TestADecisionKnowsWhatIsReplaced(t *testing.T) {
	now := time.Now()
	for _, tc := range []struct {
		name string
		last decided
		goal map[string]int64
		want int64
	}{
		{"it begins", decided{}, nil, 22},
		{"the root does not show it yet", decided{at: now, replaced: 20}, nil, 20},
		{"the root shows it", decided{}, map[string]int64{"c2": 20}, 20},
	} {
		sub := &subject{
			root: watch.Object{Unstructured: &unstructured.Unstructured{}}, now: now, scaled: true,
			previous: map[string]schedule.Share{"c1": {Replicas: 10}, "c2": {Replicas: 12}},
			workload: schedule.Workload{Replicas: 2, Goal: tc.goal, Hints: schedule.Hints{Spread: schedule.Divide}},
		}
		tc.last.expect(sub)
		require.True(t, sub.leave(schedule.Decision{
			Goal: map[string]int64{"c2": 2}, Verdicts: []schedule.Verdict{{Cluster: "c1"}, {Cluster: "c2", Chosen: true}},
		}), tc.name)
		require.Equal(t, tc.want, sub.workload.Replicas, tc.name)
	}
}

// A user who scales a workload to zero wants it to stop, whatever its annotations say.
func TestAWorkloadWithAMistakeIsScaled(t *testing.T) {
	type shares = map[string]schedule.Share
	one, two := shares{"c1": {Replicas: 2}}, shares{"c1": {Replicas: 2}, "c2": {Replicas: 3}}
	for _, tc := range []struct {
		name     string
		replicas int64
		previous shares
		want     shares
	}{
		{"in one cluster", 5, one, shares{"c1": {Replicas: 5}}},
		{"to zero", 0, two, shares{"c1": {}, "c2": {}}},
		{"in two clusters", 7, two, two},
	} {
		sub := &subject{previous: tc.previous, workload: schedule.Workload{Replicas: tc.replicas}}
		require.Equal(t, tc.want, sub.mistaken(), tc.name)
	}
}
