package heartbeat_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/testutil"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeapi"
	"github.com/kcpctl/kcpctl/internal/workload/sync/heartbeat"
)

const leases = "apis/coordination.k8s.io/v1/leases"

func lease(renewed, report string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"holderIdentity": "syncer-1", "renewTime": renewed}}}
	u.SetAnnotations(map[string]string{"workloads.kcp.dev/report": report})
	return u
}

func conditions(v heartbeat.Verdict) string {
	out := ""
	for _, c := range v.Conditions {
		out += fmt.Sprintf("%s=%s(%s) ", c.Type, c.Status, c.Reason)
	}
	return out[:len(out)-1]
}

const (
	ready   = "HeartbeatHealthy=True(Ready) Reachable=True(Ready) Ready=True(Ready)"
	missed  = "HeartbeatHealthy=False(HeartbeatMissed) Reachable=Unknown(HeartbeatMissed) Ready=False(HeartbeatMissed)"
	stopped = "HeartbeatHealthy=False(SyncerNotRunning) Reachable=Unknown(SyncerNotRunning) Ready=False(SyncerNotRunning)"
)

// cluster returns a Cluster with the conditions of a verdict.
func cluster(name string, v *heartbeat.Verdict) *api.Cluster {
	c := &api.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if v != nil {
		write(c, *v)
	}
	return c
}

// write writes a verdict to the status, as the controller does.
func write(c *api.Cluster, v heartbeat.Verdict) {
	for _, condition := range v.Conditions {
		meta.SetStatusCondition(&c.Status.Conditions, condition)
	}
}

func TestJudgeComparesNoClocks(t *testing.T) {
	now := testutil.Start()
	var j heartbeat.Judge
	c1 := cluster("c1", nil)
	require.Equal(t, stopped, conditions(j.Evaluate(c1, nil, now)))
	// The clock of the syncer is a year behind.
	old := now.AddDate(-1, 0, 0)
	v := j.Evaluate(c1, lease(old.String(), "{}"), now)
	require.Equal(t, ready, conditions(v))
	require.Equal(t, now, v.LastHeartbeat)
	require.Equal(t, now.Add(40*time.Second), v.Next)
	require.Equal(t, ready, conditions(j.Evaluate(c1, lease(old.String(), "{}"), now.Add(39*time.Second))))
	v = j.Evaluate(c1, lease(old.String(), "{}"), now.Add(40*time.Second))
	require.Equal(t, missed, conditions(v))
	require.Zero(t, v.Next)
	require.Contains(t, v.Conditions[2].Message, "the syncer syncer-1 has sent no heartbeat for 40s")
	require.Equal(t, ready, conditions(j.Evaluate(c1, lease(old.Add(time.Second).String(), "{}"), now.Add(time.Minute))))

	released := lease(old.Add(time.Second).String(), "{}")
	unstructured.RemoveNestedField(released.Object, "spec", "holderIdentity")
	v = j.Evaluate(c1, released, now.Add(99*time.Second))
	require.Equal(t, ready, conditions(v), "the next syncer may start")
	require.Equal(t, now.Add(100*time.Second), v.Next, "a release does not count")
	require.Contains(t, j.Evaluate(c1, released, now.Add(100*time.Second)).Conditions[2].Message, "the syncer syncer-1 has sent no heartbeat")
}

// A syncer of a removed Cluster says nothing about the one that has its name.
func TestJudgeOfAnEarlierCluster(t *testing.T) {
	now := testutil.Start()
	var j heartbeat.Judge
	c1 := cluster("c1", nil)
	c1.UID = "second"
	j.Evaluate(c1, nil, now)
	v := j.Evaluate(c1, lease("1", `{"cluster":"first","clusterUID":"one","clusterVersion":"v1"}`), now)
	require.Equal(t, stopped, conditions(v))
	require.Contains(t, v.Conditions[2].Message, "the syncer syncer-1 works for a removed Cluster of this name")
	require.False(t, v.Reported)
	require.Zero(t, v.Report)
	v = j.Evaluate(c1, lease("2", `{"cluster":"second","clusterUID":"two"}`), now)
	require.Equal(t, ready, conditions(v))
	require.EqualValues(t, "two", v.Report.ClusterUID)
	require.True(t, v.Reported)
	require.Equal(t, ready, conditions(j.Evaluate(c1, lease("3", "{}"), now)), "an earlier version does not say it")
}

