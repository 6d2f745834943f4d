// Package pods_test tests the runtime for Kubernetes with pods on a real node: logs, port-forwards, reasons and
// replacement. make e2e starts it with a cluster.
package pods_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/client/cluster"
	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/client/ready"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/runtime/kube"
)

const (
	etcdImage = "gcr.io/etcd-development/etcd:v3.6.16"
	podWait   = 5 * time.Minute // a back-off takes one
)

// realCluster is a setup of components of the tests' making, in a namespace of its own on a real cluster.
type realCluster struct {
	*kube.Runtime
	t        *testing.T
	topology *topology.Topology
	// client is another one than that of the runtime.
	client *cluster.Client
}

// newCluster makes the namespace, and deletes it after the test.
func newCluster(t *testing.T, namespace string, names ...string) *realCluster {
	t.Helper()
	kubeconfig := os.Getenv("E2E_KUBECONFIG")
	require.NotEmpty(t, kubeconfig, "E2E_KUBECONFIG is not set: start the tests with make e2e")
	home := topology.Cluster{Name: "eu", Kubeconfig: kubeconfig, Namespace: namespace}
	top := &topology.Topology{Name: "pods", Home: home, Clusters: []topology.Cluster{home}}
	for _, n := range names {
		top.Components = append(top.Components, &topology.Component{
			Kind: topology.Shard, Name: n, Setup: top.Name, Cluster: home, Replicas: 1, Port: 2379,
		})
	}
	r, err := kube.New(top, kube.Options{
		Version: "test", Holder: kube.Holder{Host: "test", PID: os.Getpid(), Machine: "test", User: "tester"}, Now: time.Now,
	})
	require.NoError(t, err)
	client, err := cluster.New(home, cluster.Options{Now: time.Now, Notify: func(string, ...any) {}})
	require.NoError(t, err)
	require.NoError(t, client.Connect(t.Context()))
	c := &realCluster{Runtime: r, t: t, topology: top, client: client}
	require.NoError(t, r.Apply(t.Context(), []plan.Item{{
		Ref: plan.Ref{Cluster: "eu", GroupVersionKind: kind.Namespace.GroupVersionKind, Name: namespace}, Action: plan.Create,
		Want: &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": namespace, "labels": map[string]any{
				"pod-security.kubernetes.io/enforce": "baseline"}}}},
	}}, run.PlanOptions{}))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), podWait)
		defer cancel()
		items, err := r.Objects(ctx)
		assert.NoError(t, err)
		assert.NoError(t, r.Delete(ctx, items))
		assert.NoError(t, r.Purge(ctx))
		ns, err := client.ReadNamespace(ctx)
		assert.NoError(t, err)
		assert.Nil(t, ns, "the namespace that the setup made is gone")
		assert.NoError(t, r.Close())
	})
	return c
}

// etcd is a pod that serves plain HTTP on port 2379. patch changes the pod's template.
func (c *realCluster) etcd(i int, patch func(pod map[string]any)) *topology.Component {
	c.t.Helper()
	comp := c.topology.Components[i]
	pod := map[string]any{
		"terminationGracePeriodSeconds": int64(1),
		"containers": []any{map[string]any{
			"name": "etcd", "image": etcdImage,
			"command": []any{
				"etcd", "--data-dir=/tmp/etcd", "--listen-client-urls=http://0.0.0.0:2379", "--advertise-client-urls=http://localhost:2379",
			},
			"readinessProbe": map[string]any{
				"httpGet": map[string]any{"path": "/readyz", "port": int64(2379)}, "periodSeconds": int64(1),
				"timeoutSeconds": int64(10), // a busy node answers late
			},
		}},
	}
	if patch != nil {
		patch(pod)
	}
	labels := anyMap(comp.Labels())
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": map[string]any{"name": comp.Object(), "namespace": c.client.Namespace, "labels": labels},
		"spec": map[string]any{
			"replicas": int64(comp.Replicas), "selector": map[string]any{"matchLabels": anyMap(comp.Selector())},
			"template": map[string]any{"metadata": map[string]any{"labels": labels}, "spec": pod},
		},
	}}
	l := o.GetLabels()
	l[topology.LabelApplySet] = c.topology.ApplySet(c.topology.Home)
	o.SetLabels(l)
	require.NoError(c.t, c.Apply(c.t.Context(), []plan.Item{{Ref: plan.RefOf("eu", o), Want: o, Action: plan.Create}}, run.PlanOptions{}))
	return comp
}

func anyMap(m map[string]string) map[string]any {
	out := map[string]any{}
	for k, v := range m {
		out[k] = v
	}
	return out
}

// until asks for the state until it is as wanted.
func (c *realCluster) until(comp *topology.Component, done func(ready.State) bool) ready.State {
	c.t.Helper()
	var last ready.State
	for deadline := time.Now().Add(podWait); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		s, err := c.State(c.t.Context(), comp)
		require.NoError(c.t, err)
		if s.Reason != last.Reason {
			c.t.Log(comp.ID(), s.Ready, s.Reason)
		}
		if last = s; done(s) {
			return s
		}
	}
	c.t.Fatalf("%s: %+v", comp.ID(), last)
	return last
}

func isStateReady(s ready.State) bool { return s.Ready }

func container(pod map[string]any) map[string]any {
	return pod["containers"].([]any)[0].(map[string]any)
}

