package controller_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
)

const leases = "apis/coordination.k8s.io/v1/leases"

// register adds a Cluster whose syncer is the test.
func (k *kcp) register(name string) {
	k.Helper()
	k.Apply(k, compute, clusters, fmt.Sprintf(`
apiVersion: workloads.kcp.dev/v1alpha1
kind: Cluster
metadata: {name: %s, creationTimestamp: "2026-01-0%dT00:00:00Z"}
spec: {syncMode: None}`, name, len(k.Names(compute, clusters))+1))
	k.eventually(func() bool { return strings.HasPrefix(k.condition(name, "Ready"), "False SyncerNotRunning") }, "no heartbeat yet")
}

// beats counts the heartbeats of a test.
type beats struct {
	*kcp
	n int
}

// newBeats runs the controller, which publishes no API, with clusters that are ready.
func newBeats(t *testing.T, names string) *beats {
	b := &beats{kcp: newKCP(t)}
	b.start()
	for _, name := range strings.Fields(names) {
		b.register(name)
	}
	b.step(0, names, "")
	for _, name := range strings.Fields(names) {
		require.Equal(t, "True Ready", b.condition(name, "Ready"))
	}
	return b
}

// step lets time pass, and then sends a heartbeat of each cluster, with more in its report. It returns when the
// controller has seen them.
func (b *beats) step(d time.Duration, names, more string) {
	b.Helper()
	b.ahead.Add(int64(d))
	b.n++
	for _, name := range strings.Fields(names) {
		b.Apply(b, compute, leases, fmt.Sprintf(`
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: cluster-%s, namespace: default, annotations: {workloads.kcp.dev/report: '{"mode":"None","version":"%d","clusterUID":"uid-of-%s"%s}'}}
spec: {holderIdentity: syncer, renewTime: "%d"}`, name, b.n, name, more, b.n))
	}
	for _, name := range strings.Fields(names) {
		b.eventually(func() bool { return b.field(name, "status", "syncer", "version") == fmt.Sprint(b.n) }, "the heartbeat is seen")
	}
}

// field returns a field of a Cluster.
func (k *kcp) field(name string, path ...string) string {
	o := k.Get(compute, clusters, "", name)
	if o == nil {
		return ""
	}
	v, _, _ := unstructured.NestedFieldNoCopy(o.Object, path...)
	return fmt.Sprint(v)
}

// settled returns when the controller has looked at all clusters at this time.
func (k *kcp) settled(name string) {
	k.Helper()
	for _, cordoned := range []string{"true", "false"} {
		k.Apply(k, compute, clusters, fmt.Sprintf("{metadata: {name: %s}, spec: {unschedulable: %s}}", name, cordoned))
		k.eventually(func() bool {
			return strings.HasPrefix(k.condition(name, "Schedulable"), "False") == (cordoned == "true")
		}, "it is looked at")
	}
}

func (k *kcp) reason(name, kind string) string {
	reason, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(k.condition(name, kind), "True "), "False "), ":")
	return reason
}

// Clusters that are silent, of four. Only what is lost alone is evicted.
func TestSilentClusters(t *testing.T) {
	for alive, want := range map[string]string{
		"":         api.ReasonFullDisruption,
		"c4":       api.ReasonFullDisruption,
		"c3 c4":    api.ReasonEvicted,
		"c2 c3 c4": api.ReasonEvicted,
	} {
		t.Run("alive: "+alive, func(t *testing.T) {
			t.Parallel()
			b := newBeats(t, "c1 c2 c3 c4")
			for range 5 {
				b.step(10*time.Second, alive, "")
			}
			b.settled("c4")
			require.Equal(t, "False", b.condition("c1", "Ready")[:5])
			if want == api.ReasonEvicted {
				require.Equal(t, api.ReasonEvictAfter, b.reason("c1", "Evicted"))
			}
			for range 7 {
				b.step(10*time.Second, alive, "")
			}
			b.settled("c4")
			for _, name := range []string{"c1", "c2", "c3", "c4"} {
				reason := want
				if strings.Contains(alive, name) {
					reason = api.ReasonReady
				}
				require.Equal(t, reason, b.reason(name, "Evicted"), name)
			}
			evicted := 0
			if want == api.ReasonEvicted {
				evicted = 1
			}
			require.Contains(t, b.metrics(), fmt.Sprintf(`kcpctl_cluster_evicted{cluster="c1"} %d`, evicted))
			if want != api.ReasonFullDisruption {
				return
			}
			// They come back one after another.
			b.step(10*time.Second, "c2 c3 c4", "")
			for range 8 {
				b.step(10*time.Second, "c2 c3 c4", "")
			}
			b.settled("c4")
			require.Equal(t, want, b.reason("c1", "Evicted"), "the cause is the same")
			b.step(0, "c1", "")
			b.settled("c4")
			require.Equal(t, api.ReasonReady, b.reason("c1", "Evicted"))
		})
	}
}

