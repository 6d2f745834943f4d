// Package kube runs a setup on Kubernetes clusters: server-side apply, inventories, the lock between runs, readiness
// from watches, port-forwards and logs. It alone talks to the API servers of the clusters that host kcp.
//
// Runtime is composed of types that each have one job, and has their exported methods. The packages facts, inventory,
// lease, logs, portforward and observe do not import each other. They build on package cluster, the client for one
// cluster, and that builds on package retry; portforward needs only retry.
//
// Locks are taken in this order. The locks in the first three items are held during requests:
//
//  1. previousClusters.mu, during a search, and secretStore.mu, during a write; never one under the other
//  2. cluster.Client.mu, during the first request to a cluster
//  3. portforward.tunnel.mu, while the tunnel connects
//  4. all others, which guard memory or a file: lease.Lock.mu, inventory.KnownClusters.mu, and the mutexes of packages
//     workload and logs
//
// portforward.Dialer.mu comes before the locks of its tunnels. No lock is taken under one that comes later.
package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/client/cluster"
	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/client/ready"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/check"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/engine/run/etcds"
	"github.com/kcpctl/kcpctl/internal/runtime/kube/facts"
	"github.com/kcpctl/kcpctl/internal/runtime/kube/inventory"
	"github.com/kcpctl/kcpctl/internal/runtime/kube/lease"
	"github.com/kcpctl/kcpctl/internal/runtime/kube/observe"
)

// lockPart is the part of the name of the Lease that keeps runs apart.
const lockPart = "lock"

// Holder is a run that holds the lock.
type Holder = lease.Holder

// HasEnded reports whether a Holder, as a string, is a process of this machine that has ended. It is false if that is
// not certain.
func HasEnded(holder string) bool { return lease.Ended(holder) }

// API is how to talk to the API server of a cluster.
type API = cluster.API

// Options are the options of a Runtime.
type Options struct {
	// Version is kcpctl's own version, which the inventory records.
	Version string
	// Holder is this run, in the lock and in the history.
	Holder Holder
	// Command is the command that is run, without its flags: kcpctl up.
	Command string
	// Store keeps the PKI. Nil is a Secret in the home namespace.
	Store pki.Store
	// StateDir is the directory for the list of clusters that this machine has applied setups to. It does not have to
	// be writable. If it is empty, there is no list.
	StateDir string
	// As and AsGroups are the user and the groups to impersonate, on all clusters. They replace the user and the groups
	// of the setup.
	As       string
	AsGroups []string
	Now      func() time.Time
	// AllowOtherCluster accepts a cluster that is not the one that the setup was applied to.
	AllowOtherCluster bool
	// AllowLostRecord is the ID of an installation whose record is lost for good: another one takes its places over.
	AllowLostRecord string
	// ForgetClusters are names of clusters that the setup has left and that are lost for good: what remains there is
	// forgotten.
	ForgetClusters []string
	// API finds a cluster instead of the kubeconfigs that a topology names. Nil uses kubeconfigs.
	API func(topology.Cluster) (*API, error)
	// Image is the image of kcpctl, for the pods that write restored data.
	Image v1alpha1.Image
	// Notify is called with a sentence: why a call waits, or a warning of an API server. It may be nil.
	Notify func(message string)
}

// single returns the options for a client of one cluster.
func (o Options) single() cluster.Options {
	return cluster.Options{
		API: o.API, As: o.As, AsGroups: o.AsGroups, Now: o.Now,
		Notify: func(format string, args ...any) {
			if o.Notify != nil {
				o.Notify(fmt.Sprintf(format, args...))
			}
		},
	}
}

// Runtime runs the components of a setup on its Kubernetes clusters.
type Runtime struct {
	topology *topology.Topology
	now      func() time.Time
	clusters *clusters
	store    pki.Store

	locker lease.Locker
	held   atomic.Pointer[lease.Lock] // nil unless a run writes

	*installation
	*planner
	*applier
	*inventoryWriter
	*etcdMembers
	*restorer
	*pods
	*addresses
	purger    *purger
	workloads *observe.Observer

	// background lives until Close: watches belong to it.
	background context.Context
	stop       context.CancelFunc
}

