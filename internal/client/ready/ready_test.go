package ready

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kcpctl/kcpctl/internal/testutil"
)

// object reads an object from YAML.
func object[T any](t *testing.T, text string) *T {
	t.Helper()
	out := new(T)
	require.NoError(t, yaml.UnmarshalStrict([]byte(text), out))
	return out
}

// deployment is of revision 2 with two replicas; status is what follows.
func deployment(t *testing.T, status string) *unstructured.Unstructured {
	t.Helper()
	return object[unstructured.Unstructured](t, `
apiVersion: apps/v1
kind: Deployment
metadata: {name: demo-root, generation: 4, creationTimestamp: "2026-11-20T17:40:00Z", annotations: {deployment.kubernetes.io/revision: "2"}}
spec: {replicas: 2, progressDeadlineSeconds: 600}
status: `+status)
}

func replicaSets(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	return []*unstructured.Unstructured{
		object[unstructured.Unstructured](t, `{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: demo-root-old, labels: {pod-template-hash: old},
			annotations: {deployment.kubernetes.io/revision: "1"}}}`),
		object[unstructured.Unstructured](t, `{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: demo-root-new, labels: {pod-template-hash: new},
			annotations: {deployment.kubernetes.io/revision: "2"}}}`),
	}
}

// pod is of the newest revision unless meta says otherwise; the clock stands at 17:45:12.
func pod(t *testing.T, name, hash, status string) *corev1.Pod {
	t.Helper()
	return object[corev1.Pod](t, `
metadata: {name: `+name+`, creationTimestamp: "2026-11-20T17:44:00Z", labels: {pod-template-hash: `+hash+`, controller-revision-hash: `+hash+`}}
spec:
  containers:
  - {name: kcp, image: "ghcr.io/kcp-dev/kcp:v0.32.9", resources: {limits: {memory: 128Mi}}}
  volumes: [{name: data, persistentVolumeClaim: {claimName: data-0}}]
status: `+status)
}

// A status of a pod.
const (
	podReady   = `{phase: Running, startTime: "2026-11-20T17:44:00Z", conditions: [{type: Ready, status: "True"}], containerStatuses: [{name: kcp, ready: true, restartCount: 1, state: {running: {startedAt: "2026-11-20T17:44:02Z"}}}]}`
	podRunning = `{phase: Running, conditions: [{type: Ready, status: "False"}], containerStatuses: [{name: kcp, state: {running: {startedAt: "2026-11-20T17:44:02Z"}}}]}`
	podCreated = `{phase: Pending, conditions: [{type: PodScheduled, status: "True"}], containerStatuses: [{name: kcp, state: {waiting: {reason: ContainerCreating}}}]}`
)

// waiting is a container that does not run.
func waiting(reason, message string) string {
	return `{phase: Pending, conditions: [{type: PodScheduled, status: "True"}], containerStatuses: [{name: kcp, image: "ghcr.io/kcp-dev/kcp:v0.32.9",
		state: {waiting: {reason: ` + reason + `, message: '` + message + `'}}}]}`
}

// crashed is a container that ended before, and whose state is what follows.
func crashed(restarts, reason, code, state string) string {
	return `{phase: Running, containerStatuses: [{name: kcp, restartCount: ` + restarts + `, lastState: {terminated: {reason: ` + reason +
		`, exitCode: ` + code + `}}, state: ` + state + `}]}`
}

func unschedulable(since, message string) string {
	return `{phase: Pending, conditions: [{type: PodScheduled, status: "False", reason: Unschedulable, lastTransitionTime: "` + since + `", message: '` + message + `'}]}`
}

func warning(t *testing.T, kind, name, reason, message, at string) *corev1.Event {
	t.Helper()
	return object[corev1.Event](t, `{type: Warning, reason: `+reason+`, message: '`+message+`', lastTimestamp: "`+at+`", involvedObject: {kind: `+kind+`, name: `+name+`}}`)
}

const (
	rolling  = `{observedGeneration: 4, replicas: 2, updatedReplicas: 2, readyReplicas: 1, availableReplicas: 1}`
	complete = `{observedGeneration: 4, replicas: 2, updatedReplicas: 2, readyReplicas: 2, availableReplicas: 2, conditions: [
		{type: Progressing, status: "True", reason: NewReplicaSetAvailable}, {type: Available, status: "True"}]}`
)

