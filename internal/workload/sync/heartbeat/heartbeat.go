// Package heartbeat reports whether a physical cluster runs what is scheduled to it. The syncer of the cluster renews a
// Lease in the compute workspace, and reports with it how it is. The controller judges the Lease.
package heartbeat

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/mergepatch"
	"github.com/kcpctl/kcpctl/internal/kit/poll"
)

const (
	// Interval is the time between two heartbeats.
	Interval = 10 * time.Second
	// Grace is how long the controller waits for a heartbeat.
	Grace   = 40 * time.Second
	timeout = 5 * time.Second
	// due is when a controller that starts must have seen a heartbeat of a syncer that runs.
	due = Interval + timeout
)

// Leases is the resource of Leases.
var Leases = coordinationv1.SchemeGroupVersion.WithResource("leases")

// Sender sends the heartbeats of a syncer.
type Sender struct {
	// KCP and Physical have the URL and the credentials: of a front-proxy or a shard, and of the physical cluster.
	KCP, Physical *rest.Config
	// Workspace is the path of the compute workspace.
	Workspace string
	// Cluster is the name of the physical cluster, and Holder the name of the process.
	Cluster, Holder string
	Now             func() time.Time
	// Sent is called after each heartbeat that kcp has accepted. Nil ignores it.
	Sent func()
	// Every is the time between two heartbeats. Zero: Interval.
	Every time.Duration
	// Wake requests a heartbeat before its time, because the report has changed. Nil never does.
	Wake <-chan struct{}
	// Ended reports whether it is certain that another holder has ended. Nil: it never is.
	Ended func(holder string) bool
	// Displaces reports whether this process works instead of the one that has sent a report, because that one is not
	// in the right physical cluster. Nil: it never does.
	Displaces func(context.Context, Report) bool
	// Report returns the state of the syncer. The sender adds whether the physical cluster is reached.
	Report func() Report
	// alone means that Acquire has returned. Then version is the resourceVersion of the Lease as this process has seen
	// it last.
	alone   bool
	version string
}

func (s *Sender) leases() (dynamic.ResourceInterface, error) {
	cfg := rest.CopyConfig(s.KCP)
	cfg.Host, cfg.Timeout = strings.TrimRight(cfg.Host, "/")+"/clusters/"+s.Workspace, timeout
	kcp, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("client for %s: %w", cfg.Host, err)
	}
	return kcp.Resource(Leases).Namespace(api.NamespaceLeases), nil
}

// Run sends heartbeats until the context ends. A heartbeat that cannot be sent is missed: the next one is sent in time.
// After Acquire, it fails if another syncer has taken over, and releases the Lease at its end.
func (s *Sender) Run(ctx context.Context) error {
	client, err := s.leases()
	if err != nil {
		return err
	}
	cfg := dynamic.ConfigFor(s.Physical)
	cfg.QPS = -1
	physical, err := rest.UnversionedRESTClientFor(cfg)
	if err != nil {
		return fmt.Errorf("client for cluster %s: %w", s.Cluster, err)
	}
	for {
		err := s.send(ctx, client, physical)
		if taken, ok := errors.AsType[takenError](err); ok {
			return taken.error
		}
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Cannot send a heartbeat", "cluster", s.Cluster)
		}
		select {
		case <-ctx.Done():
			if s.alone {
				if err := s.release(ctx, client); err != nil {
					klog.FromContext(ctx).Error(err, "Cannot release the Lease: the next syncer waits until it expires",
						"cluster", s.Cluster)
				}
			}
			return nil
		case <-time.After(cmp.Or(s.Every, Interval)):
		case <-s.Wake:
		}
	}
}

func (s *Sender) send(ctx context.Context, client dynamic.ResourceInterface, physical *rest.RESTClient) error {
	report := s.Report()
	if err := ready(ctx, physical); err != nil {
		report.Reason, report.Message = reasonOf(err), err.Error()
	}
	raw, err := json.Marshal(report)
	if err != nil {
		return fmt.Errorf("heartbeat of cluster %s: %w", s.Cluster, err)
	}
	lease := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"holderIdentity": s.Holder, "leaseDurationSeconds": int64(Grace / time.Second),
		"renewTime": s.Now().UTC().Format(metav1.RFC3339Micro),
	}}}
	lease.SetGroupVersionKind(coordinationv1.SchemeGroupVersion.WithKind("Lease"))
	lease.SetName(api.LeaseCluster(s.Cluster))
	lease.SetAnnotations(map[string]string{annotationReport: string(raw)})
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := s.renew(ctx, client, lease); err != nil {
		return fmt.Errorf("renew Lease %s/%s in workspace %s: %w", api.NamespaceLeases,
			lease.GetName(), s.Workspace, err)
	}
	if s.Sent != nil {
		s.Sent()
	}
	return nil
}

// ready requests /readyz of the API server of the cluster.
func ready(ctx context.Context, physical *rest.RESTClient) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := physical.Get().AbsPath("/readyz").MaxRetries(0).Do(ctx).Error()
	switch {
	case err == nil, apierrors.IsForbidden(err):
		return nil // it answers, also if the user may not read /readyz
	case apierrors.IsUnauthorized(err):
		return apierrors.NewUnauthorized("the API server of the cluster does not accept the credentials: run kcpctl " +
			"up, or renew the kubeconfig if it is your own")
	case apierrors.ReasonForError(err) == metav1.StatusReasonUnknown:
		return fmt.Errorf("the API server of the cluster is not reached: %w", err)
	}
	return fmt.Errorf("the API server of the cluster is not ready: %w", err)
}

