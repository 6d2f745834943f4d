package roots

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/workload/placement/schedule"
	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

// A workload with an autoscaler leaves c1. The two replicas that begin in c2 are no reason to replace more.
func TestADecisionKnowsWhatIsReplaced(t *testing.T) {
	for _, tc := range []struct {
		name string
		goal map[string]int64
		want int64
	}{
		{"it begins", nil, 22},
		{"it has begun", map[string]int64{"c2": 20}, 20},
	} {
		sub := &subject{
			root: watch.Object{Unstructured: &unstructured.Unstructured{}}, scaled: true,
			previous: map[string]schedule.Share{"c1": {Replicas: 10}, "c2": {Replicas: 12}},
			workload: schedule.Workload{Replicas: 2, Goal: tc.goal, Hints: schedule.Hints{Spread: schedule.Divide}},
		}
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