func TestState(t *testing.T) {
	type events []*corev1.Event
	for name, tc := range map[string]struct {
		status string
		pods   []string // of the newest revision
		old    []string // of the one before
		claim  string
		events events
		want   State
		crash  *Crash
	}{
		"ready": {
			status: complete, pods: []string{podReady, podReady},
			want: State{Ready: true, ReadyReplicas: 2, Restarts: 2},
		},
		"not seen by its controller": {
			status: `{observedGeneration: 3, replicas: 2, updatedReplicas: 2, readyReplicas: 2, availableReplicas: 2}`, old: []string{podReady, podReady},
			want: State{Reason: RolloutNotStarted},
		},
		"old pods left": {
			status: `{observedGeneration: 4, replicas: 3, updatedReplicas: 2, readyReplicas: 3, availableReplicas: 3}`,
			pods:   []string{podReady, podReady}, old: []string{podReady},
			want: State{ReadyReplicas: 2, Restarts: 2, Reason: "1 of a previous revision remaining"},
		},
		"being updated": {
			status: `{observedGeneration: 4, replicas: 2, updatedReplicas: 1, readyReplicas: 2, availableReplicas: 2}`,
			pods:   []string{podReady}, old: []string{podReady},
			want: State{ReadyReplicas: 1, Restarts: 1, Reason: "1/2 updated"},
		},
		"one of two": {
			status: rolling, pods: []string{podReady, podRunning},
			want: State{ReadyReplicas: 1, Restarts: 1, Reason: "1/2 ready"},
		},
		"ready, but not for long enough": {
			status: `{observedGeneration: 4, replicas: 2, updatedReplicas: 2, readyReplicas: 2, availableReplicas: 1}`, pods: []string{podReady, podReady},
			want: State{ReadyReplicas: 2, Restarts: 2, Reason: "1/2 available"},
		},
		"image of an unknown tag": {
			status: rolling, pods: []string{waiting("ImagePullBackOff", `Back-off pulling image "x": ErrImagePull: rpc error: code = NotFound desc = failed to resolve reference "x": x: not found`)},
			want: State{
				Reason: "Pod new-0: ImagePullBackOff: ghcr.io/kcp-dev/kcp:v0.32.9: not found", Stuck: true,
				Detail: []string{`Back-off pulling image "x": ErrImagePull: rpc error: code = NotFound desc = failed to resolve reference "x": x: not found`},
			},
		},
		"the kubelet tries the image again": {
			status: rolling, pods: []string{waiting("ErrImagePull", `rpc error: code = NotFound desc = failed to resolve reference "x": x: not found`)},
			want: State{
				Reason: "Pod new-0: ImagePullBackOff: ghcr.io/kcp-dev/kcp:v0.32.9: not found", Stuck: true,
				Detail: []string{`rpc error: code = NotFound desc = failed to resolve reference "x": x: not found`},
			},
		},
		"first crash": {
			status: rolling, pods: []string{crashed("1", "Error", "2", `{running: {startedAt: "2026-11-20T17:45:10Z"}}`)},
			want:  State{Restarts: 1, Reason: "Pod new-0: container kcp ended: exit code 2"},
			crash: &Crash{Pod: "new-0", Container: "kcp", Restarts: 1, Previous: true},
		},
		"crash loop, waiting": {
			status: rolling, pods: []string{crashed("3", "Error", "2", `{waiting: {reason: CrashLoopBackOff}}`)},
			want:  State{Restarts: 3, Reason: "Pod new-0: CrashLoopBackOff: exit code 2", Stuck: true},
			crash: &Crash{Pod: "new-0", Container: "kcp", Restarts: 3, Previous: true},
		},
		"crash loop, running": {
			status: rolling, pods: []string{crashed("3", "Error", "2", `{running: {startedAt: "2026-11-20T17:45:10Z"}}`)},
			want:  State{Restarts: 3, Reason: "Pod new-0: CrashLoopBackOff: exit code 2", Stuck: true},
			crash: &Crash{Pod: "new-0", Container: "kcp", Restarts: 3, Previous: true},
		},
		"crashed a moment ago": {
			status: rolling, pods: []string{crashed("3", "Error", "2", `{terminated: {reason: Error, exitCode: 7}}`)},
			want:  State{Restarts: 3, Reason: "Pod new-0: CrashLoopBackOff: exit code 7", Stuck: true},
			crash: &Crash{Pod: "new-0", Container: "kcp", Restarts: 3},
		},
		"crashed long ago": {
			status: rolling, pods: []string{crashed("3", "Error", "2", `{running: {startedAt: "2026-11-20T17:40:10Z"}}`)},
			want: State{Restarts: 3, Reason: "0/2 ready"},
		},
		"out of memory": {
			status: rolling, pods: []string{crashed("3", "OOMKilled", "137", `{waiting: {reason: CrashLoopBackOff}}`)},
			want:  State{Restarts: 3, Reason: "Pod new-0: OOMKilled: container kcp ran out of memory (limit 128Mi)", Stuck: true},
			crash: &Crash{Pod: "new-0", Container: "kcp", Restarts: 3, Previous: true},
		},
		"image before crash": {
			status: rolling, pods: []string{crashed("3", "Error", "2", `{waiting: {reason: CrashLoopBackOff}}`), waiting("InvalidImageName", "x: invalid reference format")},
			want: State{
				Restarts: 3, Reason: "Pod new-1: InvalidImageName: ghcr.io/kcp-dev/kcp:v0.32.9: invalid reference format", Stuck: true,
				Detail: []string{"x: invalid reference format"},
			},
		},
		"missing Secret": {
			status: rolling, pods: []string{waiting("CreateContainerConfigError", `secret "a" not found`)},
			want: State{Reason: `Pod new-0: CreateContainerConfigError: secret "a" not found`, Stuck: true},
		},
		"unschedulable since a moment": {
			status: rolling, pods: []string{unschedulable("2026-11-20T17:45:10Z", "0/1 nodes are available: 1 Insufficient cpu.")},
			want: State{Reason: "Pod new-0: Unschedulable: 0/1 nodes are available: 1 Insufficient cpu."},
		},
		"unschedulable": {
			status: rolling, pods: []string{unschedulable("2026-11-20T17:44:10Z", "0/1 nodes are available: 1 Insufficient cpu.")},
			want: State{Reason: "Pod new-0: Unschedulable: 0/1 nodes are available: 1 Insufficient cpu.", Stuck: true},
		},
		"no storage class": {
			status: rolling, pods: []string{unschedulable("2026-11-20T17:44:10Z", "pod has unbound immediate PersistentVolumeClaims.")}, claim: "{}",
			events: events{warning(t, "PersistentVolumeClaim", "data-0", "FailedBinding", "no persistent volumes available for this claim and no storage class is set", "2026-11-20T17:44:20Z")},
			want:   State{Reason: "PersistentVolumeClaim data-0: no persistent volumes available for this claim and no storage class is set", Stuck: true},
		},
		"volume on its way": {
			status: rolling, pods: []string{unschedulable("2026-11-20T17:45:10Z", "pod has unbound immediate PersistentVolumeClaims.")}, claim: "{storageClassName: fast}",
			want: State{Reason: `PersistentVolumeClaim data-0: waiting for a volume of storage class "fast"`},
		},
		"mount": {
			status: rolling, pods: []string{podCreated},
			events: events{
				warning(t, "Pod", "new-0", "FailedMount", "an older one", "2026-11-20T17:44:20Z"),
				warning(t, "Pod", "new-0", "FailedMount", `MountVolume.SetUp failed: secret "a" not found`, "2026-11-20T17:44:30Z"),
				warning(t, "Pod", "another", "FailedMount", "of another", "2026-11-20T17:44:40Z"),
			},
			want: State{Reason: `Pod new-0: FailedMount: MountVolume.SetUp failed: secret "a" not found`, Stuck: true},
		},
		"being created": {
			status: rolling, pods: []string{podCreated},
			want: State{Reason: "0/2 ready"},
		},
		"quota": {
			status: `{observedGeneration: 4, conditions: [{type: ReplicaFailure, status: "True", reason: FailedCreate, message: 'pods "x" is forbidden: exceeded quota'}]}`,
			want:   State{Reason: `no pod is created: pods "x" is forbidden: exceeded quota`, Stuck: true},
		},
		"evicted": {
			status: rolling, pods: []string{`{phase: Failed, reason: Evicted, message: "The node was low on resource: memory."}`},
			want: State{Reason: "Pod new-0: Evicted: The node was low on resource: memory."},
		},
		"probe": {
			status: rolling, pods: []string{podReady, podRunning},
			events: events{warning(t, "Pod", "new-1", "Unhealthy", "Startup probe failed: HTTP probe failed with statuscode: 500", "2026-11-20T17:45:00Z")},
			want:   State{ReadyReplicas: 1, Restarts: 1, Reason: "1/2 ready: startup probe failed: HTTP probe failed with statuscode: 500"},
		},
		"probe that failed long ago": {
			status: rolling, pods: []string{podReady, podRunning},
			events: events{warning(t, "Pod", "new-1", "Unhealthy", "Startup probe failed: x", "2026-11-20T17:44:00Z")},
			want:   State{ReadyReplicas: 1, Restarts: 1, Reason: "1/2 ready"},
		},
		"an old pod crashes": {
			status: rolling, pods: []string{podCreated}, old: []string{crashed("9", "Error", "2", `{waiting: {reason: CrashLoopBackOff}}`)},
			want: State{Reason: "Pod old-0: CrashLoopBackOff: exit code 2"},
		},
		"the newest pods count more": {
			status: rolling, pods: []string{waiting("CreateContainerConfigError", "x")}, old: []string{waiting("ErrImagePull", "y: not found")},
			want: State{Reason: "Pod new-0: CreateContainerConfigError: x", Stuck: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := &Workload{Object: deployment(t, tc.status), ReplicaSets: replicaSets(t), Events: tc.events}
			for i, status := range tc.pods {
				w.Pods = append(w.Pods, pod(t, "new-"+string(rune('0'+i)), "new", status))
			}
			for i, status := range tc.old {
				w.Pods = append(w.Pods, pod(t, "old-"+string(rune('0'+i)), "old", status))
			}
			if tc.claim != "" {
				w.Claims = append(w.Claims, object[corev1.PersistentVolumeClaim](t, "{metadata: {name: data-0}, spec: "+tc.claim+"}"))
			}
			got, crash := w.State(testutil.Start())
			tc.want.Replicas = 2
			require.Empty(t, cmp.Diff(tc.want, got, cmpopts.IgnoreFields(State{}, "Version", "Since", "Pods")))
			require.Equal(t, tc.crash, crash)
		})
	}
}

