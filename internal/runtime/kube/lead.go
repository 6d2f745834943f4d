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

// Run waits until this process holds the Lease, and runs a function while it does. It fails if the Lease is lost:
// another process may have taken over.
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
	if err != nil {
		return err
	}
	defer lock.Release(context.WithoutCancel(ctx))
	if err := f(lock.Context()); err != nil {
		return err
	}
	if cause := context.Cause(lock.Context()); errors.Is(cause, lease.ErrLost) {
		return cause
	}
	return nil
}
