package kube

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/runtime/kube/lease"
	"github.com/kcpctl/kcpctl/internal/testutil"
)

// errPasses is an error that a retry repairs.
var errPasses = apierrors.NewInternalError(errors.New("etcdserver: leader changed"))

// oneLease is an API server that has one Lease and nothing else. It ignores contexts, as one does that has a request
// already.
type oneLease struct {
	dynamic.NamespaceableResourceInterface // what no test asks for

	mu       sync.Mutex
	live     *unstructured.Unstructured
	version  int
	renewed  time.Time // when the last update was carried out
	requests int
	// fault, if set, is the answer to updates, which are then not carried out.
	fault func(context.Context) error
}

func (f *oneLease) Resource(schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return f
}
func (f *oneLease) Namespace(string) dynamic.ResourceInterface { return f }

func (f *oneLease) failing(ctx context.Context) error {
	f.mu.Lock()
	f.requests++
	fault := f.fault
	f.mu.Unlock()
	if fault == nil {
		return nil
	}
	return fault(ctx)
}

func (f *oneLease) Get(_ context.Context, name string, _ metav1.GetOptions, _ ...string) (*unstructured.Unstructured, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests++
	if f.live == nil || f.live.GetName() != name {
		return nil, apierrors.NewNotFound(schema.GroupResource{}, name)
	}
	return f.live.DeepCopy(), nil
}

func (f *oneLease) Create(_ context.Context, u *unstructured.Unstructured, _ metav1.CreateOptions, _ ...string) (*unstructured.Unstructured, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests++
	if f.live != nil {
		return nil, apierrors.NewAlreadyExists(schema.GroupResource{}, u.GetName())
	}
	return f.store(u), nil
}

func (f *oneLease) Update(ctx context.Context, u *unstructured.Unstructured, _ metav1.UpdateOptions, _ ...string) (*unstructured.Unstructured, error) {
	if err := f.failing(ctx); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.live == nil:
		return nil, apierrors.NewNotFound(schema.GroupResource{}, u.GetName())
	case f.live.GetResourceVersion() != u.GetResourceVersion():
		return nil, apierrors.NewConflict(schema.GroupResource{}, u.GetName(), errors.New("it was changed"))
	}
	return f.store(u), nil
}

// age is how long ago the Lease was written last.
func (f *oneLease) age() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Since(f.renewed)
}

func (f *oneLease) store(u *unstructured.Unstructured) *unstructured.Unstructured {
	f.version++
	f.live, f.renewed = u.DeepCopy(), time.Now()
	f.live.SetUID("lease")
	f.live.SetResourceVersion(fmt.Sprint(f.version))
	return f.live.DeepCopy()
}

// change does something to the Lease that its holder does not know of.
func (f *oneLease) change(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
}

// run is a run that may take the Lease. slept is for how long its machine has slept.
func (f *oneLease) run(t *testing.T, machine string, slept *atomic.Int64) *Runtime {
	t.Helper()
	now := func() time.Time { return time.Now().Add(time.Duration(slept.Load())) }
	c := topology.Cluster{Name: "eu", Namespace: "kcp"}
	r, err := New(&topology.Topology{Name: "demo", Home: c, Clusters: []topology.Cluster{c}}, Options{
		Version: "test", Now: now, Holder: Holder{Host: "localhost", PID: 7, Machine: machine, User: "ann"},
		API: func(topology.Cluster) (*API, error) { return &API{Context: "c", Dynamic: f}, nil },
	})
	require.NoError(t, err)
	return r
}

// A holder gives up at most ten seconds after it sent the last renewal that was carried out: others may take the Lease
// after fifteen. Nothing is written after that.
func TestTheHolderGivesUpBeforeOthersMayTakeTheLease(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "leases"}, "demo-lock", errors.New("no more"))
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "leases"}, "demo-lock", errors.New("it was changed"))
	for name, tc := range map[string]struct {
		fault func(context.Context) error
		slept time.Duration
		says  string
	}{
		"renewals are refused":         {fault: func(context.Context) error { return forbidden }, says: "it could not be renewed for 10s"},
		"others keep writing it":       {fault: func(context.Context) error { return conflict }, says: "it could not be renewed for 10s"},
		"renewals fail for a while":    {fault: func(context.Context) error { return errPasses }, says: "renewed for 10s"},
		"renewals hang":                {fault: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, says: "for 10s"},
		"renewals hang and never end":  {fault: func(context.Context) error { time.Sleep(time.Hour); return errPasses }, says: "it was not renewed for 10s"},
		"the machine sleeps":           {slept: time.Hour, says: "it was not renewed for 1h0m"},
		"it sleeps during a renewal":   {fault: func(context.Context) error { time.Sleep(time.Hour); return errPasses }, slept: time.Minute, says: "it was not renewed for 1m"},
		"it sleeps while all is quiet": {slept: 11 * time.Second, says: "lost the lock: it was not renewed for 1"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, slept := &oneLease{}, &atomic.Int64{}
				r := f.run(t, "one", slept)
				held, unlock, err := r.Lock(t.Context())
				require.NoError(t, err)
				time.Sleep(7 * time.Second) // two renewals
				require.NoError(t, held.Err())
				f.change(func() { f.fault = tc.fault })
				if tc.slept > 0 && tc.fault != nil {
					time.Sleep(2500 * time.Millisecond) // a renewal is under way
				}
				slept.Store(int64(tc.slept))
				begun := time.Now()
				<-held.Done()
				if tc.slept > 0 {
					require.LessOrEqual(t, time.Since(begun), lease.ClockInterval)
				}
				require.LessOrEqual(t, f.age(), 10*time.Second)
				err = context.Cause(held)
				require.ErrorIs(t, err, lease.ErrLost)
				require.ErrorContains(t, err, "Lease/kcp/demo-lock: lost the lock: ")
				require.ErrorContains(t, err, tc.says)
				require.Equal(t, clierr.Conflict, clierr.Code(err))

				f.change(func() { f.requests = 0 })
				requireNoWrites(t, r, held)
				f.change(func() { require.Zero(t, f.requests, "requests after the lock was lost") })
				unlock()
			})
		})
	}
}