func TestStateOfAStatefulSet(t *testing.T) {
	set := func(status string) *unstructured.Unstructured {
		return object[unstructured.Unstructured](t, `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: demo-etcd-root, generation: 1, creationTimestamp: "2026-11-20T17:40:00Z"}
spec: {replicas: 1}
status: `+status)
	}
	for name, tc := range map[string]struct {
		status string
		pods   []*corev1.Pod
		events []*corev1.Event
		want   string
	}{
		"ready": {
			`{observedGeneration: 1, replicas: 1, readyReplicas: 1, availableReplicas: 1, currentReplicas: 1, updatedReplicas: 1, currentRevision: new, updateRevision: new}`,
			[]*corev1.Pod{pod(t, "p", "new", podReady)}, nil, "",
		},
		"ready before its rollout": {
			`{observedGeneration: 1, replicas: 1, readyReplicas: 1, availableReplicas: 1, currentReplicas: 1, updatedReplicas: 0, currentRevision: old, updateRevision: new}`,
			[]*corev1.Pod{pod(t, "p", "old", podReady)}, nil, "0/1 updated",
		},
		"refused": {
			`{observedGeneration: 1, replicas: 0, updateRevision: new}`, nil,
			[]*corev1.Event{warning(t, "StatefulSet", "demo-etcd-root", "FailedCreate", "create Pod p failed: violates PodSecurity", "2026-11-20T17:44:00Z")},
			"no pod is created: create Pod p failed: violates PodSecurity",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := &Workload{Object: set(tc.status), Pods: tc.pods, Events: tc.events}
			s, _ := w.State(testutil.Start())
			require.Equal(t, tc.want, s.Reason)
			require.Equal(t, tc.want == "", s.Ready)
		})
	}
}

