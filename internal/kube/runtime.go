// Package kube runs a setup on Kubernetes clusters: server-side apply, the inventory of what was applied, the lock between
// runs, readiness from watches, port-forwards and logs. It alone talks to the API servers of the clusters that host kcp.
package kube

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/dynamic"

	"github.com/kcpctl/kcpctl/internal/pki"
	"github.com/kcpctl/kcpctl/internal/plan"
	"github.com/kcpctl/kcpctl/internal/run"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// parallel is how many requests go to a cluster at once. It stands in for a rate limit: API servers have their own.
const parallel = 16

// Options say how a Runtime behaves.
type Options struct {
	// Version is kcpctl's own version. The inventory remembers it.
	Version string
	// Holder is who runs. Lock and history name it.
	Holder Holder
	// Store keeps the PKI. Nil is a Secret in the home namespace.
	Store pki.Store
	// StateDir is the folder in which kcpctl keeps what it remembers on this machine. Empty: it remembers nothing. It does not
	// have to be writable.
	StateDir string
	// As and AsGroups are whom to act as, in place of the user of the kubeconfig.
	As       string
	AsGroups []string
	// Now is the clock.
	Now func() time.Time
	// AllowOtherCluster accepts a cluster that is not the one the setup was applied to.
	AllowOtherCluster bool
	// API finds a cluster in place of the kubeconfigs that a topology names. Nil is for kubeconfigs.
	API func(topology.Cluster) (*API, error)
	// Notify is told, in a sentence, why a call waits and what an API server warns of. It may be nil.
	Notify func(message string)
}

// API is how to talk to the API server of a cluster.
type API struct {
	// Context is what a kubeconfig would call the cluster.
	Context string
	Dynamic dynamic.Interface
	HTTP    *http.Client
}

// Runtime runs the components of a setup on its Kubernetes clusters.
type Runtime struct {
	topology *topology.Topology
	options  Options
	// sites are the clusters of the topology, in its order; home is one of them.
	sites []*site
	home  *site
	store pki.Store

	// background lives until Close: watches and port-forwards belong to it.
	background context.Context
	stop       context.CancelFunc

	mu sync.Mutex
	// former are clusters that the setup has left, and lost those of them that do not answer: see findFormer.
	former      []*site
	lost        []placement
	knowsFormer bool
	told        []string
	lock        *lease // held while a run writes
	applied     applied
	tunnels     tunnels
	files       sync.Mutex // held while the memory of this machine is changed
	memoryNote  sync.Once
}

var (
	_ run.Runtime = (*Runtime)(nil)
	_ run.Purger  = (*Runtime)(nil)
)

// New finds the clusters of a topology as kubectl does. It asks no API server.
func New(t *topology.Topology, o Options) (*Runtime, error) {
	r := &Runtime{topology: t, options: o, store: o.Store}
	for _, c := range t.Clusters {
		s, err := newSite(c, o, r.notify)
		if err != nil {
			return nil, err
		}
		r.sites = append(r.sites, s)
		if c.Name == t.Home.Name {
			r.home = s
		}
	}
	if r.store == nil {
		r.store = &secretStore{r: r}
	}
	r.background, r.stop = context.WithCancel(quiet(context.Background()))
	return r, nil
}

// Where says where the setup runs.
func (r *Runtime) Where() string {
	var all []string
	for _, s := range r.sites {
		all = append(all, s.where())
	}
	return strings.Join(all, "; ")
}

// Store keeps the setup's PKI.
func (r *Runtime) Store() pki.Store { return r.store }

// Close ends watches and port-forwards.
func (r *Runtime) Close() error {
	r.stop()
	return r.tunnels.close()
}

func (r *Runtime) notify(format string, args ...any) {
	if r.options.Notify != nil {
		r.options.Notify(fmt.Sprintf(format, args...))
	}
}

// all are the clusters of the setup, and those that it has left as far as they have been found.
func (r *Runtime) all() []*site {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Concat(r.sites, r.former)
}

// site returns the connected cluster that an object is on.
func (r *Runtime) site(ctx context.Context, ref plan.Ref) (*site, error) {
	for _, s := range r.all() {
		if s.Name == ref.Cluster && (ref.Namespace == "" || ref.Namespace == s.Namespace) {
			return s, s.connect(ctx)
		}
	}
	return nil, fmt.Errorf("%s: the setup has no cluster %q with namespace %q", ref, ref.Cluster, ref.Namespace)
}

// siteOf returns the connected cluster of a component.
func (r *Runtime) siteOf(ctx context.Context, c *topology.Component) (*site, error) {
	return r.site(ctx, plan.Ref{Cluster: c.Cluster.Name, Namespace: c.Cluster.Namespace, Name: c.Object()})
}

// each calls do for all clusters of the setup at once, when they are connected.
func (r *Runtime) each(ctx context.Context, do func(context.Context, *site) error) error {
	return onSites(ctx, r.sites, do)
}

// everywhere is each, and the clusters besides that the setup has left but on which it still has objects.
func (r *Runtime) everywhere(ctx context.Context, do func(context.Context, *site) error) error {
	if err := r.findFormer(ctx); err != nil {
		return err
	}
	return onSites(ctx, r.all(), do)
}

func onSites(ctx context.Context, sites []*site, do func(context.Context, *site) error) error {
	return concurrently(ctx, sites, func(ctx context.Context, s *site) error {
		if err := s.connect(ctx); err != nil {
			return err
		}
		return do(ctx, s)
	})
}

// concurrently calls do for all items, some at a time. It does not stop at the first error: it returns all of them, in the
// order of the items, the same one once.
func concurrently[T any](ctx context.Context, items []T, do func(context.Context, T) error) error {
	errs := make([]error, len(items))
	var g errgroup.Group
	g.SetLimit(parallel)
	for i, it := range items {
		g.Go(func() error {
			if errs[i] = ctx.Err(); errs[i] == nil {
				errs[i] = do(ctx, it)
			}
			return nil
		})
	}
	_ = g.Wait() // the errors are in errs
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	said := map[string]bool{}
	errs = slices.DeleteFunc(errs, func(err error) bool {
		again := err == nil || said[err.Error()]
		if err != nil {
			said[err.Error()] = true
		}
		return again
	})
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}

// indices are the indices of a slice, for concurrently.
func indices[T any](all []T) []int {
	out := make([]int, len(all))
	for i := range out {
		out[i] = i
	}
	return out
}