// requireNoWrites calls everything that writes.
func requireNoWrites(t *testing.T, r *Runtime, held context.Context) {
	t.Helper()
	p := &plan.Plan{Stale: true, Items: []plan.Item{{Ref: plan.Ref{
		Cluster: "eu", Namespace: "kcp", Name: "demo", GroupVersionKind: kind.Deployment.GroupVersionKind,
	}, Action: plan.Delete, Live: &unstructured.Unstructured{}, Want: &unstructured.Unstructured{}}}}
	rec := &record.Record{Installation: "demo-1"}
	for name, write := range map[string]func() error{
		"Save": func() error {
			return r.Store().Save(held, &pki.State{CAs: map[topology.CA]pki.Authority{topology.ServerCA: {}}})
		},
		"Begin":     func() error { return r.Begin(held, p, rec) },
		"Apply":     func() error { return r.Apply(held, p.Items, run.PlanOptions{}) },
		"Finish":    func() error { return r.Finish(held, p, rec, plan.Applied{}) },
		"Finish 2":  func() error { return r.Finish(held, &plan.Plan{}, rec, plan.Applied{}) },
		"Delete":    func() error { return r.Delete(held, p.Items) },
		"Purge":     func() error { return r.Purge(held) },
		"PurgeData": func() error { return r.PurgeData(held, "etcd/root") },
		"Replace":   func() error { return deletePod(held, r.clusters.home, &corev1.Pod{}) },
	} {
		require.ErrorIs(t, write(), lease.ErrLost, name)
	}
	r.inventoryWriter.begun = &record.Run{Command: "up"}
	r.Ended(context.WithoutCancel(held), errors.New("boom"))
}

// A run that is interrupted, and then loses the lock while it still undoes something, does not write how it ended.
func TestAnInterruptedRunLosesTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &oneLease{}
		r := f.run(t, "one", &atomic.Int64{})
		ctx, interrupt := context.WithCancel(t.Context())
		held, unlock, err := r.Lock(ctx)
		require.NoError(t, err)
		r.inventoryWriter.begun = &record.Run{Command: "up"}
		interrupt()
		<-held.Done()
		f.change(func() { f.fault = func(context.Context) error { return errPasses } })
		time.Sleep(lease.RenewDeadline + lease.RenewInterval)
		f.change(func() { f.requests = 0 })
		r.Ended(context.WithoutCancel(held), errors.New("interrupted"))
		unlock()
		f.change(func() { require.Zero(t, f.requests, "requests after the lock was lost") })
	})
}

// A Lease that was changed by others is renewed as long as it is still this run's.
func TestTheHolderNoticesWhoHasTheLease(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(f *oneLease)
		says   string // empty: it is still held
	}{
		"labelled": {change: func(f *oneLease) {
			f.live.SetLabels(map[string]string{"a": "b"})
			f.live.SetResourceVersion("labelled")
		}},
		"deleted": {change: func(f *oneLease) { f.live = nil }, says: "lost the lock: the Lease was deleted"},
		"taken": {change: func(f *oneLease) {
			_ = unstructured.SetNestedField(f.live.Object, "other/1@x/bob", "spec", "holderIdentity")
			f.live.SetResourceVersion("taken")
		}, says: "lost the lock: other/1@x/bob has taken it"},
		"taken by a run of the same name": {change: func(f *oneLease) {
			_ = unstructured.SetNestedField(f.live.Object, "2026-11-20T17:45:12.000000Z", "spec", "acquireTime")
			f.live.SetResourceVersion("taken")
		}, says: "localhost/7@one/ann has taken it"},
		"given back": {change: func(f *oneLease) {
			unstructured.RemoveNestedField(f.live.Object, "spec", "holderIdentity")
			f.live.SetResourceVersion("back")
		}, says: "lost the lock: the Lease was released"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &oneLease{}
				held, unlock, err := f.run(t, "one", &atomic.Int64{}).Lock(t.Context())
				require.NoError(t, err)
				f.change(func() { tc.change(f) })
				time.Sleep(lease.RenewInterval + time.Millisecond)
				if tc.says == "" {
					require.NoError(t, held.Err())
				} else {
					require.ErrorContains(t, context.Cause(held), tc.says)
				}
				was := ""
				f.change(func() { was = fmt.Sprint(f.live) })
				unlock()
				require.ErrorIs(t, held.Err(), context.Canceled)
				if tc.says != "" {
					f.change(func() { require.Equal(t, was, fmt.Sprint(f.live), "the Lease of another run was touched") })
				}
			})
		})
	}
}

