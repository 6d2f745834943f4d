package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kcpctl/kcpctl/internal/client/cluster"
	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/poll"
)

// maxConflicts is how often a write of the Lease is repeated because something else, such as kubectl label, has changed
// the Lease. The next renewal tries again.
const maxConflicts = 10

var (
	// ErrLost means that another run has taken the Lease, or that it could not be renewed in time.
	ErrLost = errors.New("lost the lock")
	// errDeleted means that the Lease no longer exists.
	errDeleted = fmt.Errorf("%w: the Lease was deleted", ErrLost)
)

// Lock is the lock of a setup, held by this run.
type Lock struct {
	cluster *cluster.Client
	name    string
	now     func() time.Time
	// lease is the Lease as this run wrote it last. Only renew changes it until StopRenewing has returned.
	lease *coordinationv1.Lease
	// ctx is derived from the context of the run, and ends with a cause when the lock is lost.
	ctx  context.Context
	lose context.CancelCauseFunc
	// renewals is the context of the renewals, which StopRenewing ends. It outlives the context of the run, which may
	// have something to undo.
	renewals context.Context
	stop     context.CancelFunc
	work     sync.WaitGroup

	mu sync.Mutex
	// renewed is when the last renewal that was carried out was sent, and failure is why the one after it was not.
	renewed time.Time
	failure error
	// sending means that a renewal is under way.
	sending bool
	// deleting means that the namespace of the Lease is being deleted, and the Lease with it.
	deleting bool
	// lost means that another run may hold the Lease.
	lost bool
}

// start starts the renewals.
func (l *Lock) start(ctx context.Context) {
	l.ctx, l.lose = context.WithCancelCause(ctx)
	l.renewals, l.stop = context.WithCancel(context.WithoutCancel(ctx))
	l.work.Go(l.renew)
	l.work.Go(l.watchDeadline)
}

// Context ends when the run ends, or, with ErrLost as its cause, when the lock is lost.
func (l *Lock) Context() context.Context { return l.ctx }

// Lost reports whether the lock was lost, also after the run has ended.
func (l *Lock) Lost() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}

// renew renews the Lease until StopRenewing, or until the lock is lost.
func (l *Lock) renew() {
	// The only possible error is that the context has ended.
	_ = wait.PollUntilContextCancel(l.renewals, RenewInterval, false, func(context.Context) (done bool, _ error) {
		sent := l.now()
		left := RenewDeadline - l.age(sent)
		if left <= 0 {
			return true, nil // watchDeadline reports it
		}
		ctx, cancel := context.WithTimeout(l.renewals, left)
		defer cancel()
		l.mu.Lock()
		l.sending = true
		l.mu.Unlock()
		err := l.update(ctx, renewAt(sent))
		if errors.Is(err, ErrLost) {
			l.giveUp(err)
			return true, nil
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.sending = false
		if l.failure = err; err == nil {
			l.renewed = sent
		}
		return false, nil
	})
}

func renewAt(t time.Time) func(*coordinationv1.LeaseSpec) {
	return func(s *coordinationv1.LeaseSpec) { s.RenewTime = &metav1.MicroTime{Time: t} }
}

// watchDeadline gives the lock up when no renewal was carried out in time, whatever the one in progress does. The
// machine may have slept.
func (l *Lock) watchDeadline() {
	for {
		age := l.age(l.now())
		if age >= RenewDeadline {
			l.giveUp(l.expired(age))
			return
		}
		if poll.Pause(l.renewals, min(ClockInterval, RenewDeadline-age)) != nil {
			return
		}
	}
}

func (l *Lock) expired(age time.Duration) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	plugin := l.cluster.Plugin()
	switch {
	case l.failure == nil && l.sending && plugin != "":
		// client-go runs the plugin for one request, and all others wait for it, whatever their contexts say.
		return fmt.Errorf("%w: it was not renewed for %s, because the credential plugin %s, or the API server, did "+
			"not answer: log in before the run", ErrLost, age.Round(time.Second), plugin)
	case l.failure == nil:
		return fmt.Errorf("%w: it was not renewed for %s", ErrLost, age.Round(time.Second))
	}
	// Not %w: the loss of the lock must not count as a conflict, or as a missing permission, of the request that it
	// ends.
	return fmt.Errorf("%w: it could not be renewed for %s: %v", ErrLost, age.Round(time.Second), l.failure)
}

