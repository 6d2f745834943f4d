package heartbeat_test

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/kcpctl/kcpctl/internal/testutil"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeapi"
	"github.com/kcpctl/kcpctl/internal/workload/api"
	"github.com/kcpctl/kcpctl/internal/workload/heartbeat"
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

func TestJudgeComparesNoClocks(t *testing.T) {
	now := testutil.Start()
	var j heartbeat.Judge
	require.Equal(t, stopped, conditions(j.See("c1", nil, now)))
	// The clock of the syncer is a year behind.
	old := now.AddDate(-1, 0, 0)
	v := j.See("c1", lease(old.String(), "{}"), now)
	require.Equal(t, ready, conditions(v))
	require.Equal(t, now, v.LastHeartbeat)
	require.Equal(t, now.Add(40*time.Second), v.Next)
	require.Equal(t, ready, conditions(j.See("c1", lease(old.String(), "{}"), now.Add(39*time.Second))))
	v = j.See("c1", lease(old.String(), "{}"), now.Add(40*time.Second))
	require.Equal(t, missed, conditions(v))
	require.Zero(t, v.Next)
	require.Contains(t, v.Conditions[2].Message, "the syncer syncer-1 has sent no heartbeat for 40s")
	require.Equal(t, ready, conditions(j.See("c1", lease(old.Add(time.Second).String(), "{}"), now.Add(time.Minute))))

	released := lease(old.Add(time.Second).String(), "{}")
	unstructured.RemoveNestedField(released.Object, "spec", "holderIdentity")
	v = j.See("c1", released, now.Add(99*time.Second))
	require.Equal(t, ready, conditions(v), "the next syncer may start")
	require.Equal(t, now.Add(100*time.Second), v.Next, "a release does not count")
	require.Contains(t, j.See("c1", released, now.Add(100*time.Second)).Conditions[2].Message, "the syncer syncer-1 has sent no heartbeat")
}

func TestJudgeThatStartsGivesTheWholeGracePeriod(t *testing.T) {
	now := testutil.Start()
	var j heartbeat.Judge
	v := j.See("c1", lease("long ago", "{}"), now)
	require.Equal(t, ready, conditions(v))
	require.Zero(t, v.LastHeartbeat, "it has not seen one")
	require.Equal(t, missed, conditions(j.See("c1", lease("long ago", "{}"), now.Add(heartbeat.Grace))))
	j.Forget("c1")
	require.Equal(t, ready, conditions(j.See("c1", lease("long ago", "{}"), now.Add(heartbeat.Grace))))
}

func TestJudgeReports(t *testing.T) {
	var j heartbeat.Judge
	for name, tc := range map[string]struct{ report, want, message string }{
		"unreachable": {
			`{"reason":"Unreachable","message":"no route to host"}`,
			"HeartbeatHealthy=True(Ready) Reachable=False(Unreachable) Ready=False(Unreachable)", "no route to host",
		},
		"orphans":     {`{"orphans":"9 of 9"}`, "HeartbeatHealthy=True(Ready) Reachable=True(Ready) Ready=True(TooManyOrphans)", "9 of 9"},
		"no report":   {"", stopped, "report of Lease : unexpected end of JSON input"},
		"all is well": {`{"mode":"Push"}`, ready, ""},
	} {
		t.Run(name, func(t *testing.T) {
			v := j.See(name, lease("now", tc.report), testutil.Start())
			require.Equal(t, tc.want, conditions(v))
			require.Equal(t, tc.message, v.Conditions[2].Message)
		})
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
			Now: testutil.Start, Report: func() heartbeat.Report { return heartbeat.Report{Mode: api.SyncModePull, Version: "v1"} },
		}
		go func() { done <- s.Run(ctx) }()
		require.Eventually(t, func() bool { return get() != nil }, time.Minute, 5*time.Millisecond)
		cancel()
		require.NoError(t, <-done)
		report, err := heartbeat.ReportOf(get())
		require.NoError(t, err)
		return report
	}
	require.Equal(t, heartbeat.Report{Mode: api.SyncModePull, Version: "v1"}, send())
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
			Report: func() heartbeat.Report { return heartbeat.Report{Mode: api.SyncModeNone} },
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
