package kube

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/run"
	"github.com/kcpctl/kcpctl/internal/topology"
)

const (
	// lockPart is the part of the name of the Lease that keeps runs apart.
	lockPart = "lock"
	// leaseDuration is how long a run that does not renew its Lease any more keeps others out. The holder gives up well before:
	// renewDeadline after it sent the last renewal that was carried out.
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	leaseRenewal  = 3 * time.Second
	leasePoll     = time.Second
	// leaseWatch is how often the holder looks at the clock: timers stand still while a machine sleeps.
	leaseWatch    = time.Second
	unlockTimeout = 5 * time.Second
)

// Holder is a run that holds the lock.
type Holder struct {
	Host string
	PID  int
	// Machine is the machine, and the namespace on it, that counts the PID (see package machine). Empty is unknown.
	Machine string
	User    string
}

// String is what a Lease calls its holder: host/pid@machine/user.
func (h Holder) String() string { return fmt.Sprintf("%s/%d@%s/%s", h.Host, h.PID, h.Machine, h.User) }

func parseHolder(s string) Holder {
	host, rest, _ := strings.Cut(s, "/")
	process, user, _ := strings.Cut(rest, "/")
	pid, machine, _ := strings.Cut(process, "@")
	n, err := strconv.Atoi(pid)
	if err != nil {
		return Holder{Host: s}
	}
	return Holder{Host: host, PID: n, Machine: machine, User: user}
}

// verdict is what a Lease means for a run that wants it.
type verdict int

const (
	free    verdict = iota // nobody holds it, or one who is dead
	held                   // somebody holds it who is alive
	unknown                // its holder may be dead
)

// sighting is a state of a Lease, and since when it has been so.
type sighting struct {
	holder, renewed string
	since           time.Time
}

// judge decides about a Lease that was first seen in some state. A renewal in the meantime proves that its holder is alive;
// none for its whole duration, or a process of this very machine and PID namespace that is gone, that it is dead. Clocks of different machines are
// never compared.
func judge(spec coordinationv1.LeaseSpec, first sighting, now time.Time, machine string, alive func(pid int) bool) verdict {
	s := sight(spec, now)
	if s.holder == "" {
		return free
	}
	if h := parseHolder(s.holder); h.PID != 0 && h.Machine != "" && h.Machine == machine && !alive(h.PID) {
		return free
	}
	if s.holder != first.holder || s.renewed != first.renewed {
		return held
	}
	duration := leaseDuration
	if spec.LeaseDurationSeconds != nil {
		duration = time.Duration(*spec.LeaseDurationSeconds) * time.Second
	}
	if now.Sub(first.since) >= duration {
		return free
	}
	return unknown
}

func sight(spec coordinationv1.LeaseSpec, now time.Time) sighting {
	s := sighting{since: now}
	if spec.HolderIdentity != nil {
		s.holder = *spec.HolderIdentity
	}
	if spec.RenewTime != nil {
		s.renewed = spec.RenewTime.String()
	}
	return s
}

// isAlive tells whether a process of this machine runs.
func isAlive(pid int) bool {
	p, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	err = p.Signal(syscall.Signal(0))
	return !errors.Is(err, os.ErrProcessDone)
}

// Lock takes the setup's Lease and renews it until unlock. It waits while the holder may be dead, and fails as soon as the
// holder is known to be alive. The context that it returns ends when the Lease is lost.
func (r *Runtime) Lock(ctx context.Context) (locked context.Context, unlock func(), err error) {
	ctx = quiet(ctx)
	if err := r.home.connect(ctx); err != nil {
		return nil, nil, err
	}
	name := r.topology.Object(lockPart)
	var (
		first *sighting
		waits sync.Once
	)
	for {
		l, err := r.home.lease(ctx, name)
		if err != nil {
			return nil, nil, err
		}
		if first == nil {
			s := sight(l.Spec, r.options.Now())
			first = &s
		}
		switch judge(l.Spec, *first, r.options.Now(), r.options.Holder.Machine, isAlive) {
		case free:
			if locked, unlock, err = r.take(ctx, l); err == nil || !isTaken(err) {
				return locked, unlock, err
			}
			first = nil
			continue
		case held:
			return nil, nil, heldError(r.home, l)
		case unknown:
			waits.Do(func() { r.notify("another run may hold the lock: waiting up to %s for %s", leaseDuration, describe(l)) })
		}
		select {
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		case <-time.After(leasePoll):
		}
	}
}

