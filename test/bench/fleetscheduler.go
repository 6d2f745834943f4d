package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"runtime"
	"runtime/metrics"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/placement/roots"
)

const (
	// controllerInterval and reportInterval are those of the controller, and of the reports of a cluster about its
	// capacity.
	controllerInterval = 10 * time.Second
	reportInterval     = 30 * time.Second
)

// schedulerState is what the process of the scheduler tells.
type schedulerState struct {
	// Known means that everything is listed and watched, and Waiting is how much of it is still to be decided.
	Known   bool
	Waiting int
	// CPU are seconds. Heap is what the heap has after a garbage collection, and Peak the most that it has had, in
	// bytes.
	CPU        float64
	Heap, Peak uint64
}

// fleetScheduler is the scheduler of the product, and what the controller does with it.
type fleetScheduler struct {
	scheduler *roots.Scheduler

	mu       sync.Mutex
	clusters []*api.Cluster
	claims   map[string][]any
	peak     uint64
}

// runFleetScheduler is the process of the scheduler: it prints its address and runs until it is killed.
func runFleetScheduler(ctx context.Context, kcp string, clusters int) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	f := newFleetScheduler(kcp, clusters)
	failed := make(chan error, 2)
	go func() { failed <- f.scheduler.Run(ctx) }()
	go f.control(ctx)
	go f.sample(ctx)
	mux := http.NewServeMux()
	mux.HandleFunc("/state", func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(f.tell(r.URL.Query().Get("heap") != ""))
	})
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.Handle("/debug/pprof/heap", pprof.Handler("heap"))
	mux.HandleFunc("/node", func(http.ResponseWriter, *http.Request) { f.join(ctx) })
	go func() { failed <- http.Serve(l, mux) }()
	fmt.Fprintln(os.Stdout, "http://"+l.Addr().String())
	return errors.Join(<-failed, errors.New("the scheduler has ended"))
}

// newFleetScheduler returns a scheduler that knows its clusters.
func newFleetScheduler(kcp string, clusters int) *fleetScheduler {
	f := &fleetScheduler{
		scheduler: roots.New(roots.Options{KCP: &rest.Config{Host: kcp, QPS: -1}, Workspace: fleetCompute, Now: time.Now}),
		claims:    map[string][]any{},
	}
	for i := range clusters {
		f.clusters = append(f.clusters, capableCluster(fleetCluster(i)))
		f.claims[api.ExportCluster(fleetCluster(i))] = fleetClaims(fleetCluster(i))
	}
	return f
}

// control does what the controller does: it tells the scheduler about the clusters at an interval and after each
// report, and counts the leaves.
func (f *fleetScheduler) control(ctx context.Context) {
	f.update(ctx)
	interval, report := time.NewTicker(controllerInterval), time.NewTicker(reportInterval/time.Duration(len(f.clusters)))
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-interval.C:
			f.scheduler.LeavesByCluster()
			f.scheduler.Bound()
		case <-report.C:
			f.replace(n%len(f.clusters), func(capacity *api.Capacity) {
				cpu := resource.NewMilliQuantity(int64(100000+n%7*100), resource.DecimalSI)
				capacity.Requested = corev1.ResourceList{corev1.ResourceCPU: *cpu}
			})
		}
		f.update(ctx)
	}
}

func (f *fleetScheduler) update(ctx context.Context) {
	f.mu.Lock()
	clusters := append([]*api.Cluster(nil), f.clusters...)
	f.mu.Unlock()
	f.scheduler.Update(ctx, roots.State{Clusters: clusters, Exports: f.claims, Published: &roots.Published{Scheduled: []schema.GroupVersionResource{
		deploymentGVR, {Version: "v1", Resource: "services"}, {Version: "v1", Resource: "persistentvolumeclaims"},
		{Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"},
	}}})
}

// replace replaces the capacity of a cluster.
func (f *fleetScheduler) replace(i int, change func(*api.Capacity)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := *f.clusters[i]
	capacity := *c.Status.Capacity
	change(&capacity)
	c.Status.Capacity = &capacity
	f.clusters[i] = &c
}

// join adds a node to a cluster.
func (f *fleetScheduler) join(ctx context.Context) {
	f.replace(len(f.clusters)/2, func(capacity *api.Capacity) {
		next := capacity.Allocatable.DeepCopy()
		cpu := next[corev1.ResourceCPU]
		cpu.Add(resource.MustParse("16"))
		next[corev1.ResourceCPU] = cpu
		capacity.Allocatable = next
	})
	f.update(ctx)
}

// sample records the peak of the heap.
func (f *fleetScheduler) sample(ctx context.Context) {
	heap := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	for ; ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
		metrics.Read(heap)
		f.mu.Lock()
		f.peak = max(f.peak, heap[0].Value.Uint64())
		f.mu.Unlock()
	}
}

func (f *fleetScheduler) tell(heap bool) schedulerState {
	var out schedulerState
	out.Known = f.scheduler.LeavesByCluster()[f.clusters[0].Name].Complete
	out.Waiting, _ = f.scheduler.Load()
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) == nil {
		out.CPU = float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
	}
	if heap {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		out.Heap = m.HeapAlloc
	}
	f.mu.Lock()
	out.Peak = f.peak
	f.mu.Unlock()
	return out
}

// capableCluster is a cluster that is ready.
func capableCluster(name string) *api.Cluster {
	since := metav1.NewTime(time.Now().Add(-time.Hour))
	ready := metav1.Condition{Type: api.ConditionReady, Status: metav1.ConditionTrue, LastTransitionTime: since}
	return &api.Cluster{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"region": name[:2]}},
		Status: api.ClusterStatus{
			Conditions: []metav1.Condition{ready},
			APIs:       []api.APIStatus{{Group: "apps", Resource: "deployments", Version: "v1", State: api.APIPublished}},
			Capacity: &api.Capacity{
				Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2000"), corev1.ResourceMemory: resource.MustParse("8Ti")},
				Requested:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100")},
			},
		},
	}
}

// fleetClaims are the claims of the APIExport of a cluster.
func fleetClaims(cluster string) (out []any) {
	for _, r := range []string{
		"deployments", "services", "persistentvolumeclaims", "ingresses", "configmaps", "secrets", "serviceaccounts", "namespaces",
	} {
		out = append(out, map[string]any{
			"group": map[string]string{"deployments": "apps", "ingresses": "networking.k8s.io"}[r], "resource": r,
			"verbs":           []any{"get", "list", "watch", "patch"},
			"defaultSelector": map[string]any{"matchLabels": map[string]any{api.LabelCluster: cluster}},
		})
	}
	return out
}
