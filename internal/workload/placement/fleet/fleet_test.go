package fleet_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/testutil"
	"github.com/kcpctl/kcpctl/internal/workload/placement/fleet"
)

// world has clusters and a time.
type world struct {
	now      time.Time
	clusters []*api.Cluster
}

// newWorld has clusters that are ready.
func newWorld(names string) *world {
	w := &world{now: testutil.Start()}
	for _, name := range strings.Fields(names) {
		w.clusters = append(w.clusters, &api.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}})
		w.set(name, "")
	}
	return w
}

func (w *world) get(name string) *api.Cluster {
	for _, c := range w.clusters {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// set makes clusters not ready, or ready if the reason is empty.
func (w *world) set(names, reason string) {
	for _, name := range strings.Fields(names) {
		next := metav1.Condition{Type: api.ConditionReady, Status: metav1.ConditionTrue, Reason: api.ReasonReady, LastTransitionTime: metav1.NewTime(w.now)}
		if reason != "" {
			next.Status, next.Reason = metav1.ConditionFalse, reason
		}
		meta.SetStatusCondition(&w.get(name).Status.Conditions, next)
	}
	w.decide()
}

// decide writes the conditions, as the controller does at each pass.
func (w *world) decide() {
	for name, c := range fleet.Evicted(w.clusters, w.now) {
		c.LastTransitionTime = metav1.NewTime(w.now)
		meta.SetStatusCondition(&w.get(name).Status.Conditions, c)
	}
}

func (w *world) after(d time.Duration) {
	w.now = w.now.Add(d)
	w.decide()
}

func (w *world) reason(name string) string {
	return meta.FindStatusCondition(w.get(name).Status.Conditions, api.ConditionEvicted).Reason
}

func TestAClusterThatIsLostAloneIsEvicted(t *testing.T) {
	w := newWorld("c1 c2")
	require.Equal(t, api.ReasonReady, w.reason("c1"))
	require.Zero(t, fleet.Next(w.clusters, w.now))
	w.set("c1", api.ReasonHeartbeatMissed)
	require.Equal(t, api.ReasonEvictAfter, w.reason("c1"))
	require.Equal(t, w.now.Add(time.Minute), fleet.Next(w.clusters, w.now), "one of two clusters, after the default")
	require.Equal(t, w.now, fleet.Since(w.get("c1")))
	w.after(59 * time.Second)
	require.False(t, fleet.IsEvicted(w.get("c1")))
	w.after(time.Second)
	require.True(t, fleet.IsEvicted(w.get("c1")))
	require.Zero(t, fleet.Next(w.clusters, w.now))

	w.after(time.Hour)
	w.set("c2", api.ReasonHeartbeatMissed)
	require.Equal(t, api.ReasonEvicted, w.reason("c1"), "it stays so when others go away")
	require.Equal(t, api.ReasonFullDisruption, w.reason("c2"))
	w.set("c1", api.ReasonUnauthorized)
	require.Equal(t, api.ReasonEvicted, w.reason("c1"))
	w.set("c1", "")
	require.Equal(t, api.ReasonReady, w.reason("c1"))
	require.False(t, fleet.IsEvicted(w.get("c1")))
}

func TestClustersThatOnlyRefuseAreNotEvicted(t *testing.T) {
	for _, reason := range []string{
		api.ReasonUnauthorized, api.ReasonKubeconfigInvalid, api.ReasonDuplicateCluster, api.ReasonClusterReplaced, api.ReasonOtherSetup,
	} {
		w := newWorld("c1 c2 c3")
		w.set("c1", reason)
		w.after(48 * time.Hour)
		require.Equal(t, api.ReasonCredentialsRefused, w.reason("c1"), reason)
		require.False(t, fleet.IsEvicted(w.get("c1")))
	}
}

func TestClustersThatAreLostTogetherAreNotEvicted(t *testing.T) {
	for name, tc := range map[string]struct {
		all, lost, then string // then is lost 59 seconds later
		want            string
	}{
		"the only one":           {all: "c1", lost: "c1", want: api.ReasonFullDisruption},
		"all":                    {all: "c1 c2 c3", lost: "c1 c2 c3", want: api.ReasonFullDisruption},
		"all but one":            {all: "c1 c2 c3", lost: "c1", then: "c2", want: api.ReasonFullDisruption},
		"half":                   {all: "c1 c2 c3 c4", lost: "c1", then: "c2", want: api.ReasonEvicted},
		"more than half":         {all: "c1 c2 c3 c4 c5", lost: "c1 c2", then: "c3", want: api.ReasonFullDisruption},
		"fewer than half":        {all: "c1 c2 c3 c4 c5", lost: "c1", then: "c2", want: api.ReasonEvicted},
		"one of two is the case": {all: "c1 c2", lost: "c1", want: api.ReasonEvicted},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(tc.all)
			w.set(tc.lost, api.ReasonHeartbeatMissed)
			w.after(59 * time.Second)
			w.set(tc.then, api.ReasonUnreachable)
			w.after(3 * time.Minute)
			for _, c := range strings.Fields(tc.lost + " " + tc.then) {
				require.Equal(t, tc.want, w.reason(c), c)
				require.Equal(t, tc.want == api.ReasonEvicted, fleet.IsEvicted(w.get(c)))
			}
			if tc.want == api.ReasonFullDisruption {
				message := meta.FindStatusCondition(w.get("c1").Status.Conditions, api.ConditionEvicted).Message
				require.Contains(t, message, "kcpctl cluster drain c1", "it says what to do")
			}
		})
	}
}

// The front-proxy comes back, and the clusters one after another.
func TestADisruptionEndsForAClusterWhenItIsReady(t *testing.T) {
	w := newWorld("c1 c2 c3")
	w.set("c1 c2 c3", api.ReasonHeartbeatMissed)
	w.after(5 * time.Minute)
	w.set("c1 c2", "")
	w.after(time.Hour)
	require.Equal(t, api.ReasonFullDisruption, w.reason("c3"))
	w.set("c3", "")
	w.after(time.Hour)
	w.set("c3", api.ReasonHeartbeatMissed)
	w.after(time.Hour)
	require.Equal(t, api.ReasonEvicted, w.reason("c3"), "this time it is alone")
}

func TestClustersThatAreAddedAreNotLost(t *testing.T) {
	w := newWorld("c1 c2 new1 new2 new3")
	w.set("new1 new2 new3", api.ReasonSyncerNotRunning)
	w.set("c1", api.ReasonHeartbeatMissed)
	w.after(time.Minute)
	require.Equal(t, api.ReasonEvicted, w.reason("c1"))
}

func TestTheTimeOfACluster(t *testing.T) {
	w := newWorld("c1 c2 c3")
	w.get("c1").Spec.EvictAfter = &metav1.Duration{Duration: 0}
	w.get("c2").Spec.EvictAfter = &metav1.Duration{Duration: time.Hour}
	w.set("c1", api.ReasonUnreachable)
	w.after(2 * time.Minute)
	w.set("c2", api.ReasonUnreachable)
	w.after(59 * time.Minute)
	require.Equal(t, api.ReasonNeverEvicted, w.reason("c1"))
	require.Equal(t, api.ReasonEvictAfter, w.reason("c2"))
	require.Equal(t, api.ReasonReady, w.reason("c3"))
	w.after(time.Minute)
	require.Equal(t, api.ReasonNeverEvicted, w.reason("c1"))
	require.Equal(t, api.ReasonEvicted, w.reason("c2"))
}
