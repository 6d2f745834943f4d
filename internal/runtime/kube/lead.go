package kube

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kcpctl/kcpctl/internal/client/cluster"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/poll"
	"github.com/kcpctl/kcpctl/internal/runtime/kube/lease"
)

// Lead is a Lease that one of several processes of a server holds.
type Lead struct {
	// Config is the connection to the API server or to the workspace with the Lease.
	Config *rest.Config
	// Namespace and Name identify the Lease.
	Namespace, Name string
	Holder          Holder
	Now             func() time.Time
	Notify          cluster.Notify
}

// leadInterval is the time before a process that has lost the Lease tries to get it again, if that has failed.
const leadInterval = 5 * time.Second

// Run waits until this process holds the Lease, and runs a function while it does. The function is called again if the
// Lease is lost and this process gets it again: nothing may start the process again after the machine has slept, or
// after the API server was away.
func (l Lead) Run(ctx context.Context, f func(context.Context) error) error {
	d, err := dynamic.NewForConfig(l.Config)
	if err != nil {
		return fmt.Errorf("client for %s: %w", l.Config.Host, err)
	}
	hc, err := rest.HTTPClientFor(l.Config)
	if err != nil {
		return fmt.Errorf("client for %s: %w", l.Config.Host, err)
	}
	api := cluster.API{Server: l.Config.Host, Dynamic: d, HTTP: hc}
	cl, err := cluster.New(topology.Cluster{Name: l.Config.Host, Namespace: l.Namespace}, cluster.Options{
		API: func(topology.Cluster) (*cluster.API, error) { return &api, nil }, Now: l.Now, Notify: l.Notify,
	})
	if err != nil {
		return err
	}
	k := lease.Locker{Cluster: cl, Setup: l.Name, Name: l.Name, Holder: l.Holder, Wait: true, Now: l.Now,
		Notify: l.Notify}
	lock, err := k.Acquire(ctx)
	for err == nil {
		err = f(lock.Context())
		lost := context.Cause(lock.Context())
		lock.Release(context.WithoutCancel(ctx))
		if !errors.Is(lost, lease.ErrLost) {
			return err
		}
		l.Notify("%v: waiting for it", lost)
		lock, err = l.again(ctx, k)
	}
	return err
}

// again acquires the Lease. It retries until the context ends.
func (l Lead) again(ctx context.Context, k lease.Locker) (*lease.Lock, error) {
	var lock *lease.Lock
	report := func(reason string) { l.Notify("%s: retrying", reason) }
	err := poll.UntilWorks(ctx, leadInterval, report, func() (err error) {
		lock, err = k.Acquire(ctx)
		return err
	})
	return lock, err
}
