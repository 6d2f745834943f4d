package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/workload/server/probe"
	"github.com/kcpctl/kcpctl/internal/workload/sync/capacity"
	"github.com/kcpctl/kcpctl/internal/workload/sync/heartbeat"
	"github.com/kcpctl/kcpctl/internal/workload/sync/syncer"
)

// Member is a physical cluster and its syncer.
type Member struct {
	// KCP and Physical have the URL and the credentials of kcp and of the physical cluster.
	KCP, Physical *rest.Config
	// Workspace is the path of the compute workspace.
	Workspace string
	// Setup is the ID of this installation in physical clusters. RunSyncer reads it from the Cluster.
	Setup string
	// Cluster is the name of the cluster, and UID the UID of its Cluster: another one can get the name. RunSyncer reads
	// the UID.
	Cluster string
	UID     types.UID
	Mode    v1alpha1.SyncMode
	// Version is the version of kcpctl, and Holder the name of the process.
	Version, Holder string
	Now             func() time.Time
	// Probe gets the state of the syncer. Nil: it is not served.
	Probe *probe.Probe
	// Latency gets how long changes take. Nil: only the probe reports it.
	Latency Latency
	// Ended reports whether it is certain that another holder has ended. Nil: it never is.
	Ended func(holder string) bool
	// displaces reports whether it works instead of the syncer that has sent a report. Nil: it never does.
	displaces func(context.Context, heartbeat.Report) bool
	// after makes the observer look again after a time. Nil: time.After.
	after func(time.Duration) <-chan time.Time
	// beats is the time between two heartbeats. Zero: heartbeat.Interval.
	beats time.Duration
}

// run syncs, reports what the cluster serves, and sends heartbeats until the context ends. First, it waits until no
// other syncer works for the cluster, unless the controller runs it.
func (m Member) run(ctx context.Context, o *observer) error {
	if m.Latency == nil {
		m.Latency = newLatency()
	}
	state := &syncerState{cluster: m.Cluster, latency: m.Latency}
	measured := &measured{}
	sender := m.sender(state, measured, o)
	if m.Mode != v1alpha1.SyncModePush {
		w := m.waits()
		if err := sender.Acquire(ctx, func(reason error) { w.log(ctx, reason) }); err != nil {
			return err
		}
	}
	if m.Probe != nil {
		state.worked.Store(new(m.Now()))
		m.Probe.Set(state.state(m.Now))
	}
	options := syncer.Options{
		KCP: m.KCP, Workspace: m.Workspace, Physical: m.Physical, Cluster: m.Cluster, Setup: m.Setup, Now: m.Now,
		Identity: o.identity, See: o.see, Observe: m.Latency.observe, Report: func(last syncer.State) {
			state.last.Store(&last)
			state.worked.Store(new(m.Now()))
		},
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return o.run(ctx) })
	g.Go(func() error { return syncer.Run(ctx, options) })
	g.Go(func() error { return measured.run(ctx, m.Physical, m.Cluster) })
	g.Go(func() error { return sender.Run(ctx) })
	return g.Wait()
}

func (m Member) sender(state *syncerState, measured *measured, o *observer) *heartbeat.Sender {
	return &heartbeat.Sender{
		KCP: m.KCP, Physical: m.Physical, Workspace: m.Workspace, Cluster: m.Cluster, Holder: m.Holder, Now: m.Now,
		Sent: func() { state.beat.Store(new(m.Now())) }, Wake: o.wake,
		Ended: m.Ended, Displaces: m.displaces, Every: m.beats,
		Report: func() heartbeat.Report {
			last := state.get()
			r := heartbeat.Report{
				Mode: m.Mode, Version: m.Version, Cluster: m.UID, Orphans: last.OrphanMessage,
				OtherSetup: last.OtherSetup, Capacity: measured.Load(),
			}
			o.extend(&r)
			return r
		},
	}
}

// measureInterval is the time between two looks at the capacity of a cluster.
const measureInterval = 30 * time.Second

// measured is the capacity of a cluster, as it was read last.
type measured struct{ atomic.Pointer[api.Capacity] }