// For Kubernetes, a StatefulSet is complete as far as its strategy permits.
func TestStateOfARolloutThatOthersStopped(t *testing.T) {
	for name, tc := range map[string]struct{ kind, spec, updated, reason, next string }{
		"by a partition": {
			"StatefulSet", `{replicas: 3, updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 2}}}`, "1",
			"1/3 updated: its updateStrategy has the partition 2, not by kcpctl", "kubectl patch statefulset/demo -n kcp",
		},
		"not yet": {"StatefulSet", `{replicas: 3, updateStrategy: {rollingUpdate: {partition: 2}}}`, "0", "0/3 updated", ""},
		"to delete pods": {
			"StatefulSet", `{replicas: 3, updateStrategy: {type: OnDelete}}`, "0", "0/3 updated: its updateStrategy is OnDelete, not by kcpctl",
			"kubectl patch statefulset/demo -n kcp",
		},
		"by a pause":                       {"Deployment", `{replicas: 3, paused: true}`, "0", "0/3 updated: its rollout is paused, not by kcpctl", "kubectl rollout resume deployment/demo -n kcp"},
		"when all was updated":             {"StatefulSet", `{replicas: 3, updateStrategy: {type: OnDelete}}`, "3", "", ""},
		"when all was updated (partition)": {"StatefulSet", `{replicas: 3, updateStrategy: {rollingUpdate: {partition: 3}}}`, "3", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := &Workload{Object: object[unstructured.Unstructured](t, `
apiVersion: apps/v1
kind: `+tc.kind+`
metadata: {name: demo, namespace: kcp, generation: 1}
spec: `+tc.spec+`
status: {observedGeneration: 1, replicas: 3, readyReplicas: 3, availableReplicas: 3, updatedReplicas: `+tc.updated+`}`)}
			s, _ := w.State(testutil.Start())
			require.Equal(t, tc.reason, s.Reason)
			require.Equal(t, tc.reason == "", s.Ready)
			require.Equal(t, tc.next != "", s.Stuck)
			require.Contains(t, s.Next, tc.next)
		})
	}
}