func reasonOf(err error) string {
	if apierrors.IsUnauthorized(err) {
		return api.ReasonUnauthorized
	}
	return api.ReasonUnreachable
}

const (
	// acquireInterval is the time between two looks at the Lease of a cluster for which another syncer works.
	acquireInterval = 2 * time.Second
	// expiry is how long a syncer may fail to renew its Lease until another one takes over: two heartbeats. The cluster
	// remains ready meanwhile.
	expiry = 2*Interval + timeout
)

// Acquire waits until no other syncer works for the cluster, and makes Run end if another one takes over. It calls
// waits with the reason, at each look. The other one has stopped if it has released its Lease, has ended on this
// machine, or has not renewed the Lease for 25 seconds: as the judge does, this counts from when the Lease is seen, and
// compares no clocks. It does not wait for a syncer that it displaces.
func (s *Sender) Acquire(ctx context.Context, waits func(reason error)) error {
	client, err := s.leases()
	if err != nil {
		return err
	}
	version, since := "", s.Now()
	for {
		lease, err := s.lease(ctx, client)
		if err == nil {
			holder := holderOf(lease)
			if lease == nil {
				break
			}
			if v := lease.GetResourceVersion(); v != version {
				version, since = v, s.Now()
			}
			if holder == "" || holder == s.Holder || s.Ended != nil && s.Ended(holder) || s.Now().Sub(since) >= expiry ||
				s.displaces(ctx, lease) {
				break
			}
			err = fmt.Errorf("the syncer %s works for cluster %s: this one waits until it has stopped",
				holder, s.Cluster)
		}
		waits(err)
		if err := poll.Pause(ctx, acquireInterval); err != nil {
			return err
		}
	}
	s.alone = true
	s.version = version
	return nil
}

func (s *Sender) displaces(ctx context.Context, lease *unstructured.Unstructured) bool {
	if s.Displaces == nil {
		return false
	}
	report, err := ReportOf(lease)
	return err == nil && s.Displaces(ctx, report)
}

// lease reads the Lease of the cluster. It returns nil if there is none.
func (s *Sender) lease(ctx context.Context, client dynamic.ResourceInterface) (*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	name := api.LeaseCluster(s.Cluster)
	lease, err := client.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read Lease %s/%s in workspace %s: %w", api.NamespaceLeases, name, s.Workspace, err)
	}
	return lease, nil
}

func holderOf(lease *unstructured.Unstructured) string {
	if lease == nil {
		return ""
	}
	holder, _, _ := unstructured.NestedString(lease.Object, "spec", "holderIdentity")
	return holder
}

type takenError struct{ error }

// renew applies the Lease. If this process is to be alone, it does so only if the Lease is as this process wrote it: if
// another syncer has taken over, it fails with a takenError.
func (s *Sender) renew(ctx context.Context, client dynamic.ResourceInterface, lease *unstructured.Unstructured) error {
	apply := func() (*unstructured.Unstructured, error) {
		lease.SetResourceVersion(s.version)
		return client.Apply(ctx, lease.GetName(), lease,
			metav1.ApplyOptions{FieldManager: api.ManagerSyncer, Force: true})
	}
	written, err := apply()
	if s.alone && err != nil {
		changed, readErr := s.seeAgain(ctx, client)
		switch {
		case readErr != nil:
			return readErr
		case !changed:
			return err
		}
		written, err = apply()
	}
	if err != nil {
		return err
	}
	if s.alone {
		s.version = written.GetResourceVersion()
	}
	return nil
}

// seeAgain reads the Lease after it could not be renewed. It reports whether it is another one than this process has
// seen, such as after it was deleted, and fails with a takenError if another syncer holds it.
func (s *Sender) seeAgain(ctx context.Context, client dynamic.ResourceInterface) (changed bool, _ error) {
	live, err := s.lease(ctx, client)
	if err != nil {
		return false, err
	}
	if holder := holderOf(live); holder != "" && holder != s.Holder && !s.displaces(ctx, live) {
		return false, takenError{clierr.New(clierr.Conflict, "stop one of the two syncers",
			"the syncer %s works for cluster %s now", holder, s.Cluster)}
	}
	before := s.version
	s.version = ""
	if live != nil {
		s.version = live.GetResourceVersion()
	}
	return s.version != before, nil
}

// release lets the next syncer work at once. The report is kept: the cluster is ready until a heartbeat is missed.
func (s *Sender) release(ctx context.Context, client dynamic.ResourceInterface) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	for range 2 {
		if s.version != "" {
			if err := s.giveUp(ctx, client); !apierrors.IsConflict(err) {
				return err
			}
		}
		// The last heartbeat was interrupted, and kcp may have accepted it; or another syncer works.
		_, err := s.seeAgain(ctx, client)
		if _, taken := errors.AsType[takenError](err); taken {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// giveUp removes the holder from the Lease, if it is as this process has seen it.
func (s *Sender) giveUp(ctx context.Context, client dynamic.ResourceInterface) error {
	_, err := mergepatch.Send(ctx, client, api.ManagerSyncer, api.LeaseCluster(s.Cluster), "", map[string]any{
		"metadata": map[string]any{"resourceVersion": s.version}, "spec": map[string]any{"holderIdentity": nil},
	})
	if apierrors.IsNotFound(err) {
		return nil // the Cluster is gone
	}
	return err
}
