package heartbeat

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/mergepatch"
	"github.com/kcpctl/kcpctl/internal/kit/poll"
)

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
