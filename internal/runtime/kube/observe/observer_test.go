package observe_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kcpctl/kcpctl/internal/client/cluster"
	"github.com/kcpctl/kcpctl/internal/client/ready"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/runtime/kube/observe"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeapi"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

const deployments = "apis/apps/v1/deployments"

// observed is a component on a simulated cluster.
type observed struct {
	*fakeapi.Server
	component *topology.Component
	observer  *observe.Observer
	client    *cluster.Client
}

func observing(t *testing.T) *observed {
	t.Helper()
	s := fakeapi.New(t)
	d, err := dynamic.NewForConfig(&rest.Config{Host: s.URL})
	require.NoError(t, err)
	api := &cluster.API{Context: s.URL, Dynamic: d, HTTP: s.Client()}
	cl, err := cluster.New(topology.Cluster{Name: "eu", Namespace: "kcp"}, cluster.Options{
		API: func(topology.Cluster) (*cluster.API, error) { return api, nil }, Now: time.Now, Notify: t.Logf,
	})
	require.NoError(t, err)
	top := topologytest.Build(t, "")
	return &observed{s, top.Root(), observe.New(cluster.Quiet(t.Context()), topology.LabelSetup+"="+top.Name, func() time.Time { return time.Now().Add(time.Minute) }), cl}
}

// apply applies an object of the component, of the newest revision.
func (o *observed) apply(t *testing.T, path, name, text string) {
	t.Helper()
	all := o.component.Labels()
	all["controller-revision-hash"] = "r1"
	labels, err := json.Marshal(all)
	require.NoError(t, err)
	o.Apply(t, "", path, fmt.Sprintf("{metadata: {name: %s, namespace: kcp, labels: %s}, %s}", name, labels, text))
}

func (o *observed) state(t *testing.T) (ready.State, error) {
	return o.observer.State(t.Context(), o.client, o.component)
}

// reason returns the reason why the component is not ready.
func (o *observed) reason(t *testing.T) string {
	s, err := o.state(t)
	if err != nil {
		return err.Error()
	}
	return s.Reason
}

func (o *observed) becomes(t *testing.T, reason string) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.HasPrefix(o.reason(t), reason) }, time.Minute, 10*time.Millisecond)
}

// stays requires a reason for a while: each call answers alike.
func (o *observed) stays(t *testing.T, reason string) {
	t.Helper()
	for range 50 {
		require.Equal(t, reason, o.reason(t)[:min(len(reason), len(o.reason(t)))])
	}
}

const unready = "apiVersion: apps/v1, kind: Deployment, spec: {replicas: 1}, status: {observedGeneration: 1}"

// A component that a user has scaled to 0 is not ready.
func TestAComponentScaledToZero(t *testing.T) {
	o := observing(t)
	o.apply(t, deployments, o.component.Object(),
		"apiVersion: apps/v1, kind: Deployment, spec: {replicas: 0}, status: {observedGeneration: 1}")
	o.becomes(t, "0 of 1 replicas: Deployment demo-root was scaled to 0, not by kcpctl")
	s, err := o.state(t)
	require.NoError(t, err)
	require.False(t, s.Ready)
	require.Equal(t, "kcpctl up", s.Next)
}

// The pod of a probe is not a pod of a component.
func TestPodsOfProbesAreOfNoComponent(t *testing.T) {
	o := observing(t)
	o.apply(t, deployments, o.component.Object(), unready)
	labels, err := json.Marshal(topology.ProbeLabels("demo"))
	require.NoError(t, err)
	o.Apply(t, "", "api/v1/pods", fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: probe, namespace: kcp, labels: %s}}", labels))
	o.apply(t, "api/v1/pods", "demo-root-0", "apiVersion: v1, kind: Pod")
	pods, err := o.observer.Pods(t.Context(), o.client, o.component)
	require.NoError(t, err)
	require.Len(t, pods, 1)
	require.Equal(t, "demo-root-0", pods[0].Name)
}