// run reads the capacity until the context ends. If it cannot be read, it is not known: clusters then have the same
// weight.
func (m *measured) run(ctx context.Context, physical *rest.Config, cluster string) error {
	client, err := dynamic.NewForConfig(physical)
	if err != nil {
		return fmt.Errorf("client for cluster %s: %w", cluster, err)
	}
	problem := ""
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		c, err := capacity.Read(ctx, client)
		switch {
		case err == nil:
			problem = ""
		case ctx.Err() == nil && err.Error() != problem:
			problem = err.Error()
			klog.FromContext(ctx).Error(err, "Cannot read the capacity", "cluster", cluster)
		}
		m.Store(c)
	}, measureInterval)
	return nil
}

// RunSyncer runs the syncer of a cluster that the controller does not connect to, until the context ends. It reports
// what the cluster serves of the APIs in the status of its Cluster.
func RunSyncer(ctx context.Context, m Member) error {
	cfg := rest.CopyConfig(m.KCP)
	cfg.Host, cfg.QPS = strings.TrimRight(cfg.Host, "/")+"/clusters/"+m.Workspace, -1
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("client for %s: %w", cfg.Host, err)
	}
	meta, err := metadata.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("client for %s: %w", cfg.Host, err)
	}
	if m.after == nil {
		m.after = time.After
	}
	cl, err := m.find(ctx, client)
	if err != nil {
		return err
	}
	if cl.Mode() == v1alpha1.SyncModePush {
		return clierr.New(clierr.Conflict, "set spec.syncMode of the Cluster to None",
			"the controller syncs Cluster %s itself: its syncMode is Push", m.Cluster)
	}
	m.Mode = cl.Mode()
	m.UID = cl.UID
	m.Setup = cl.Annotations[api.AnnotationSetup]
	m.displaces = func(ctx context.Context, other heartbeat.Report) bool { return m.isRight(ctx, client, other) }
	return m.run(ctx, newObserver(m, client, meta))
}

// isRight reports whether this syncer is for the Cluster and in its physical cluster, and the one that has sent a
// report is not: it can be one of a removed Cluster of the name that still runs.
func (m Member) isRight(ctx context.Context, client dynamic.Interface, other heartbeat.Report) bool {
	cl, err := m.read(ctx, client)
	if err != nil || cl.UID != m.UID {
		return false
	}
	want := cl.PhysicalUID()
	if other.IsFor(cl.UID) && (want == "" || other.ClusterUID == "" || other.ClusterUID == want) {
		return false
	}
	if want == "" {
		return true
	}
	own, err := syncer.ReadUID(ctx, m.Physical)
	return err == nil && own == want
}

func (m Member) read(ctx context.Context, client dynamic.Interface) (*api.Cluster, error) {
	live, err := client.Resource(api.ClusterGVR()).Get(ctx, m.Cluster, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read Cluster %s in workspace %s: %w", m.Cluster, m.Workspace, err)
	}
	return api.ClusterOf(live)
}

// seenInterval is the time between two looks at a Cluster that the controller has not seen yet.
const seenInterval = time.Second

// find reads the Cluster. It waits while kcp does not answer: a process that ends is started again later and later. It
// also waits until the controller has written the ID of the setup to a new Cluster.
func (m Member) find(ctx context.Context, client dynamic.Interface) (*api.Cluster, error) {
	w := m.waits()
	for {
		cl, err := m.read(ctx, client)
		if err == nil && cl.Annotations[api.AnnotationSetup] != "" {
			return cl, nil
		}
		wait := retryInterval
		if err == nil {
			wait = seenInterval
			err = fmt.Errorf("the controller has not seen Cluster %s in workspace %s yet", m.Cluster, m.Workspace)
		}
		if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
			return nil, clierr.New(clierr.Failed, "create it, or specify the workspace with --workspace", "%w", err)
		}
		w.log(ctx, err)
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-m.after(wait):
		}
	}
}

// waiting is why a syncer does not work yet.
type waiting struct{ reason atomic.Pointer[error] }

// waits makes the syncer not ready, until it sets another state.
func (m Member) waits() *waiting {
	w := &waiting{}
	w.reason.Store(new(errors.New("kcp has not answered yet")))
	if m.Probe != nil {
		m.Probe.Set(probe.State{Ready: func() error { return *w.reason.Load() }})
	}
	return w
}

// log sets the reason, and logs it if it is another one than before.
func (w *waiting) log(ctx context.Context, reason error) {
	if last := *w.reason.Swap(&reason); reason.Error() != last.Error() {
		klog.FromContext(ctx).Info("Waiting", "reason", reason.Error())
	}
}
