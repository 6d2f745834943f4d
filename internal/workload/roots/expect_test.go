package roots

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kcpctl/kcpctl/internal/workload/api"
	"github.com/kcpctl/kcpctl/internal/workload/schedule"
	"github.com/kcpctl/kcpctl/internal/workload/watch"
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