// What cannot be watched is an error for as long as that lasts, whatever was seen before.
func TestAWatchThatIsRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		seen     bool // before
		requests string
	}{
		"from the start":              {requests: "list and watch"},
		"after all was seen":          {seen: true, requests: "list and watch"},
		"what is listed, not watched": {requests: "watch"},
	} {
		t.Run(name, func(t *testing.T) {
			o := observing(t)
			o.apply(t, deployments, o.component.Object(), unready)
			if tc.seen {
				o.becomes(t, "0/1 ready")
			}
			o.Refuse(func(r *http.Request) (int, string) {
				if strings.HasSuffix(r.URL.Path, "/pods") && (r.URL.Query().Has("watch") || tc.requests != "watch") {
					return http.StatusForbidden, `pods is forbidden: User "ann" cannot do that`
				}
				return 0, ""
			})
			o.becomes(t, "watch pods: not allowed")
			o.stays(t, "watch pods: not allowed")
			o.Refuse(nil)
			o.becomes(t, "0/1 ready")
			o.stays(t, "0/1 ready")
		})
	}
}

// A watch that ends is continued, or begins again if the API server no longer has what has changed in the meantime.
func TestAWatchThatEnds(t *testing.T) {
	o := observing(t)
	o.apply(t, deployments, o.component.Object(), unready)
	o.becomes(t, "0/1 ready")
	o.Refuse(func(*http.Request) (int, string) { return http.StatusServiceUnavailable, "no" })
	o.stays(t, "0/1 ready")
	o.Refuse(nil)
	o.apply(t, deployments, o.component.Object(), "spec: {replicas: 2}, status: {observedGeneration: 2, updatedReplicas: 2}")
	o.becomes(t, "0/2 ready")
	see := o.Blind(deployments)
	o.apply(t, deployments, o.component.Object(), "spec: {replicas: 3}, status: {observedGeneration: 3, updatedReplicas: 3}")
	o.stays(t, "0/2 ready")
	see()
	o.becomes(t, "0/3 ready")
}

// A rollout waits with the reason of its worst pod and the last lines of a container that crashes, or with a warning.
func TestWhatARolloutWaitsFor(t *testing.T) {
	o := observing(t)
	require.Equal(t, "does not exist", o.reason(t))
	o.apply(t, "apis/apps/v1/statefulsets", o.component.Object(), "apiVersion: apps/v1, kind: StatefulSet, spec: {replicas: 1}, "+
		"status: {observedGeneration: 1, updateRevision: r1, updatedReplicas: 1}")
	o.apply(t, "api/v1/pods", "p1", `apiVersion: v1, kind: Pod, spec: {containers: [{name: kcp, image: "kcp:v1"}]}, status: {phase: Running,
		containerStatuses: [{name: kcp, restartCount: 3, state: {waiting: {reason: CrashLoopBackOff}}, lastState: {terminated: {exitCode: 2, reason: Error}}}]}`)
	o.Serve("/api/v1/namespaces/kcp/pods/p1/log?container=kcp&previous=true&tailLines=100", "no etcd")
	o.becomes(t, "Pod p1: CrashLoopBackOff: exit code 2")
	s, err := o.state(t)
	require.NoError(t, err)
	require.Equal(t, []string{`"no etcd"`}, s.Detail)

	o.apply(t, "api/v1/pods", "p1", "status: {phase: Pending, containerStatuses: [{name: kcp, state: {waiting: {reason: ContainerCreating}}, lastState: null}]}")
	o.becomes(t, "0/1 ready")
	o.Apply(t, "", "api/v1/events", `{metadata: {name: e1, namespace: kcp}, kind: Event, type: Warning, reason: FailedMount, message: no such Secret,
		involvedObject: {kind: Pod, name: p1}}`)
	o.becomes(t, "Pod p1: FailedMount: no such Secret")
}