func (l *Lock) giveUp(err error) {
	l.mu.Lock()
	expected := l.deleting && errors.Is(err, errDeleted)
	l.lost = l.lost || !expected
	l.mu.Unlock()
	if expected {
		return
	}
	l.lose(clierr.New(clierr.Conflict, "rerun the command: it continues where this run stopped", "%s: %w", l.name, err))
}

// age is the time since the last renewal that was carried out was sent: by the monotonic clock, which stands still
// while the machine sleeps, or by the wall clock, whichever is longer.
func (l *Lock) age(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(now.Sub(l.renewed), now.Round(0).Sub(l.renewed.Round(0)))
}

// confirm renews a Lease if the answer that it was taken came late: another run may have taken it since.
func (l *Lock) confirm(ctx context.Context) error {
	for l.age(l.now()) >= RenewInterval {
		sent := l.now()
		if err := l.update(ctx, renewAt(sent)); err != nil {
			return err
		}
		l.mu.Lock()
		l.renewed = sent
		l.mu.Unlock()
	}
	return nil
}

// update changes the Lease if this run still holds it.
func (l *Lock) update(ctx context.Context, change func(*coordinationv1.LeaseSpec)) error {
	return l.write(ctx, func() error {
		next := l.lease.DeepCopy()
		change(&next.Spec)
		out, err := writeLease(ctx, l.cluster, next)
		if apierrors.IsNotFound(err) {
			return errDeleted
		}
		if err == nil {
			l.lease = out
		}
		return err
	})
}

// write repeats a request after conflicts, with the current resourceVersion, as long as this run holds the Lease.
func (l *Lock) write(ctx context.Context, request func() error) error {
	for conflicts := 0; ; conflicts++ {
		err := request()
		if !apierrors.IsConflict(err) || conflicts == maxConflicts {
			return err
		}
		if err := l.reread(ctx); err != nil {
			return err
		}
	}
}

// reread reads the resourceVersion of the Lease. It fails with ErrLost if this run no longer holds it.
func (l *Lock) reread(ctx context.Context) error {
	live, err := readLease(ctx, l.cluster, l.lease.Name)
	switch {
	case err != nil:
		return err
	case live.ResourceVersion == "":
		return errDeleted
	case !l.owns(live.Spec) && live.Spec.HolderIdentity == nil:
		return fmt.Errorf("%w: the Lease was released", ErrLost)
	case !l.owns(live.Spec):
		return fmt.Errorf("%w: %s has taken it", ErrLost, *live.Spec.HolderIdentity)
	}
	l.lease.ResourceVersion = live.ResourceVersion
	return ctx.Err()
}

func (l *Lock) owns(spec coordinationv1.LeaseSpec) bool {
	return spec.HolderIdentity != nil && spec.AcquireTime != nil &&
		*spec.HolderIdentity == *l.lease.Spec.HolderIdentity && spec.AcquireTime.Equal(l.lease.Spec.AcquireTime)
}

// ExpectDeletion announces that the namespace of the Lease is about to be deleted: the loss of the Lease is then not a
// loss of the lock.
func (l *Lock) ExpectDeletion() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deleting = true
}

// StopRenewing ends the renewals.
func (l *Lock) StopRenewing() {
	l.stop()
	l.work.Wait()
}

// Release ends the renewals and gives the Lease back. If that fails, the Lease expires.
func (l *Lock) Release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	l.StopRenewing()
	defer l.lose(nil)
	if !l.Lost() {
		_ = l.update(ctx, func(s *coordinationv1.LeaseSpec) { s.HolderIdentity, s.AcquireTime, s.RenewTime = nil, nil, nil })
	}
}

// Delete ends the renewals and deletes the Lease, unless another run has taken it.
func (l *Lock) Delete(ctx context.Context) error {
	l.StopRenewing()
	err := l.write(ctx, func() error {
		uid := l.lease.UID
		version := l.lease.ResourceVersion
		return l.cluster.Resource(kind.Leases).Delete(ctx, l.lease.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version},
		})
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return l.cluster.Explain(err, "delete %s", l.name)
}
