package lease

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/kcpctl/kcpctl/internal/desired/record"
)

// Current returns the run that holds the Lease, or nil. It reads the Lease once, so a process of another machine that
// was killed counts as the holder until another run takes the Lease: the time of the last renewal shows it.
func (k *Locker) Current(ctx context.Context) (*record.Run, error) {
	if err := k.Cluster.Connect(ctx); err != nil {
		return nil, err
	}
	l, err := readLease(ctx, k.Cluster, k.Name)
	if err != nil {
		return nil, err
	}
	return current(l, k.Holder.Machine, isAlive), nil
}

func current(l *coordinationv1.Lease, machine string, alive func(pid int) bool) *record.Run {
	if l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity == "" ||
		ended(*l.Spec.HolderIdentity, machine, alive) {
		return nil
	}
	h := parseHolder(*l.Spec.HolderIdentity)
	out := &record.Run{Command: l.Annotations[annotationCommand], User: h.User, Host: h.Host, PID: h.PID}
	if t := l.Spec.AcquireTime; t != nil {
		out.Since = t.UTC()
	}
	if t := l.Spec.RenewTime; t != nil {
		out.Renewed = t.UTC()
	}
	return out
}