func TestStateOfNothing(t *testing.T) {
	s, crash := (&Workload{}).State(testutil.Start())
	require.Equal(t, State{Reason: "does not exist"}, s)
	require.Nil(t, crash)
	require.False(t, (&Workload{}).WantsEvents(testutil.Start()))
}

func TestStateTellsVersionAndAge(t *testing.T) {
	w := &Workload{Object: deployment(t, complete), ReplicaSets: replicaSets(t), Pods: []*corev1.Pod{pod(t, "a", "new", podReady)}}
	s, _ := w.State(testutil.Start())
	require.Equal(t, "v0.32.9", s.Version)
	require.Equal(t, 72*time.Second, testutil.Start().Sub(s.Since))
}

// The version is that of kcpctl's container, also if a podTemplate or a webhook has put another one first.
func TestVersionWithASidecar(t *testing.T) {
	p := pod(t, "a", "new", podReady)
	p.Labels["kcpctl.dev/component"] = "root-shard"
	p.Spec.Containers = append([]corev1.Container{{Name: "proxy", Image: "proxy:v9"}}, p.Spec.Containers...)
	w := &Workload{Object: deployment(t, complete), ReplicaSets: replicaSets(t), Pods: []*corev1.Pod{p}}
	s, _ := w.State(testutil.Start())
	require.Equal(t, "v0.32.9", s.Version)
}