// A Lease that was there when the judge started is not a heartbeat.
func TestJudgeThatStartsKeepsTheConditions(t *testing.T) {
	now := testutil.Start()
	unreachable := `{"reason":"Unreachable","message":"no route to host"}`
	var first heartbeat.Judge
	for name, report := range map[string]string{"well": "{}", "unreachable": unreachable} {
		c := cluster(name, nil)
		first.Evaluate(c, nil, now)
		v := first.Evaluate(c, lease("long ago", report), now)
		write(c, v)
		var j heartbeat.Judge
		again := j.Evaluate(c, lease("another time", "{}"), now)
		require.Equal(t, conditions(v), conditions(again), name)
		require.Zero(t, again.LastHeartbeat, "it has not seen one")
		require.Equal(t, now.Add(15*time.Second), again.Next)
		require.Equal(t, conditions(v), conditions(j.Evaluate(c, nil, now.Add(14*time.Second))))
		again = j.Evaluate(c, nil, now.Add(39*time.Second))
		require.Equal(t, unheard(v), conditions(again), "a Lease that is gone is not a missed heartbeat")
		require.Equal(t, now.Add(heartbeat.Grace), again.Next)
		require.Equal(t, missed, conditions(j.Evaluate(c, lease("another time", "{}"), now.Add(heartbeat.Grace))))
		require.Equal(t, ready, conditions(j.Evaluate(c, lease("now", "{}"), now.Add(heartbeat.Grace))))
	}

	dead := cluster("dead", nil)
	first.Evaluate(dead, lease("long ago", "{}"), now)
	write(dead, first.Evaluate(dead, lease("now", "{}"), now))
	v := first.Evaluate(dead, lease("now", "{}"), now.Add(time.Minute))
	require.Equal(t, missed, conditions(v))
	write(dead, v)
	var j heartbeat.Judge
	for range 5 {
		require.Equal(t, missed, conditions(j.Evaluate(dead, lease("an hour old", "{}"), now)), "it is not ready because of an old Lease")
		now = now.Add(time.Hour)
	}
	require.Equal(t, ready, conditions(j.Evaluate(dead, lease("now", "{}"), now)))
}

// unheard returns the conditions of a cluster from which a judge has not heard.
func unheard(v heartbeat.Verdict) string {
	return strings.Replace(conditions(v), "HeartbeatHealthy=True(Ready)", "HeartbeatHealthy=Unknown(HeartbeatMissed)", 1)
}

// A controller that restarts before the grace period has passed would otherwise never notice that a cluster is lost.
func TestRestartsDoNotHideThatAClusterIsLost(t *testing.T) {
	now := testutil.Start()
	c := cluster("c1", nil)
	first := &heartbeat.Judge{}
	first.Evaluate(c, nil, now)
	v := first.Evaluate(c, lease("1", "{}"), now)
	write(c, v)
	// pass is a pass of a controller, which writes the conditions with their times.
	pass := func(j *heartbeat.Judge, at string) string {
		v := j.Evaluate(c, lease(at, "{}"), now)
		for i := range v.Conditions {
			v.Conditions[i].LastTransitionTime = metav1.NewTime(now)
		}
		write(c, v)
		return conditions(v)
	}
	began := now
	for said := ""; said != missed; {
		j := &heartbeat.Judge{}
		for range 3 { // it restarts after twenty seconds
			said = pass(j, "1")
			now = now.Add(10 * time.Second)
		}
		require.Contains(t, []string{ready, unheard(v), missed}, said)
		require.Less(t, now.Sub(began), 2*time.Minute)
	}
	require.GreaterOrEqual(t, now.Sub(began), heartbeat.Grace)
	j := &heartbeat.Judge{}
	require.Equal(t, missed, pass(j, "1"))
	require.Equal(t, ready, pass(j, "2"))

	// One heartbeat ends it.
	j = &heartbeat.Judge{}
	pass(j, "2")
	now = now.Add(15 * time.Second)
	require.Equal(t, unheard(v), pass(j, "2"))
	j = &heartbeat.Judge{}
	require.Equal(t, unheard(v), pass(j, "2"))
	require.Equal(t, ready, pass(j, "3"))
	j = &heartbeat.Judge{}
	now = now.Add(14 * time.Second)
	require.Equal(t, ready, pass(j, "3"))
	now = now.Add(14 * time.Second)
	require.Equal(t, ready, pass(j, "3"))
	// That Leases cannot be read is not silence.
	now = now.Add(time.Second)
	require.Equal(t, unheard(v), pass(j, "3"))
	j.Blind(now)
	require.Equal(t, ready, pass(j, "3"))
}

