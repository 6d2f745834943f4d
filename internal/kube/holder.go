package kube

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcpctl/kcpctl/internal/clierr"
)

// lease is the lock of a setup, held.
type lease struct {
	site *site
	name string
	// lease is the Lease as it was written last. Only renew changes it until the renewals have ended.
	lease *coordinationv1.Lease
	now   func() time.Time
	// ctx is that of the run, and ends with a cause when the lease is lost.
	ctx  context.Context
	lose context.CancelCauseFunc
	// beat is the context of the renewals, which halt ends. They outlive that of the run: it may have something to undo.
	beat context.Context
	stop context.CancelFunc
	work sync.WaitGroup

	mu sync.Mutex
	// renewed is when the last renewal was sent that was carried out, and failure why the one after it was not.
	renewed time.Time
	failure error
	// leaving says that the Lease goes with its namespace, which is being deleted.
	leaving bool
}

// renew keeps the Lease until it is told to stop, or until the Lease is lost.
func (l *lease) renew() {
	tick := time.NewTicker(leaseRenewal)
	defer tick.Stop()
	for {
		select {
		case <-l.beat.Done():
			return
		case <-tick.C:
		}
		sent := l.now()
		left := renewDeadline - l.age(sent)
		if left <= 0 {
			return // watch says so
		}
		ctx, cancel := context.WithTimeout(l.beat, left)
		err := l.update(ctx, func(s *coordinationv1.LeaseSpec) { s.RenewTime = &metav1.MicroTime{Time: sent} })
		cancel()
		if errors.Is(err, errLockLost) {
			l.giveUp(err)
			return
		}
		l.mu.Lock()
		if l.failure = err; err == nil {
			l.renewed = sent
		}
		l.mu.Unlock()
	}
}

// watch gives the Lease up when no renewal was carried out in time, whatever the one that is under way does. The machine may have
// slept.
func (l *lease) watch() {
	for {
		age := l.age(l.now())
		if age >= renewDeadline {
			l.giveUp(l.expired(age))
			return
		}
		select {
		case <-l.beat.Done():
			return
		case <-time.After(min(leaseWatch, renewDeadline-age)):
		}
	}
}

func (l *lease) expired(age time.Duration) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failure == nil {
		return fmt.Errorf("%w: it was not renewed for %s", errLockLost, age.Round(time.Second))
	}
	return fmt.Errorf("%w: it could not be renewed for %s: %w", errLockLost, age.Round(time.Second), l.failure)
}

func (l *lease) giveUp(err error) {
	l.mu.Lock()
	leaving := l.leaving
	l.mu.Unlock()
	if leaving && errors.Is(err, errLeaseGone) {
		return
	}
	l.lose(clierr.New(clierr.Conflict, "run the command again: it continues where this run stopped", "%s: %w", l.name, err))
}

// age is how long ago the last renewal was sent that was carried out, by the clock that stands still while a machine sleeps or by
// the one on the wall, whichever says more.
func (l *lease) age(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(now.Sub(l.renewed), now.Round(0).Sub(l.renewed.Round(0)))
}

// confirm makes sure that a Lease is still held whose taking was answered late: another run may have taken it since.
func (l *lease) confirm(ctx context.Context) error {
	for l.age(l.now()) >= leaseRenewal {
		sent := l.now()
		if err := l.update(ctx, func(s *coordinationv1.LeaseSpec) { s.RenewTime = &metav1.MicroTime{Time: sent} }); err != nil {
			return err
		}
		l.mu.Lock()
		l.renewed = sent
		l.mu.Unlock()
	}
	return nil
}

// leave tells the renewals that the namespace of the Lease is about to be deleted.
func (l *lease) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leaving = true
}

var (
	// errLockLost says that another run has taken the Lease, or that it could not be renewed in time.
	errLockLost = errors.New("lost the lock")
	// errLeaseGone says that there is no Lease any more.
	errLeaseGone = fmt.Errorf("%w: it was deleted", errLockLost)
)

// update changes the Lease, if this run still holds it.
func (l *lease) update(ctx context.Context, change func(*coordinationv1.LeaseSpec)) error {
	next := l.lease.DeepCopy()
	change(&next.Spec)
	out, err := l.site.writeLease(ctx, next)
	if apierrors.IsNotFound(err) {
		return errLeaseGone
	}
	if !apierrors.IsConflict(err) {
		if err == nil {
			l.lease = out
		}
		return err
	}
	if err := l.again(ctx); err != nil {
		return err
	}
	return l.update(ctx, change)
}

// again reads the Lease, which was touched, for example to label it. It fails with errLockLost if this run does not hold it any
// more.
func (l *lease) again(ctx context.Context) error {
	live, err := l.site.lease(ctx, l.lease.Name)
	switch {
	case err != nil:
		return err
	case live.ResourceVersion == "":
		return errLeaseGone
	case !l.owns(live.Spec) && live.Spec.HolderIdentity == nil:
		return fmt.Errorf("%w: it was given back", errLockLost)
	case !l.owns(live.Spec):
		return fmt.Errorf("%w: %s has taken it", errLockLost, *live.Spec.HolderIdentity)
	}
	l.lease.ResourceVersion = live.ResourceVersion
	return ctx.Err()
}

func (l *lease) owns(spec coordinationv1.LeaseSpec) bool {
	return spec.HolderIdentity != nil && spec.AcquireTime != nil &&
		*spec.HolderIdentity == *l.lease.Spec.HolderIdentity && spec.AcquireTime.Equal(l.lease.Spec.AcquireTime)
}

// halt ends the renewals.
func (l *lease) halt() {
	l.stop()
	l.work.Wait()
}

// release gives the Lease back. Where that fails it runs out.
func (l *lease) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, unlockTimeout)
	defer cancel()
	l.halt()
	defer l.lose(nil)
	if !errors.Is(context.Cause(l.ctx), errLockLost) {
		_ = l.update(ctx, func(s *coordinationv1.LeaseSpec) { s.HolderIdentity, s.AcquireTime, s.RenewTime = nil, nil, nil })
	}
}