// A workload that a user has scaled to 0 is complete for Kubernetes, and does not serve. A paused one is ready.
func TestStateOfAWorkloadScaledToZero(t *testing.T) {
	scaled := object[unstructured.Unstructured](t, `
apiVersion: apps/v1
kind: Deployment
metadata: {name: demo-root, namespace: kcp, generation: 5}
spec: {replicas: 0}
status: {observedGeneration: 5, conditions: [{type: Available, status: "True"}]}`)
	for name, tc := range map[string]struct {
		wanted     int32
		autoscaled bool
		want       State
	}{
		"by hand": {3, false, State{Stuck: true, Next: "kcpctl up",
			Reason: "0 of 3 replicas: Deployment demo-root was scaled to 0, not by kcpctl"}},
		"what the setup leaves to others": {1, true, State{Stuck: true, Next: "kubectl scale deployment/demo-root --replicas=1 -n kcp",
			Reason: "Deployment demo-root was scaled to 0 replicas, not by kcpctl"}},
		"paused": {0, false, State{Ready: true}},
	} {
		t.Run(name, func(t *testing.T) {
			s, crash := (&Workload{Object: scaled, Wanted: tc.wanted, Autoscaled: tc.autoscaled}).State(testutil.Start())
			require.Empty(t, cmp.Diff(tc.want, s, cmpopts.IgnoreFields(State{}, "Pods")))
			require.Nil(t, crash)
		})
	}
}

func TestStateTellsWhichPodsStay(t *testing.T) {
	leaving, ended := pod(t, "leaving", "old", podReady), pod(t, "ended", "old", podReady)
	leaving.DeletionTimestamp = &metav1.Time{Time: testutil.Start()}
	ended.Status.Phase = corev1.PodFailed
	w := &Workload{Object: deployment(t, complete), ReplicaSets: replicaSets(t), Pods: []*corev1.Pod{pod(t, "new", "new", podReady), leaving, ended}}
	s, _ := w.State(testutil.Start())
	require.Equal(t, map[string]bool{"new": true, "leaving": false}, s.Pods)
}

func TestTag(t *testing.T) {
	for image, want := range map[string]string{
		"ghcr.io/kcp-dev/kcp:v0.32.3":                  "v0.32.3",
		"localhost:5000/kcp":                           "",
		"localhost:5000/kcp:v1":                        "v1",
		"kcp@sha256:0123456789abcdef0123456789abcdef":  "sha256:0123456789ab",
		"kcp:v1@sha256:0123456789abcdef0123456789abcd": "v1",
		"": "",
	} {
		require.Equal(t, want, tag(image), image)
	}
}

func TestWantsEventsOnlyWhereTheyHelp(t *testing.T) {
	young := pod(t, "a", "new", podCreated)
	young.CreationTimestamp.Time = testutil.Start().Add(-time.Second)
	for name, tc := range map[string]struct {
		pods []*corev1.Pod
		want bool
	}{
		"all ready":       {[]*corev1.Pod{pod(t, "a", "new", podReady), pod(t, "b", "new", podReady)}, false},
		"a young pod":     {[]*corev1.Pod{pod(t, "a", "new", podReady), young}, false},
		"an old one":      {[]*corev1.Pod{pod(t, "a", "new", podReady), pod(t, "b", "new", podCreated)}, true},
		"too few of them": {[]*corev1.Pod{pod(t, "a", "new", podReady)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := &Workload{Object: deployment(t, rolling), Pods: tc.pods}
			require.Equal(t, tc.want, w.WantsEvents(testutil.Start()))
		})
	}
}

func TestNext(t *testing.T) {
	const (
		gone    = `{"level":"fatal","caller":"etcdmain/etcd.go:183","msg":"discovery failed","error":"member ff31f1d4abedee66 has already been bootstrapped"}`
		removed = `{"level":"warn","caller":"etcdserver/server.go:1159","msg":"server error","error":"the member has been permanently removed from the cluster"}`
		stops   = `{"level":"info","caller":"rafthttp/peer.go:330","msg":"stopped remote peer","remote-peer-id":"1ff938cd303f34d9"}`
		command = "kcpctl etcd replace-member demo-etcd-root-1"
	)
	for name, tc := range map[string]struct {
		container string
		lines     []string
		want      string
	}{
		"nothing was logged":              {"etcd", nil, ""},
		"the data is gone":                {"etcd", []string{"starting", gone, ""}, command},
		"removed, with lines after it":    {"etcd", []string{removed, stops, stops}, command},
		"another reason":                  {"etcd", []string{stops, `{"level":"fatal","error":"no space left on device"}`}, ""},
		"another server logs what it did": {"kcp", []string{gone, removed}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.want, Crash{Pod: "demo-etcd-root-1", Container: tc.container}.Next(tc.lines))
		})
	}
}