func heldError(s *site, l *coordinationv1.Lease) error {
	return clierr.New(clierr.Conflict, "wait until that run is done, or end it",
		"another run works on the setup: %s holds %s (%s)", describe(l), leaseName(l), s.where())
}

// describe says who holds a Lease, and since when.
func describe(l *coordinationv1.Lease) string {
	h := parseHolder(*l.Spec.HolderIdentity)
	out := fmt.Sprintf("process %d of %s on %s", h.PID, h.User, h.Host)
	if l.Spec.AcquireTime != nil {
		out += ", since " + l.Spec.AcquireTime.UTC().Format(time.RFC3339)
	}
	return out
}

func leaseName(l *coordinationv1.Lease) string { return "Lease/" + l.Namespace + "/" + l.Name }

// isTaken tells whether another run was faster.
func isTaken(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }

// take makes this run the holder of a Lease and starts to renew it.
func (r *Runtime) take(ctx context.Context, l *coordinationv1.Lease) (context.Context, func(), error) {
	holder, now := r.options.Holder.String(), metav1.NewMicroTime(r.options.Now())
	seconds, transitions := int32(leaseDuration/time.Second), int32(0)
	if l.Spec.LeaseTransitions != nil {
		transitions = *l.Spec.LeaseTransitions + 1
	}
	l.Labels = map[string]string{topology.LabelSetup: r.topology.Name, "app.kubernetes.io/managed-by": topology.ManagedBy}
	l.Spec = coordinationv1.LeaseSpec{
		HolderIdentity: &holder, AcquireTime: &now, RenewTime: &now,
		LeaseDurationSeconds: &seconds, LeaseTransitions: &transitions,
	}
	held := &lease{site: r.home, name: leaseName(l), now: r.options.Now, renewed: r.options.Now()}
	var err error
	if held.lease, err = r.home.writeLease(ctx, l); err != nil {
		switch {
		case isTaken(err):
			return nil, nil, err
		case apierrors.IsNotFound(err):
			return nil, nil, clierr.New(clierr.Failed, "kcpctl up makes it",
				"%w: there is no namespace %s (%s)", run.ErrNoPlace, r.home.Namespace, r.home.where())
		case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
			return nil, nil, r.home.ending()
		}
		return nil, nil, r.home.explain(err, "take %s", leaseName(l))
	}
	if err := held.confirm(ctx); err != nil {
		return nil, nil, clierr.New(clierr.Conflict, "run the command again", "take %s: %w", leaseName(l), err)
	}
	held.ctx, held.lose = context.WithCancelCause(ctx)
	held.beat, held.stop = context.WithCancel(context.WithoutCancel(ctx))
	r.setLock(held)
	r.forgetFormer()
	held.work.Go(held.renew)
	held.work.Go(held.watch)
	return held.ctx, sync.OnceFunc(func() {
		r.setLock(nil)
		held.release(context.WithoutCancel(ctx))
	}), nil
}

func (r *Runtime) setLock(l *lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lock = l
}

// holding returns the lock that this run holds, or nil.
func (r *Runtime) holding() *lease {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lock
}

// lease returns a Lease: a new one if it does not exist.
func (s *site) lease(ctx context.Context, name string) (*coordinationv1.Lease, error) {
	out := &coordinationv1.Lease{
		TypeMeta:   metav1.TypeMeta{APIVersion: coordinationv1.SchemeGroupVersion.String(), Kind: "Lease"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.Namespace},
	}
	u, err := s.resource(leases()).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return out, nil
	}
	if err != nil {
		return nil, s.explain(err, "read Lease/%s/%s", s.Namespace, name)
	}
	return out, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, out)
}

// writeLease creates or updates a Lease, unless it has changed. The error is the API server's.
func (s *site) writeLease(ctx context.Context, l *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	o, err := runtime.DefaultUnstructuredConverter.ToUnstructured(l)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: o}
	if l.ResourceVersion == "" {
		u, err = s.resource(leases()).Create(ctx, u, metav1.CreateOptions{FieldManager: fieldManager})
	} else {
		u, err = s.resource(leases()).Update(ctx, u, metav1.UpdateOptions{FieldManager: fieldManager})
	}
	if err != nil {
		return nil, err
	}
	out := &coordinationv1.Lease{}
	return out, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, out)
}
