package kube

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/client/cluster"
	"github.com/kcpctl/kcpctl/internal/client/etcd/datadir"
	"github.com/kcpctl/kcpctl/internal/client/etcd/transfer"
	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeapi"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

const (
	claimsPath = "api/v1/persistentvolumeclaims"
	podsPath   = "api/v1/pods"
)

// volumes is a cluster whose pods of kcpctl run, with a directory for each volume.
type volumes struct {
	t   *testing.T
	api *fakeapi.Server
	top *topology.Topology
	now func() time.Time
	// status is the status that pods get.
	status string
	dir    string

	mu      sync.Mutex
	reports []string
}

func newVolumes(t *testing.T) *volumes {
	t.Helper()
	v := &volumes{t: t, api: fakeapi.New(t), now: time.Now, status: "{phase: Running}", dir: t.TempDir()}
	v.top = topologytest.Build(t, `spec:
  cacheServer: {etcd: {managed: {}}}
  shards:
  - name: alpha
    etcd: {managed: {replicas: 3}}
  - name: beta
    etcd: {embedded: {}}
  - name: gamma
    etcd: {embedded: {ephemeral: true}}
  - name: delta
    etcd: {external: {endpoints: ["https://etcd.example.com:2379"], tlsSecret: etcd}}
`)
	v.api.Apply(t, "", "api/v1/namespaces", "{apiVersion: v1, kind: Namespace, metadata: {name: kube-system}}")
	v.api.Apply(t, "", "api/v1/namespaces", "{apiVersion: v1, kind: Namespace, metadata: {name: kcp}}")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil { // Refuse ends watches
			v.kubelet(ctx)
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return v
}

// kubelet gives pods their status until its watch ends.
func (v *volumes) kubelet(ctx context.Context) {
	pods := v.client().Resource(kind.Pods).Namespace("kcp")
	all, err := pods.List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	start := func(u *unstructured.Unstructured) {
		if u.Object["status"] == nil {
			v.api.Apply(v.t, "", podsPath, fmt.Sprintf("{metadata: {name: %s, namespace: kcp}, status: %s}", u.GetName(), v.status))
		}
	}
	for i := range all.Items {
		start(&all.Items[i])
	}
	w, err := pods.Watch(ctx, metav1.ListOptions{ResourceVersion: all.GetResourceVersion()})
	if err != nil {
		return
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		if u, ok := e.Object.(*unstructured.Unstructured); ok && e.Type == "ADDED" {
			start(u)
		}
	}
}

func (v *volumes) client() dynamic.Interface {
	v.t.Helper()
	d, err := dynamic.NewForConfig(&rest.Config{Host: v.api.URL, QPS: -1})
	require.NoError(v.t, err)
	return d
}

// runtime connects as another run would.
func (v *volumes) runtime() *Runtime {
	v.t.Helper()
	d := v.client()
	r, err := New(v.top, Options{
		Version: "test", Now: v.now, Image: v1alpha1.Image{Repository: "kcpctl", Tag: "v1"},
		API: func(topology.Cluster) (*API, error) { return &API{Context: "c", Dynamic: d, HTTP: v.api.Client()}, nil },
	})
	require.NoError(v.t, err)
	v.t.Cleanup(func() { require.NoError(v.t, r.Close()) })
	r.restorer.pods.dial = v.dial
	return r
}

// dial connects to a server that has the volume of a pod.
func (v *volumes) dial(ctx context.Context, _ *cluster.Client, pod *corev1.Pod, port int32) (net.Conn, error) {
	if port != transfer.Port {
		return nil, fmt.Errorf("port %d of %s", port, pod.Name)
	}
	volume := filepath.Join(v.dir, pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName)
	if err := os.MkdirAll(volume, 0o700); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &transfer.Server{Directory: datadir.Directory{Path: filepath.Join(volume, "etcd")}, Log: func(string) {}}
	served, end := context.WithCancel(context.WithoutCancel(ctx))
	go func() { _ = s.Serve(served, l) }()
	v.t.Cleanup(end)
	return (&net.Dialer{}).DialContext(ctx, "tcp", l.Addr().String())
}

// data is a database that is restored.
func (v *volumes) data(content, suffix string) run.Restored {
	v.t.Helper()
	file := filepath.Join(v.t.TempDir(), "db")
	require.NoError(v.t, os.WriteFile(file, []byte(content), 0o600))
	return run.Restored{File: file, Suffix: suffix, Progress: func(int64, int64) {}, Report: func(message string) {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.reports = append(v.reports, message)
	}}
}

// held returns the contents of the data directories of a volume, by name.
func (v *volumes) held(claim string) map[string]string {
	v.t.Helper()
	out := map[string]string{}
	entries, _ := os.ReadDir(filepath.Join(v.dir, claim))
	for _, e := range entries {
		raw, err := os.ReadFile(filepath.Join(v.dir, claim, e.Name(), "member", "snap", "db"))
		require.NoError(v.t, err)
		out[e.Name()] = string(raw)
	}
	return out
}

func (v *volumes) uid(claim string) string {
	v.t.Helper()
	o := v.api.Get("", claimsPath, "kcp", claim)
	require.NotNil(v.t, o, claim)
	return string(o.GetUID())
}

// All members of an etcd get the same database, in claims as the controller of the StatefulSet creates them.
func TestPlaceDataOfMembers(t *testing.T) {
	v := newVolumes(t)
	r, alpha := v.runtime(), v.top.Component("shard/alpha")
	placed, err := r.PlaceData(t.Context(), alpha, v.data("one", "before-1"))
	require.NoError(t, err)
	require.Empty(t, placed.Aside)
	uids := map[string]string{}
	for n := range 3 {
		claim := fmt.Sprintf("data-demo-etcd-alpha-%d", n)
		require.Equal(t, map[string]string{"etcd": "one"}, v.held(claim))
		uids[claim] = v.uid(claim)
		labels := v.api.Get("", claimsPath, "kcp", claim).GetLabels()
		require.Equal(t, "demo", labels[topology.LabelSetup])
		require.Empty(t, labels[topology.LabelApplySet], "it is not one of the applied objects")
	}
	require.Empty(t, v.api.Names("", podsPath))
	home := string(v.api.Get("", "api/v1/namespaces", "", "kube-system").GetUID())
	require.Equal(t, map[topology.ID]record.Data{
		"etcd/alpha": {Cluster: "default", Namespace: "kcp", ClusterUID: home, Members: 3, Release: "v3.6.16", Volumes: uids,
			Volume: "PersistentVolumeClaim data-demo-etcd-alpha-*"},
		"shard/alpha": {Cluster: "default", Namespace: "kcp", ClusterUID: home, Etcd: "managed etcd/alpha", Release: alpha.Version},
	}, placed.Data)

	placed, err = r.PlaceData(t.Context(), alpha, v.data("two", "before-2"))
	require.NoError(t, err)
	require.Equal(t, []string{
		"etcd.before-2 on PersistentVolumeClaim/kcp/data-demo-etcd-alpha-0", "etcd.before-2 on PersistentVolumeClaim/kcp/data-demo-etcd-alpha-1",
		"etcd.before-2 on PersistentVolumeClaim/kcp/data-demo-etcd-alpha-2",
	}, placed.Aside)
	require.Equal(t, uids, placed.Data["etcd/alpha"].Volumes)
	require.Equal(t, map[string]string{"etcd": "two", "etcd.before-2": "one"}, v.held("data-demo-etcd-alpha-2"))
}

// The claim of an embedded etcd is one of the setup's objects.
func TestPlaceDataOfAnEmbeddedEtcd(t *testing.T) {
	v := newVolumes(t)
	placed, err := v.runtime().PlaceData(t.Context(), v.top.Component("shard/beta"), v.data("one", "before-1"))
	require.NoError(t, err)
	const claim = "demo-shard-beta-data"
	require.Equal(t, map[string]string{"etcd": "one"}, v.held(claim))
	require.Equal(t, v.top.ApplySet(v.top.Home), v.api.Get("", claimsPath, "kcp", claim).GetLabels()[topology.LabelApplySet])
	require.Len(t, placed.Data, 1)
	require.Equal(t, map[string]string{claim: v.uid(claim)}, placed.Data["shard/beta"].Volumes)
	require.Equal(t, record.EtcdEmbedded, placed.Data["shard/beta"].Etcd)
}

// A cache begins empty. Its volumes are recorded, so that the next up accepts them.
func TestSetAside(t *testing.T) {
	v := newVolumes(t)
	r, cache := v.runtime(), v.top.Cache()
	placed, err := r.SetAside(t.Context(), cache, v.data("", "before-1"))
	require.NoError(t, err)
	require.Equal(t, run.Placed{}, placed, "it has no volumes yet")
	require.Empty(t, v.api.Names("", claimsPath))

	_, err = r.PlaceData(t.Context(), cache, v.data("one", "before-1"))
	require.NoError(t, err)
	placed, err = r.SetAside(t.Context(), cache, v.data("", "before-2"))
	require.NoError(t, err)
	require.Equal(t, []string{"etcd.before-2 on PersistentVolumeClaim/kcp/data-demo-etcd-cache-0"}, placed.Aside)
	require.Equal(t, map[string]string{"etcd.before-2": "one"}, v.held("data-demo-etcd-cache-0"))
	require.Len(t, placed.Data["etcd/cache"].Volumes, 1)
	require.Empty(t, v.api.Names("", podsPath))
}

// Whatever request a run is killed at, the next one completes, and what was there is kept.
func TestPlaceDataContinues(t *testing.T) {
	t.Parallel()
	for n := 1; ; n++ {
		v := newVolumes(t)
		alpha := v.top.Component("shard/alpha")
		_, err := v.runtime().PlaceData(t.Context(), alpha, v.data("old", "before-0"))
		require.NoError(t, err)
		r, requests := v.runtime(), 0
		require.NoError(t, r.clusters.connect(t.Context()))
		var mu sync.Mutex
		v.api.Refuse(func(req *http.Request) (int, string) {
			mu.Lock()
			defer mu.Unlock()
			if req.URL.Query().Get("watch") != "" || req.Method == http.MethodGet {
				return 0, ""
			}
			if requests++; requests >= n {
				return http.StatusForbidden, "the run is killed"
			}
			return 0, ""
		})
		_, err = r.PlaceData(t.Context(), alpha, v.data("new", "before-1"))
		v.api.Refuse(nil)
		if err == nil {
			require.GreaterOrEqual(t, n, 6, "three pods are created and deleted")
			return // there was no such request
		}
		require.ErrorContains(t, err, "the run is killed")
		_, err = v.runtime().PlaceData(t.Context(), alpha, v.data("new", "before-2"))
		require.NoError(t, err)
		for m := range 3 {
			held := v.held(fmt.Sprintf("data-demo-etcd-alpha-%d", m))
			require.Equal(t, "new", held["etcd"])
			require.Len(t, held, 2)
			require.True(t, held["etcd.before-1"] == "old" || held["etcd.before-2"] == "old", "%v", held)
		}
		require.Empty(t, v.api.Names("", podsPath))
	}
}

// The pod of an interrupted restore is replaced, and no other.
func TestPlaceDataWithALeftoverPod(t *testing.T) {
	v := newVolumes(t)
	beta := v.top.Component("shard/beta")
	const name = "demo-shard-beta-data-restore"
	v.api.Apply(t, "", podsPath, fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: kcp}, status: {phase: Running}}`, name))
	_, err := v.runtime().PlaceData(t.Context(), beta, v.data("one", "before-1"))
	require.ErrorContains(t, err, "Pod/kcp/"+name)
	require.ErrorContains(t, err, "exists, and kcpctl has not created it")
	require.Equal(t, []string{"kcp/" + name}, v.api.Names("", podsPath))

	v.api.Apply(t, "", podsPath, fmt.Sprintf(`{metadata: {name: %s, namespace: kcp, labels: {%s: demo, %s: %s}}}`, name,
		topology.LabelSetup, topology.LabelPurpose, topology.PurposeRestore))
	_, err = v.runtime().PlaceData(t.Context(), beta, v.data("one", "before-1"))
	require.NoError(t, err)
	require.Empty(t, v.api.Names("", podsPath))
}

// Data is not replaced while another pod uses the volume.
func TestPlaceDataWaitsForAnotherPod(t *testing.T) {
	v := newVolumes(t)
	v.api.Apply(t, "", podsPath, `{apiVersion: v1, kind: Pod, metadata: {name: debug, namespace: kcp}, status: {phase: Running}, spec: {volumes: [
		{name: x, persistentVolumeClaim: {claimName: demo-shard-beta-data}}]}}`)
	v.api.Apply(t, "", podsPath, `{apiVersion: v1, kind: Pod, metadata: {name: ended, namespace: kcp}, status: {phase: Succeeded}, spec: {volumes: [
		{name: x, persistentVolumeClaim: {claimName: demo-shard-beta-data}}]}}`)
	data := v.data("one", "before-1")
	waited := false
	data.Report = func(message string) {
		if strings.Contains(message, "waiting for Pod/kcp/debug to be gone, which uses PersistentVolumeClaim/kcp/demo-shard-beta-data") {
			waited = true
			require.Empty(t, v.held("demo-shard-beta-data"))
			v.api.Delete("", podsPath, "kcp", "debug")
		}
	}
	_, err := v.runtime().PlaceData(t.Context(), v.top.Component("shard/beta"), data)
	require.NoError(t, err)
	require.True(t, waited)
	require.Equal(t, map[string]string{"etcd": "one"}, v.held("demo-shard-beta-data"))
}

// Why a pod does not start is in the error, and the pod is removed.
func TestPlaceDataInAPodThatDoesNotStart(t *testing.T) {
	for name, tc := range map[string]struct{ status, err string }{
		"no image": {`{phase: Pending, containerStatuses: [{name: kcpctl, image: "kcpctl:v1", state: {waiting: {reason: ErrImagePull,
			message: "failed to pull: not found"}}}]}`, "ImagePullBackOff: kcpctl:v1: not found"},
		"no node": {`{phase: Pending, conditions: [{type: PodScheduled, status: "False", reason: Unschedulable,
			message: "0/1 nodes are available", lastTransitionTime: "2026-01-01T00:00:00Z"}]}`, "Unschedulable: 0/1 nodes are available"},
		"an old kcpctl": {`{phase: Failed, containerStatuses: [{name: kcpctl, state: {terminated: {exitCode: 2, reason: Error}}}]}`,
			"container kcpctl ended: exit code 2"},
	} {
		t.Run(name, func(t *testing.T) {
			v := newVolumes(t)
			v.status = tc.status
			began, calls := time.Now(), time.Duration(0)
			var mu sync.Mutex
			v.now = func() time.Time { // half a minute passes between two looks
				mu.Lock()
				defer mu.Unlock()
				calls++
				return began.Add(calls * 31 * time.Second)
			}
			_, err := v.runtime().PlaceData(t.Context(), v.top.Component("shard/beta"), v.data("one", "before-1"))
			require.ErrorContains(t, err, tc.err)
			require.ErrorContains(t, err, "Pod/kcp/demo-shard-beta-data-restore")
			require.Contains(t, clierr.Hint(err), "--image")
			require.Empty(t, v.api.Names("", podsPath))
		})
	}
}

// What has no volumes that kcpctl creates is refused, with the reason.
func TestVolumesThatCannotBeReplaced(t *testing.T) {
	v := newVolumes(t)
	r := v.runtime()
	_, err := r.restorer.volumesOf(v.top.Component("shard/gamma"))
	require.ErrorContains(t, err, "shard/gamma has no volume to restore its data to: shard/gamma has it on emptyDir")
	_, err = r.restorer.volumesOf(v.top.Component("shard/delta"))
	require.ErrorContains(t, err, "shard/delta stores its data in an external etcd, https://etcd.example.com:2379, which kcpctl does not replace")
	require.Contains(t, clierr.Hint(err), "etcdutl snapshot restore")
}

// What has the same name elsewhere is another place, and so is what is not known to be this one.
func TestABackupWasTakenHere(t *testing.T) {
	v := newVolumes(t)
	rt := v.runtime()
	require.NoError(t, rt.clusters.connect(t.Context()))
	here := record.Data{Cluster: "default", Namespace: "kcp", ClusterUID: string(rt.clusters.home.UID)}
	require.NotEmpty(t, here.ClusterUID)
	for want, all := range map[bool][]record.Data{
		true: {here, {Cluster: "renamed", Namespace: "kcp", ClusterUID: here.ClusterUID}},
		false: {
			{Cluster: "default", Namespace: "kcp", ClusterUID: "another"}, {Cluster: "default", Namespace: "kcp"}, {},
			{Cluster: "default", Namespace: "other", ClusterUID: here.ClusterUID},
		},
	} {
		for _, d := range all {
			got, err := rt.WasHere(t.Context(), d)
			require.NoError(t, err)
			require.Equal(t, want, got, "%+v", d)
		}
	}
}