var (
	_ run.Runtime         = (*Runtime)(nil)
	_ etcds.MemberRuntime = (*Runtime)(nil)
)

// New finds the clusters of a topology as kubectl does. It sends no request.
func New(t *topology.Topology, o Options) (*Runtime, error) {
	options := o.single()
	notify := options.Notify
	newClient := func(c topology.Cluster) (*cluster.Client, error) { return cluster.New(c, options) }
	all := &clusters{}
	for _, c := range t.Clusters {
		cl, err := newClient(c)
		if err == nil {
			err = cl.MayHost()
		}
		if err != nil && c.Name != t.Home.Name {
			cl, err = cluster.Unconfigured(c, options, err)
		}
		if err != nil {
			return nil, err
		}
		all.current = append(all.current, cl)
		if c.Name == t.Home.Name {
			all.home = cl
		}
	}
	r := &Runtime{topology: t, now: o.Now, clusters: all, store: o.Store}
	if r.store == nil {
		r.store = &secretStore{topology: t, clusters: all}
	}
	r.background, r.stop = context.WithCancel(cluster.Quiet(context.Background()))
	r.locker = lease.Locker{
		Cluster: all.home, Setup: t.Name, Name: t.Object(lockPart), Holder: o.Holder, Now: o.Now, Notify: notify,
		Command: o.Command,
	}
	known := inventory.NewKnownClusters(o.StateDir, t.Name, notify)
	inventories := &inventory.Store{Topology: t, Version: o.Version}
	r.installation = &installation{
		topology: t, clusters: all, inventories: inventories, known: known, allowOtherCluster: o.AllowOtherCluster,
		allowLostRecord: o.AllowLostRecord, witnesses: &witnesses{topology: t, clusters: all},
	}
	all.previous = &previousClusters{installation: r.installation, newClient: newClient, notify: notify,
		forget: o.ForgetClusters, now: o.Now}
	r.workloads = observe.New(r.background, selector(t), o.Now)
	r.purger = &purger{topology: t, clusters: all, known: known, held: r.held.Load, notify: notify}
	state := &observer{topology: t, clusters: all, inventories: inventories, installation: r.installation}
	r.inventoryWriter = &inventoryWriter{observer: state, purger: r.purger, holder: o.Holder, command: o.Command,
		now: o.Now}
	r.planner = &planner{observer: state, writer: r.inventoryWriter}
	r.applier = &applier{topology: t, clusters: all, workloads: r.workloads}
	r.etcdMembers = &etcdMembers{topology: t, clusters: all}
	r.addresses = &addresses{clusters: all}
	r.pods = &pods{clusters: all, workloads: r.workloads, notify: notify}
	r.restorer = &restorer{topology: t, clusters: all, installation: r.installation, applier: r.applier,
		members: r.etcdMembers, pods: &restorerPods{setup: t.Name, workloads: r.workloads, now: o.Now, image: o.Image,
			dial: r.pods.dialPod}}
	return r, nil
}

// Close ends watches and port-forwards.
func (r *Runtime) Close() error {
	r.stop()
	return r.pods.forwards.Close()
}

// Where names the clusters of the setup.
func (r *Runtime) Where() string {
	var all []string
	for _, cl := range r.clusters.current {
		all = append(all, cl.Where())
	}
	return strings.Join(all, "; ")
}

// Unreachable asks all clusters of the setup whether they answer, and returns those that do not, with the reasons.
func (r *Runtime) Unreachable(ctx context.Context) []plan.Unreachable {
	return r.clusters.unreachable(ctx)
}

// LeaveOut makes the following calls leave some clusters out, and no others: they read nothing from them and write
// nothing to them. Nothing else runs meanwhile. The home cluster cannot be left out.
func (r *Runtime) LeaveOut(all []plan.Unreachable) {
	all = slices.DeleteFunc(slices.Clone(all),
		func(u plan.Unreachable) bool { return u.Cluster == r.clusters.home.Name })
	r.clusters.left.Store(&all)
	r.clusters.previous.reset()
}

// Facts returns the clusters of the setup for checks, without those that are left out.
func (r *Runtime) Facts() check.Facts {
	out := check.Facts{Unreachable: r.clusters.allLeftOut()}
	for _, cl := range r.clusters.used() {
		out.Clusters = append(out.Clusters, facts.New(r.background, cl, r.topology, r.now))
	}
	return out
}

