package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/poll"
	"github.com/kcpctl/kcpctl/internal/workload/server/probe"
	"github.com/kcpctl/kcpctl/internal/workload/sync/heartbeat"
	"github.com/kcpctl/kcpctl/internal/workload/sync/syncer"
)

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
	m.observer = &observer{
		workspace: m.Workspace, uid: m.UID, client: client, metadata: meta, wake: poll.NewSignal(),
		wanted: poll.NewSignal(), after: m.after,
	}
	m.displaces = func(ctx context.Context, other heartbeat.Report) bool { return m.isRight(ctx, client, other) }
	m.observer.identity = &syncer.Identity{Physical: m.Physical, Changed: m.observer.wake.Send}
	m.extend = m.observer.extend
	m.wake = m.observer.wake
	return m.Run(ctx)
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