// A restored backup of kcp has the Lease of another day: its syncer may be dead. A syncer whose clock was set back is
// seen a heartbeat later.
func TestALeaseOfABackupIsNoHeartbeat(t *testing.T) {
	now := testutil.Start()
	at := func(d time.Duration) *unstructured.Unstructured {
		return lease(now.Add(d).UTC().Format(metav1.RFC3339Micro), "{}")
	}
	var j heartbeat.Judge
	c := cluster("c1", nil)
	j.Evaluate(c, nil, now)
	require.Equal(t, ready, conditions(j.Evaluate(c, at(0), now)))
	require.Equal(t, ready, conditions(j.Evaluate(c, at(-time.Hour), now.Add(39*time.Second))), "it is heard again soon")
	require.Equal(t, missed, conditions(j.Evaluate(c, at(-time.Hour), now.Add(40*time.Second))))
	require.Equal(t, missed, conditions(j.Evaluate(c, at(-2*time.Hour), now.Add(41*time.Second))))
	require.Equal(t, ready, conditions(j.Evaluate(c, at(heartbeat.Interval-2*time.Hour), now.Add(42*time.Second))))
}

// A Cluster that was removed, and is added again under its name, has the Lease of the previous one.
func TestJudgeOfANewClusterIgnoresTheOldLease(t *testing.T) {
	now := testutil.Start()
	var j heartbeat.Judge
	c1 := cluster("c1", nil)
	j.Evaluate(c1, nil, now)
	require.Equal(t, ready, conditions(j.Evaluate(c1, lease("long ago", "{}"), now)))
	fresh := cluster("c1", nil)
	fresh.UID = "other"
	require.Equal(t, stopped, conditions(j.Evaluate(fresh, lease("long ago", "{}"), now)))
	require.Equal(t, ready, conditions(j.Evaluate(fresh, lease("now", "{}"), now)))
}

// A Lease that is only renewed changes no verdict: nothing else has to be evaluated.
func TestJudgeOfALeaseThatIsRenewed(t *testing.T) {
	now := testutil.Start()
	var j heartbeat.Judge
	named := func(renewed, report string) *unstructured.Unstructured {
		u := lease(renewed, report)
		u.SetName(api.LeaseCluster("c1"))
		return u
	}
	require.False(t, j.Renew(named("0", "{}"), now), "not the Lease of a cluster")
	c := cluster("c1", nil)
	j.Evaluate(c, nil, now)
	require.True(t, j.Renew(named("1", "{}"), now), "the first heartbeat")
	require.Equal(t, ready, conditions(j.Evaluate(c, named("1", "{}"), now)))
	for i := range 60 {
		now = now.Add(heartbeat.Interval)
		require.False(t, j.Renew(named(fmt.Sprint("2-", i), "{}"), now))
	}
	last := named("2-59", "{}")
	v := j.Evaluate(c, last, now.Add(39*time.Second))
	require.Equal(t, ready, conditions(v), "all of them count")
	require.Equal(t, now, v.LastHeartbeat)
	require.True(t, j.Renew(named("3", `{"reason":"Unreachable"}`), now), "the report is another one")
	require.True(t, j.Renew(named("4", "{}"), now), "again")
	other := named("5", "{}")
	require.NoError(t, unstructured.SetNestedField(other.Object, "syncer-2", "spec", "holderIdentity"))
	require.True(t, j.Renew(other, now), "another syncer")
	now = now.Add(heartbeat.Grace)
	require.Equal(t, missed, conditions(j.Evaluate(c, other, now)))
	back := other.DeepCopy()
	require.NoError(t, unstructured.SetNestedField(back.Object, "6", "spec", "renewTime"))
	require.True(t, j.Renew(back, now), "it is back")
	require.Equal(t, ready, conditions(j.Evaluate(c, back, now)))
}

// While the controller cannot watch Leases, silence is not evidence.
func TestJudgeThatIsBlind(t *testing.T) {
	now := testutil.Start()
	var j heartbeat.Judge
	c := cluster("c1", nil)
	j.Evaluate(c, nil, now)
	j.Evaluate(c, lease("x", "{}"), now)
	for range 60 {
		now = now.Add(10 * time.Second)
		j.Blind(now)
		require.Equal(t, ready, conditions(j.Evaluate(c, lease("x", "{}"), now)))
	}
	require.Equal(t, missed, conditions(j.Evaluate(c, lease("x", "{}"), now.Add(heartbeat.Grace))))
}