// Store returns the store of the setup's PKI.
func (r *Runtime) Store() pki.Store { return r.store }

// KeepsPKI reports whether the PKI is in a store that Purge does not delete.
func (r *Runtime) KeepsPKI() bool {
	_, inCluster := r.store.(*secretStore)
	return !inCluster
}

// Record returns the record of the installation. A run reads it first.
func (r *Runtime) Record(ctx context.Context) (*record.Record, error) {
	rec, err := r.installation.readRecord(ctx)
	if cluster.IsDenied(err) {
		// The user probably lacks other permissions too, and should see all of them together.
		if all := r.mayApply(ctx); all != nil {
			err = all
		}
	}
	if err != nil {
		return nil, err
	}
	return rec, rec.CheckInstallation(r.topology.Installation(), r.clusters.home.Where())
}

// mayApply returns an error with all permissions that the user lacks for a run, on any cluster.
func (r *Runtime) mayApply(ctx context.Context) error {
	return r.clusters.each(ctx, func(ctx context.Context, cl *cluster.Client) error {
		return facts.MayApply(ctx, cl, nil, r.topology.Probes())
	})
}

// Finish deletes what the plan deletes, and writes into the inventories exactly what exists, the record, and what was
// applied.
func (r *Runtime) Finish(ctx context.Context, p *plan.Plan, rec *record.Record, a plan.Applied) error {
	if err := r.Delete(ctx, p.Deletions()); err != nil {
		return err
	}
	return r.inventoryWriter.finish(ctx, p, rec, a)
}

// Objects returns everything that the setup has applied, except namespaces, in the order of the components.
func (r *Runtime) Objects(ctx context.Context) ([]plan.Item, error) {
	return r.planner.objects(ctx)
}

// PreflightPurge checks, before anything is deleted, that the user may do all that Purge does, and may see all that it
// looks at.
func (r *Runtime) PreflightPurge(ctx context.Context) error {
	return r.purger.preflight(ctx)
}

// PurgeScope returns what Purge deletes, and where: a line for each cluster.
func (r *Runtime) PurgeScope(ctx context.Context) ([]string, error) {
	return r.purger.scope(ctx)
}

// Purge deletes what Delete keeps: volumes, PKI, inventory, namespaces that the setup has created, and last the lock.
func (r *Runtime) Purge(ctx context.Context) error { return r.purger.purge(ctx) }

// PurgeData deletes the volumes of a component, which pods must no longer use.
func (r *Runtime) PurgeData(ctx context.Context, id topology.ID) error {
	return r.purger.purgeData(ctx, id)
}

// State returns the state of a component, from what watches have seen.
func (r *Runtime) State(ctx context.Context, c *topology.Component) (ready.State, error) {
	if !c.Runs() {
		return ready.State{Ready: true}, nil
	}
	cl, err := r.clusters.ofComponent(ctx, c)
	if err != nil {
		return ready.State{}, err
	}
	return r.workloads.State(ctx, cl, c)
}

// Read returns an object on the cluster of a component, or nil if it does not exist.
func (r *Runtime) Read(
	ctx context.Context, c *topology.Component, gvk schema.GroupVersionKind, namespace, name string,
) (*unstructured.Unstructured, error) {
	cl, err := r.clusters.ofComponent(ctx, c)
	if err != nil {
		return nil, err
	}
	return cl.ReadObject(ctx, gvk, namespace, name)
}

// Find returns the objects of the kind of a reference on its cluster: the one with its name, or those that match a
// label selector.
func (r *Runtime) Find(ctx context.Context, at plan.Ref, selector string) ([]unstructured.Unstructured, error) {
	k, err := kind.Readable(at.GroupVersionKind)
	if err != nil {
		return nil, err
	}
	cl, err := r.clusters.of(ctx, at)
	if err != nil {
		return nil, err
	}
	if at.Name == "" {
		return cl.List(ctx, k, selector)
	}
	o, err := cl.Get(ctx, k, at.Name)
	if err != nil || o == nil {
		return nil, err
	}
	return []unstructured.Unstructured{*o}, nil
}