// Machines and containers share host names, and process IDs: another machine's run is not dead because this one has no
// such process.
func TestTheSameHostNameIsNotTheSameMachine(t *testing.T) {
	for name, tc := range map[string]struct {
		machine string
		waits   time.Duration
	}{
		"another machine": {"another", lease.Duration},
		"unknown":         {"", lease.Duration},
		"this machine":    {"one", 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &oneLease{}
				dead := f.run(t, tc.machine, &atomic.Int64{})
				dead.locker.Holder.PID = 1<<22 + 1 // above the largest PID of Linux
				_, _, err := dead.Lock(t.Context())
				require.NoError(t, err)
				dead.held.Load().StopRenewing()

				begun := time.Now()
				_, unlock, err := f.run(t, "one", &atomic.Int64{}).Lock(t.Context())
				require.NoError(t, err)
				require.Equal(t, tc.waits, time.Since(begun))
				unlock()
			})
		})
	}
}

// A run that was interrupted keeps the Lease until it has undone what it must, and then gives it back.
func TestTheLeaseOutlivesTheRunUntilUnlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &oneLease{}
		ctx, cancel := context.WithCancel(t.Context())
		held, unlock, err := f.run(t, "one", &atomic.Int64{}).Lock(ctx)
		require.NoError(t, err)
		cancel()
		<-held.Done()
		time.Sleep(time.Minute)
		synctest.Wait() // a renewal may be under way
		require.Less(t, f.age(), lease.RenewDeadline)
		_, _, err = f.run(t, "two", &atomic.Int64{}).Lock(t.Context())
		require.Equal(t, clierr.Conflict, clierr.Code(err))
		unlock()
		_, unlock, err = f.run(t, "two", &atomic.Int64{}).Lock(t.Context())
		require.NoError(t, err)
		unlock()
	})
}

// An answer that comes late may come after the end of the Lease.
func TestLockTakenTooLate(t *testing.T) {
	const all, one = "/apis/coordination.k8s.io/v1/namespaces/kcp/leases", "/apis/coordination.k8s.io/v1/namespaces/kcp/leases/demo-lock"
	held := func(holder string) answer {
		return answer{http.StatusOK, fmt.Sprintf(`{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
			"metadata": {"name": "demo-lock", "namespace": "kcp", "resourceVersion": "1"},
			"spec": {"holderIdentity": %q, "acquireTime": "2026-11-20T12:00:00.000000Z"}}`, holder)}
	}
	r, made := scripted(t, map[string][]answer{
		"GET /api/v1/namespaces/kube-system": {{http.StatusOK, `{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}}`}},
		"GET " + one:                         {refuse(http.StatusNotFound, "NotFound"), held("there/8@far/bob")},
		"POST " + all:                        {held("here/7@near/ann")},
		"PUT " + one:                         {refuse(http.StatusConflict, "Conflict")},
	})
	now := testutil.Start()
	r.locker.Now = func() time.Time {
		if len(*made) > 2 { // the Lease was taken, and the answer took a while
			return now.Add(lease.Duration)
		}
		return now
	}
	_, _, err := r.Lock(t.Context())
	require.ErrorIs(t, err, lease.ErrLost)
	require.ErrorContains(t, err, "there/8@far/bob has taken it")
}

// A replica that waits for the leader logs that once, and takes over soon after the leader has ended, however it ended.
func TestAReplicaWaitsForTheLeader(t *testing.T) {
	for name, tc := range map[string]struct {
		end  func(r *Runtime, unlock func())
		most time.Duration
	}{
		"it has given the Lease back": {func(_ *Runtime, unlock func()) { unlock() }, time.Second},
		"it is dead":                  {func(r *Runtime, _ func()) { r.held.Load().StopRenewing() }, lease.Duration + time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &oneLease{}
				leader := f.run(t, "one", &atomic.Int64{})
				_, unlock, err := leader.Lock(t.Context())
				require.NoError(t, err)
				replica := f.run(t, "two", &atomic.Int64{}).locker
				replica.Wait = true
				var said []string
				replica.Notify = func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }
				taken := make(chan *lease.Lock)
				go func() {
					lock, err := replica.Acquire(t.Context())
					require.NoError(t, err)
					taken <- lock
				}()
				time.Sleep(time.Minute)
				ended := time.Now()
				tc.end(leader, unlock)
				lock := <-taken
				require.LessOrEqual(t, time.Since(ended), tc.most)
				lock.Release(t.Context())
				require.Len(t, said, 2)
				require.Contains(t, said[0], "another run may hold the lock: waiting up to 15s for process 7 of ann on localhost")
				require.Contains(t, said[1], "waiting: another run is in progress: process 7 of ann on localhost")
			})
		})
	}
}