func TestJudgeReports(t *testing.T) {
	var j heartbeat.Judge
	for name, tc := range map[string]struct{ report, want, message string }{
		"unreachable": {
			`{"reason":"Unreachable","message":"no route to host"}`,
			"HeartbeatHealthy=True(Ready) Reachable=False(Unreachable) Ready=False(Unreachable)", "no route to host",
		},
		"orphans": {`{"orphans":"9"}`, "HeartbeatHealthy=True(Ready) Reachable=True(Ready) Ready=True(Orphans)", "9"},
		"other setup": {
			`{"orphans":"9","otherSetup":"abc"}`, "HeartbeatHealthy=True(Ready) Reachable=True(Ready) Ready=False(OtherSetup)", "abc",
		},
		"other setup, unreachable": {
			`{"otherSetup":"abc","reason":"Unauthorized"}`, "HeartbeatHealthy=True(Ready) Reachable=False(Unauthorized) Ready=False(Unauthorized)", "",
		},
		"no report":   {"", stopped, "report of Lease : unexpected end of JSON input"},
		"all is well": {`{"mode":"Push"}`, ready, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := cluster(name, nil)
			j.Evaluate(c, nil, testutil.Start())
			v := j.Evaluate(c, lease("now", tc.report), testutil.Start())
			require.Equal(t, tc.want, conditions(v))
			require.Equal(t, tc.message, v.Conditions[2].Message)
		})
	}
}

// What a syncer reports is bounded: its cluster is administrated by others.
func TestReportsAreConfined(t *testing.T) {
	long := strings.Repeat("ä", 5000)
	resources := map[string]string{"cpu": "1000000000", "memory": "64Gi", "nvidia.com/gpu": "-1", "ephemeral-storage": "9Ei", "pods": "110",
		"a.example.com/small": "1e-10000", "a.example.com/large": "1e10000", "a.example.com/long": "1" + strings.Repeat("0", 100) + "e-90"}
	for i := range 100 {
		resources[fmt.Sprintf("x.example.com/r%03d", i)] = "1"
	}
	raw, err := json.Marshal(map[string]any{
		"mode": long, "version": long, "clusterVersion": long, "clusterUID": long, "reason": long, "message": long, "orphans": long,
		"otherSetup": long, "schemasProblem": long, "capacity": map[string]any{"allocatable": resources, "requested": resources},
	})
	require.NoError(t, err)
	r, err := heartbeat.ReportOf(lease("now", string(raw)))
	require.NoError(t, err)
	for _, text := range []string{r.Version, r.ClusterVersion, r.Message, r.Orphans, r.OtherSetup, r.SchemasProblem} {
		require.LessOrEqual(t, len(text), 1000)
		require.True(t, utf8.ValidString(text))
	}
	require.Equal(t, api.ReasonUnreachable, r.Reason)
	require.Empty(t, r.Mode)
	require.Empty(t, r.ClusterUID)
	for _, l := range []corev1.ResourceList{r.Capacity.Allocatable, r.Capacity.Requested} {
		require.Len(t, l, 64)
		require.Contains(t, l, corev1.ResourceMemory)
		for _, name := range []corev1.ResourceName{"cpu", "nvidia.com/gpu", "ephemeral-storage",
			"a.example.com/small", "a.example.com/large", "a.example.com/long"} {
			require.NotContains(t, l, name)
		}
	}

	var j heartbeat.Judge
	c := cluster("c1", nil)
	c.Spec.MaxCapacity = corev1.ResourceList{"memory": resource.MustParse("8Gi"), "pods": resource.MustParse("200"), "cpu": resource.MustParse("4")}
	for range 2 {
		v := j.Evaluate(c, lease("now", string(raw)), testutil.Start())
		require.Equal(t, "8Gi", v.Report.Capacity.Allocatable.Memory().String())
		require.Equal(t, "110", v.Report.Capacity.Allocatable.Pods().String())
		require.NotContains(t, v.Report.Capacity.Allocatable, corev1.ResourceCPU)
	}
}