// getter returns a function that makes a request over a new connection to a component.
func (c *realCluster) getter(comp *topology.Component) func() error {
	client := &http.Client{Transport: &http.Transport{
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return c.Dial(ctx, comp) },
		DisableKeepAlives: true,
	}}
	return func() error {
		resp, err := client.Get("http://etcd/version")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err == nil && !strings.Contains(string(body), "3.6.16") {
			err = fmt.Errorf("got %q", body)
		}
		return err
	}
}

func TestPodsAreReachedAndRead(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "kube-e2e-reach", "a")
	comp := c.etcd(0, nil)
	state := c.until(comp, isStateReady)
	require.Equal(t, "v3.6.16", state.Version)
	require.EqualValues(t, 1, state.ReadyReplicas)
	require.False(t, state.Since.IsZero())

	get := c.getter(comp)
	require.NoError(t, get())
	start := time.Now()
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() { assert.NoError(t, get()) })
	}
	wg.Wait()
	t.Log("50 connections at once took", time.Since(start))
	c.endsConnections(comp, get)

	var log bytes.Buffer
	require.NoError(t, c.Logs(t.Context(), comp, run.LogOptions{Tail: new(int64(5))}, &log))
	require.Len(t, strings.Split(strings.TrimSpace(log.String()), "\n"), 5)

	// Another generation of the pod: the old one is not mistaken for it, and the tunnel to it is not used any more.
	c.etcd(0, func(pod map[string]any) {
		container(pod)["env"] = []any{map[string]any{"name": "GENERATION", "value": "2"}}
	})
	state, err := c.State(t.Context(), comp)
	require.NoError(t, err)
	require.False(t, state.Ready)
	c.until(comp, isStateReady)
	require.NoError(t, get())
}

// endsConnections has a connection refused, and one reach its deadline, while others work.
func (c *realCluster) endsConnections(comp *topology.Component, get func() error) {
	c.t.Helper()
	closed := *comp
	closed.Port = 9
	conn, err := c.Dial(c.t.Context(), &closed)
	require.NoError(c.t, err)
	_, err = io.ReadAll(conn)
	require.ErrorContains(c.t, err, "refused", "the node gives the reason")
	require.NoError(c.t, conn.Close())
	require.NoError(c.t, get(), "one refused connection does not harm the others")

	conn, err = c.Dial(c.t.Context(), comp)
	require.NoError(c.t, err)
	require.NoError(c.t, conn.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	_, err = conn.Read(make([]byte, 1))
	require.ErrorIs(c.t, err, os.ErrDeadlineExceeded)
}

// broken is a pod that does not become ready, and the reason that its component gets.
type broken struct {
	patch  func(pod map[string]any)
	reason string
	stuck  bool
	detail string
}

func brokenPods() map[string]broken {
	return map[string]broken{
		"image": {
			func(pod map[string]any) { container(pod)["image"] = "localhost:1/kcp:v9" },
			"ImagePullBackOff: localhost:1/kcp:v9", true, "localhost:1",
		},
		"crash": {
			func(pod map[string]any) { container(pod)["command"] = []any{"etcd", "--config-file=/nowhere"} },
			"CrashLoopBackOff: exit code", true, "open /nowhere",
		},
		"configuration": {func(pod map[string]any) {
			container(pod)["envFrom"] = []any{map[string]any{"secretRef": map[string]any{"name": "nowhere"}}}
		}, `CreateContainerConfigError: secret "nowhere" not found`, true, ""},
		"schedule": {func(pod map[string]any) {
			container(pod)["resources"] = map[string]any{"requests": map[string]any{"cpu": "1000"}}
		}, "Unschedulable: 0/1 nodes are available: 1 Insufficient cpu", true, ""},
		"volume": {func(pod map[string]any) {
			pod["volumes"] = []any{map[string]any{"name": "v", "secret": map[string]any{"secretName": "nowhere"}}}
			container(pod)["volumeMounts"] = []any{map[string]any{"name": "v", "mountPath": "/v"}}
		}, `FailedMount: MountVolume.SetUp failed for volume "v" : secret "nowhere" not found`, true, ""},
		"claim": {func(pod map[string]any) {
			pod["volumes"] = []any{map[string]any{"name": "v", "persistentVolumeClaim": map[string]any{"claimName": "nowhere"}}}
		}, `persistentvolumeclaim "nowhere" not found`, true, ""},
		"security": {func(pod map[string]any) { pod["hostNetwork"] = true }, "no pod is created: pods ", true, ""},
		"probe": {func(pod map[string]any) {
			container(pod)["readinessProbe"].(map[string]any)["httpGet"].(map[string]any)["port"] = int64(9)
		}, "0/1 ready: readiness probe failed: Get", false, ""},
	}
}

// The pods wait at the same time, and not only as many as the machine has cores.
func TestReasonsOfRealPods(t *testing.T) {
	t.Parallel()
	var all sync.WaitGroup
	for name, b := range brokenPods() {
		all.Go(func() {
			t.Run(name, func(t *testing.T) {
				c := newCluster(t, "kube-e2e-"+name, name)
				comp := c.etcd(0, b.patch)
				s := c.until(comp, func(s ready.State) bool {
					return strings.Contains(s.Reason, b.reason) && s.Stuck == b.stuck && s.Reason != ""
				})
				require.Contains(t, strings.Join(s.Detail, "\n"), b.detail)
				require.False(t, s.Ready)
			})
		})
	}
	all.Wait()
}