func TestATokenThatIsRefusedForLongEvictsNothing(t *testing.T) {
	b := newBeats(t, "c1 c2 c3")
	for range 40 {
		b.step(30*time.Second, "c1", `,"reason":"Unauthorized","message":"expired"`)
		b.step(0, "c2 c3", "")
	}
	require.Equal(t, "False Unauthorized: expired", b.condition("c1", "Ready"))
	require.Equal(t, api.ReasonCredentialsRefused, b.reason("c1", "Evicted"))

	// When the syncer is gone as well, the time begins.
	for range 5 {
		b.step(10*time.Second, "c2 c3", "")
	}
	b.settled("c2")
	require.Equal(t, api.ReasonEvictAfter, b.reason("c1", "Evicted"))
	for range 7 {
		b.step(10*time.Second, "c2 c3", "")
	}
	b.settled("c2")
	require.Equal(t, api.ReasonEvicted, b.reason("c1", "Evicted"))
	b.step(10*time.Second, "c1", `,"reason":"Unauthorized"`)
	b.settled("c2")
	require.Equal(t, api.ReasonEvicted, b.reason("c1", "Evicted"), "it stays so")
}

// In push mode, the controller uses the token itself.
// The token of a cluster is replaced by another one, before or after the cluster stops accepting it. What runs stays as
// it is.
func TestATokenIsReplaced(t *testing.T) {
	for name, early := range map[string]bool{"in time": true, "when it is refused": false} {
		t.Run(name, func(t *testing.T) {
			k, c1, accepted := newKCP(t), newCluster(t, "one", "1", ""), &atomic.Pointer[string]{}
			accept := func(tokens string) {
				accepted.Store(&tokens)
				c1.Refuse(nil) // it ends the watches
			}
			accept("first")
			use := func(token string) { // clients send no token without TLS: each has a server of its own
				front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if !slices.Contains(strings.Fields(*accepted.Load()), token) {
						http.Error(w, "the token has expired", http.StatusUnauthorized)
						return
					}
					c1.ServeHTTP(w, r)
				}))
				t.Cleanup(front.CloseClientConnections)
				k.add("c1", kubeconfig(front.URL))
			}
			use("first")
			k.run()
			k.identify()
			k.eventually(func() bool { return k.condition("c1", "Ready") == "True Ready" }, "ready")
			k.Apply(t, compute, endpointSlices, fmt.Sprintf(`
apiVersion: apis.kcp.io/v1alpha1
kind: APIExportEndpointSlice
metadata: {name: cluster-c1}
status: {endpoints: [{url: "%s/services/apiexport/xyz/cluster-c1"}]}`, k.URL))
			leaf := func(name string) {
				k.Apply(t, "1a", deployments, fmt.Sprintf(
					`{apiVersion: apps/v1, kind: Deployment, metadata: {name: %s, namespace: shop, labels: {workloads.kcp.dev/cluster: c1}}, spec: {replicas: 2}}`, name))
			}
			below := func(name string) *unstructured.Unstructured {
				return c1.Get("", deployments, api.DownstreamNamespace(compute, "1a", "shop"), name)
			}
			leaf("web")
			k.eventually(func() bool { return below("web") != nil }, "it runs")
			before := below("web")
			c1.Writes()
			if early {
				accept("first second")
				use("second")
			} else {
				accept("second")
				k.eventually(func() bool { return k.reason("c1", "Ready") == "Unauthorized" }, "refused")
				use("second")
			}
			leaf("db")
			k.eventually(func() bool { return below("db") != nil && k.condition("c1", "Ready") == "True Ready" }, "the next token is used")
			accept("second")
			require.Equal(t, before.GetUID(), below("web").GetUID())
			require.Nil(t, below("web").GetDeletionTimestamp())
			require.NotContains(t, fmt.Sprint(c1.Writes()), "DELETE")
		})
	}
}

