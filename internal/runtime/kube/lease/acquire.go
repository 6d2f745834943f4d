// Package lease is the lock that keeps runs for the same setup apart: a Lease, which its holder renews until it
// releases it. The holder gives up before other runs may take the Lease.
package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/client/cluster"
	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/client/retry"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/poll"
)

const (
	// Duration is how long a run that no longer renews its Lease keeps others out.
	Duration = 15 * time.Second
	// RenewDeadline is when the holder gives up: so long after it sent the last renewal that was carried out.
	RenewDeadline = 10 * time.Second
	// RenewInterval is the time between renewals.
	RenewInterval = 3 * time.Second
	// ClockInterval is how often the holder reads the clock: timers stand still while a machine sleeps.
	ClockInterval = time.Second

	acquireInterval = time.Second
	releaseTimeout  = 5 * time.Second
)

// annotationCommand is on a Lease, and has the command of its holder.
const annotationCommand = v1alpha1.Group + "/command"

// ErrNoNamespace means that the namespace of the Lease does not exist.
var ErrNoNamespace = errors.New("the namespace does not exist")

// Locker takes the lock of a setup.
type Locker struct {
	Cluster *cluster.Client
	// Setup is the name of the setup, and Name the name of its Lease.
	Setup, Name string
	Holder      Holder
	// Command is the command of this run, which the Lease names.
	Command string
	// Wait makes Acquire wait also for a holder that is alive, such as the leader of the replicas of a server.
	Wait bool
	Now  func() time.Time
	// Notify is called once if another run may hold the lock, and once if Acquire waits for one that is alive.
	Notify cluster.Notify
}

// Acquire takes the Lease and renews it until Release. It waits while the holder may be dead, and fails as soon as the
// holder is known to be alive, unless Wait is set. It fails with ErrNoNamespace if the Lease has no namespace to be in.
func (k *Locker) Acquire(ctx context.Context) (*Lock, error) {
	if err := k.Cluster.Connect(ctx); err != nil {
		return nil, err
	}
	var (
		seen          *observation
		notify, waits sync.Once
	)
	for {
		l, err := readLease(ctx, k.Cluster, k.Name)
		if err != nil {
			return nil, err
		}
		now := observe(l.Spec, k.Now())
		if seen == nil {
			seen = &now
		}
		switch leaseState(l.Spec, *seen, now.since, k.Holder.Machine, isAlive) {
		case free:
			lock, err := k.take(ctx, l)
			if !retry.IsWriteConflict(err) && !(k.Wait && errors.Is(err, ErrLost)) {
				return lock, err
			}
			seen = nil // another run was faster
			continue
		case held:
			err := heldError(k.Cluster, l)
			if !k.Wait {
				return nil, err
			}
			seen = &now
			waits.Do(func() { k.Notify("waiting: %v", err) })
		case unknown:
			notify.Do(func() {
				k.Notify("another run may hold the lock: waiting up to %s for %s", Duration, describe(l))
			})
		}
		if err := poll.Pause(ctx, acquireInterval); err != nil {
			return nil, err
		}
	}
}

func heldError(cl *cluster.Client, l *coordinationv1.Lease) error {
	return clierr.New(clierr.Conflict, "wait until that run has finished, or stop it",
		"another run is in progress: %s holds %s (%s)", describe(l), leaseName(l), cl.Where())
}

// describe names the holder of a Lease, and since when it holds it.
func describe(l *coordinationv1.Lease) string {
	h := parseHolder(*l.Spec.HolderIdentity)
	out := fmt.Sprintf("process %d of %s on %s", h.PID, h.User, h.Host)
	if l.Spec.AcquireTime != nil {
		out += ", since " + l.Spec.AcquireTime.UTC().Format(time.RFC3339)
	}
	return out
}

func leaseName(l *coordinationv1.Lease) string { return "Lease/" + l.Namespace + "/" + l.Name }

// take makes this run the holder of a Lease and starts to renew it. It returns the API server's error if another run
// was faster.
func (k *Locker) take(ctx context.Context, l *coordinationv1.Lease) (*Lock, error) {
	holder, now := k.Holder.String(), metav1.NewMicroTime(k.Now())
	seconds, transitions := int32(Duration/time.Second), int32(0)
	if l.Spec.LeaseTransitions != nil {
		transitions = *l.Spec.LeaseTransitions + 1
	}
	l.Labels = map[string]string{
		topology.LabelSetup: k.Setup, "app.kubernetes.io/managed-by": topology.ManagedBy,
	}
	l.Annotations = map[string]string{annotationCommand: k.Command}
	k.Cluster.AddTo(l)
	l.Spec = coordinationv1.LeaseSpec{
		HolderIdentity: &holder, AcquireTime: &now, RenewTime: &now,
		LeaseDurationSeconds: &seconds, LeaseTransitions: &transitions,
	}
	lock := &Lock{cluster: k.Cluster, name: leaseName(l), now: k.Now, renewed: k.Now()}
	var err error
	if lock.lease, err = writeLease(ctx, k.Cluster, l); err != nil {
		switch {
		case retry.IsWriteConflict(err):
			return nil, err
		case apierrors.IsNotFound(err):
			return nil, ErrNoNamespace
		case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
			return nil, k.Cluster.Terminating()
		}
		return nil, k.Cluster.Explain(err, "take %s", lock.name)
	}
	if err := lock.confirm(ctx); err != nil {
		return nil, clierr.New(clierr.Conflict, "rerun the command", "take %s: %w", lock.name, err)
	}
	lock.start(ctx)
	return lock, nil
}

// readLease returns a Lease: a new one if it does not exist.
func readLease(ctx context.Context, cl *cluster.Client, name string) (*coordinationv1.Lease, error) {
	out := &coordinationv1.Lease{
		TypeMeta:   metav1.TypeMeta{APIVersion: coordinationv1.SchemeGroupVersion.String(), Kind: "Lease"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: cl.Namespace},
	}
	u, err := cl.Resource(kind.Leases).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return out, nil
	}
	if err != nil {
		return nil, cl.Explain(err, "read Lease/%s/%s", cl.Namespace, name)
	}
	return out, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, out)
}

// writeLease creates or updates a Lease, unless it has changed since it was read. The error is the API server's.
func writeLease(ctx context.Context, cl *cluster.Client, l *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	out := &coordinationv1.Lease{}
	return out, cl.Write(ctx, kind.Leases, l, out)
}