func TestSender(t *testing.T) {
	kcp, physical := fakeapi.New(t), fakeapi.New(t)
	code := atomic.Int64{}
	physical.Refuse(func(*http.Request) (int, string) { return int(code.Load()), "etcd failed" })
	get := func() *unstructured.Unstructured { return kcp.Get("root:compute", leases, "default", "cluster-c1") }
	send := func() heartbeat.Report {
		t.Helper()
		kcp.Delete("root:compute", leases, "default", "cluster-c1")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		s := heartbeat.Sender{
			KCP: &rest.Config{Host: kcp.URL}, Physical: &rest.Config{Host: physical.URL}, Workspace: "root:compute", Cluster: "c1", Holder: "syncer-1",
			Now: testutil.Start, Report: func() heartbeat.Report { return heartbeat.Report{Mode: v1alpha1.SyncModePull, Version: "v1"} },
		}
		go func() { done <- s.Run(ctx) }()
		require.Eventually(t, func() bool { return get() != nil }, time.Minute, 5*time.Millisecond)
		cancel()
		require.NoError(t, <-done)
		report, err := heartbeat.ReportOf(get())
		require.NoError(t, err)
		return report
	}
	require.Equal(t, heartbeat.Report{Mode: v1alpha1.SyncModePull, Version: "v1"}, send())
	renewed, _, _ := unstructured.NestedString(get().Object, "spec", "renewTime")
	require.Equal(t, testutil.Start().UTC().Format(metav1.RFC3339Micro), renewed)

	code.Store(http.StatusUnauthorized)
	require.Equal(t, api.ReasonUnauthorized, send().Reason)
	code.Store(http.StatusInternalServerError)
	require.Equal(t, api.ReasonUnreachable, send().Reason)
	code.Store(http.StatusForbidden)
	require.Empty(t, send().Reason, "it answers")
	physical.Close()
	require.Contains(t, send().Message, "the API server of the cluster is not reached: ")
}

// Of two syncers of a cluster, the second one waits, and one that was cut off stops when another one has taken over.
func TestOneSyncerOfAClusterWorks(t *testing.T) {
	kcp, physical := fakeapi.New(t), fakeapi.New(t)
	var now atomic.Int64
	sender := func(holder string) *heartbeat.Sender {
		return &heartbeat.Sender{
			KCP: &rest.Config{Host: kcp.URL}, Physical: &rest.Config{Host: physical.URL}, Workspace: "root:compute", Cluster: "c1", Holder: holder,
			Now:    func() time.Time { return testutil.Start().Add(time.Duration(now.Load())) },
			Report: func() heartbeat.Report { return heartbeat.Report{Mode: v1alpha1.SyncModeNone} },
		}
	}
	holder := func() string {
		if o := kcp.Get("root:compute", leases, "default", "cluster-c1"); o != nil {
			name, _, _ := unstructured.NestedString(o.Object, "spec", "holderIdentity")
			return name
		}
		return ""
	}
	holds := func(name string) {
		t.Helper()
		require.Eventually(t, func() bool { return holder() == name }, time.Minute, 5*time.Millisecond)
	}
	run := func(s *heartbeat.Sender) (wake chan struct{}, stop func(), done chan error) {
		ctx, cancel := context.WithCancel(t.Context())
		wake, done = make(chan struct{}), make(chan error, 1)
		s.Wake = wake
		go func() { done <- s.Run(ctx) }()
		return wake, cancel, done
	}
	first, second := sender("one"), sender("two")
	require.NoError(t, first.Acquire(t.Context(), func(err error) { t.Error(err) }))
	wake, _, ended := run(first)
	holds("one")
	wake <- struct{}{} // it renews its own Lease
	kcp.Delete("root:compute", leases, "default", "cluster-c1")
	wake <- struct{}{}
	holds("one")

	var reasons []string
	require.NoError(t, second.Acquire(t.Context(), func(reason error) {
		reasons = append(reasons, reason.Error())
		now.Add(int64(25 * time.Second)) // the first one is cut off
	}))
	require.Contains(t, reasons[0], "the syncer one works for cluster c1: this one waits until it has stopped")
	_, stop, ended2 := run(second)
	holds("two")
	wake <- struct{}{}
	require.ErrorContains(t, <-ended, "the syncer two works for cluster c1 now")
	require.Equal(t, "two", holder())

	third := sender("three")
	third.Ended = func(holder string) bool { return holder == "two" }
	require.NoError(t, third.Acquire(t.Context(), func(err error) { t.Error(err) }), "the holder is known to have ended")

	// As after a heartbeat that was interrupted: the Lease has changed, and the process does not know.
	kcp.Apply(t, "root:compute", leases, `{metadata: {name: cluster-c1, namespace: default, annotations: {a: b}}}`)
	stop()
	require.NoError(t, <-ended2)
	require.Empty(t, holder(), "it is released")
	require.NoError(t, sender("three").Acquire(t.Context(), func(err error) { t.Error(err) }))
}