func TestAKubeconfigThatIsRefusedEvictsNothing(t *testing.T) {
	k, servers := newFleet(t)
	servers["c1"].Refuse(func(*http.Request) (int, string) { return http.StatusUnauthorized, "expired" })
	k.eventually(func() bool { return k.reason("c1", "Ready") == api.ReasonUnauthorized }, "it is refused")
	renewed := func(name string) string {
		v, _, _ := unstructured.NestedString(k.Get(compute, leases, "default", "cluster-"+name).Object, "spec", "renewTime")
		return v
	}
	for range 5 {
		k.ahead.Add(int64(20 * time.Second))
		at := k.now().UTC().Format(time.RFC3339)
		k.eventually(func() bool { return renewed("c1") > at && renewed("c2") > at }, "heartbeats")
		k.settled("c2")
	}
	require.Equal(t, api.ReasonUnauthorized, k.reason("c1", "Ready"))
	require.Equal(t, api.ReasonCredentialsRefused, k.reason("c1", "Evicted"))
	require.Equal(t, "True Ready", k.condition("c2", "Ready"))
}

// A controller that restarts repeatedly neither revives a cluster, nor loses one.
func TestTheControllerRestarts(t *testing.T) {
	for _, every := range []time.Duration{50 * time.Second, time.Minute} {
		t.Run(every.String(), func(t *testing.T) {
			t.Parallel()
			b := newBeats(t, "c1 c2 c3")
			restart := func() {
				b.start()
				for d := time.Duration(0); d < every; d += 10 * time.Second {
					b.step(10*time.Second, "c2 c3", "")
					b.settled("c2")
					require.Equal(t, "True Ready", b.condition("c2", "Ready"))
				}
			}
			restart()
			restart()
			require.Equal(t, api.ReasonHeartbeatMissed, b.reason("c1", "Ready"))
			for d := time.Duration(0); d <= time.Minute; d += every {
				restart()
				require.Equal(t, api.ReasonHeartbeatMissed, b.reason("c1", "Ready"))
			}
			require.Equal(t, api.ReasonEvicted, b.reason("c1", "Evicted"))
			b.start()
			b.settled("c2")
			require.Equal(t, api.ReasonEvicted, b.reason("c1", "Evicted"))
			b.step(0, "c1", "")
			b.settled("c2")
			require.Equal(t, "True Ready", b.condition("c1", "Ready"))
			require.Equal(t, api.ReasonReady, b.reason("c1", "Evicted"))
		})
	}
}

// A report can claim only as much as the Cluster permits.
func TestTheCapacityOfAReportIsBounded(t *testing.T) {
	b := newBeats(t, "c1 c2")
	b.Apply(t, compute, clusters, "{metadata: {name: c1}, spec: {maxCapacity: {cpu: 8, memory: 1Gi}}}")
	b.settled("c1")
	b.step(0, "c1 c2", `,"capacity":{"allocatable":{"cpu":"64","memory":"512Mi","pods":"-4"}}`)
	require.Equal(t, "map[cpu:8 memory:512Mi]", b.field("c1", "status", "capacity", "allocatable"))
	require.Equal(t, "map[cpu:64 memory:512Mi]", b.field("c2", "status", "capacity", "allocatable"))
}

// However many passes there are, a kubeconfig is read once.
func TestAKubeconfigIsReadOnce(t *testing.T) {
	k, _ := newFleet(t)
	for range 3 {
		k.settled("c1")
	}
	require.EqualValues(t, 2, k.connects.Load())
	k.add("c2", kubeconfig(newCluster(t, "two", "2", "").URL))
	k.eventually(func() bool { return k.connects.Load() == 3 }, "another one")
}
