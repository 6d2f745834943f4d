// Package run has what all runs for a setup share: the runtime that they use, its lock, the record that they read, and
// the events that they report.
package run

import (
	"context"
	"errors"
	"net"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/client/ready"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/check"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// Runtime is what runs a setup's components: Kubernetes clusters (package kube), or this machine (package local). It
// is the sum of what all runs and checks need. Each of them but up names only the part that it uses.
type Runtime interface {
	check.Runtime
	Reacher
	Archive
	Storer
	Keeper
	Locker
	RunReader
	Planner
	Applier
	Deleter
	Purger
	Prober
	Replacer
	Scaler
	Addresser
	Finder
	Heir
	// Close closes what the runtime opened for itself, such as port-forwards. It stops no component.
	Close() error
}

// Archive is what an installation keeps about itself.
type Archive interface {
	// Store keeps the setup's PKI.
	Store() pki.Store
	// Record returns the record of the installation: an empty one before its first run. It refuses a place that
	// belongs to another installation.
	Record(ctx context.Context) (*record.Record, error)
	// History returns the setups that were applied, oldest first.
	History(ctx context.Context) ([]plan.Revision, error)
	// Objects returns everything that was applied, by component.
	Objects(ctx context.Context) ([]plan.Item, error)
}

// Storer knows where the data of components really is.
type Storer interface {
	// Storage returns what the storage says about the data of components, without the clusters that are left out.
	Storage(ctx context.Context, data map[topology.ID]record.Data) (map[topology.ID]record.Storage, error)
	// Unused returns the volumes of the setup that no component uses, by the component that has made them, without the
	// clusters that are left out.
	Unused(ctx context.Context, data map[topology.ID]record.Data) (map[topology.ID][]record.Data, error)
}

// Keeper writes the record of the installation outside of Begin and Finish.
type Keeper interface {
	// Keep writes only the record. The lock is held.
	Keep(ctx context.Context, r *record.Record) error
}

// Locker keeps concurrent runs apart.
type Locker interface {
	// Lock takes the lock until unlock is called. The context that it returns ends when the lock is lost, with the
	// reason as its cause: every write belongs under it. It fails with ErrNoPlace if nothing was applied yet, so that
	// no place for a lock exists.
	Lock(ctx context.Context) (held context.Context, unlock func(), err error)
	// Ended remembers why a run ended that has called Begin and not Finish, unless the lock was lost meanwhile. It is
	// for readers only, so it never fails.
	Ended(ctx context.Context, why error)
}

// RunReader knows the runs of an installation.
type RunReader interface {
	// Runs returns the run that holds the lock, and the last one that has called Begin and not Finish, which may be the
	// same. Each is nil if there is none.
	Runs(ctx context.Context) (current, unfinished *record.Run, err error)
}

// Reacher tells which clusters of a setup can be reached. By default every call that needs a cluster which cannot be
// reached fails.
type Reacher interface {
	// Unreachable asks all clusters of the setup whether they answer, and returns those that do not, with the reasons.
	Unreachable(ctx context.Context) []plan.Unreachable
	// LeaveOut makes the following calls leave some clusters out, and no others: the plan has their objects as
	// plan.Unknown, and otherwise nothing is read from them or written to them. Calls for a component there fail with
	// the reason. The home cluster is never left out.
	LeaveOut(all []plan.Unreachable)
}

// Planner compares objects with the live ones.
type Planner interface {
	// Plan compares the rendered objects with the live ones, and adds those to be deleted. It writes nothing.
	Plan(ctx context.Context, objects []render.Object, o PlanOptions) (*plan.Plan, error)
}

// Applier writes a plan.
type Applier interface {
	// Begin remembers all objects of a plan, and the record, before the first object is written, so that everything
	// that an interrupted run has created remains known.
	Begin(ctx context.Context, p *plan.Plan, r *record.Record) error
	// Apply writes objects. Apart from their kinds, the objects of one call are independent of each other.
	Apply(ctx context.Context, items []plan.Item, o PlanOptions) error
	// Finish deletes the objects that the plan deletes, and remembers what was applied, and the record.
	Finish(ctx context.Context, p *plan.Plan, r *record.Record, a plan.Applied) error
}

// Deleter removes components.
type Deleter interface {
	// Delete deletes objects and waits until they are gone.
	Delete(ctx context.Context, items []plan.Item) error
	// PurgeData deletes the data of a component, which Delete keeps: its volumes, or its directory on this machine.
	PurgeData(ctx context.Context, id topology.ID) error
}

// Purger removes everything that Delete keeps.
type Purger interface {
	// PreflightPurge returns an error if Purge could not delete everything. It is called before anything is deleted.
	PreflightPurge(ctx context.Context) error
	// PurgeScope returns what Purge deletes, and where: a line for each place that may have something.
	PurgeScope(ctx context.Context) ([]string, error)
	// KeepsPKI reports whether Purge leaves the PKI alone, because it is in a directory of the user's.
	KeepsPKI() bool
	// Purge deletes data, PKI, inventory, the lock, and namespaces that kcpctl created. The lock is held, and goes
	// last.
	Purge(ctx context.Context) error
}

// Prober returns the states of components.
type Prober interface {
	// State returns the state of a component. Callers poll it, so it must be cheap.
	State(ctx context.Context, c *topology.Component) (ready.State, error)
	// Dial connects to the port on which a component serves.
	Dial(ctx context.Context, c *topology.Component) (net.Conn, error)
}

// Replacer restarts components.
type Replacer interface {
	// Replace replaces the pods of a component one after another, so that the others keep serving.
	Replace(ctx context.Context, c *topology.Component) error
	// ReplaceOutdated replaces all pods of a StatefulSet at once that are not as its current template says. It does not
	// wait for the next ones.
	ReplaceOutdated(ctx context.Context, c *topology.Component) error
}

// Scaler changes how many replicas of a component run.
type Scaler interface {
	// Scale sets the number of replicas of a component until the next Apply. It does not wait for them.
	Scale(ctx context.Context, c *topology.Component, replicas int32) error
}

// Finder finds objects that components have made themselves.
type Finder interface {
	// Find returns the objects of the kind of a reference on its cluster, in its namespace: the one with its name, or
	// without a name all that match a label selector.
	Find(ctx context.Context, at plan.Ref, selector string) ([]unstructured.Unstructured, error)
}

// Addresser tells which addresses clusters have assigned to components.
type Addresser interface {
	// Addresses returns what is assigned to components now, by their IDs.
	Addresses(ctx context.Context, of []*topology.Component) (map[topology.ID]Assigned, error)
}

// Assigned has the addresses that a cluster has assigned to a component that is exposed.
type Assigned struct {
	// Hosts are the addresses of its load balancer, of its Ingress, or of the nodes, in the order of preference.
	Hosts []string
	// Port is the node port of its Service. 0: there is none.
	Port int32
	// Reason is why something is missing.
	Reason string
}

// Heir reads the installation of kcp-operator that a setup takes over.
type Heir interface {
	// Belong fails if a live object does not belong to the installation from which the setup was imported.
	Belong(ctx context.Context, live []plan.Item) error
	// Inherited returns the authorities and the keys of that installation.
	Inherited(ctx context.Context) (*pki.State, error)
	// InheritedRelease returns the release of kcp that the servers behind one of its Services run. It is empty if they
	// do not exist, or if their image does not say.
	InheritedRelease(ctx context.Context, service plan.Item) (string, error)
}

// LogOptions select logs.
type LogOptions = check.LogOptions

// ErrNoPrevious is the error for the previous log of what has never been restarted.
var ErrNoPrevious = check.ErrNoPrevious

// PlanOptions are the options of Plan and Apply.
type PlanOptions struct {
	// Force takes over fields that other managers own.
	Force bool
	// Progress is called, one call at a time, whenever objects were compared, with their number so far. It can be nil.
	Progress func(compared, total int)
	// PKI is the PKI that kcp runs with, for objects in workspaces. Nil is the PKI of the last call, or of the store.
	PKI *pki.State
	// Waiting is called with what Apply waits for in workspaces. It can be nil.
	Waiting func(reason string)
	// PruneData are the components whose objects in workspaces are deleted, if the setup no longer has them, although
	// they hold data. Others are kept.
	PruneData []topology.ID
	// Orphan are agents that are removed although workspaces have objects of their APIs. What they have on a cluster
	// that the setup no longer has is kept.
	Orphan []topology.ID
}

// ErrNoPlace means that nothing was applied yet, so that no place for a lock exists.
var ErrNoPlace = errors.New("nothing was applied yet")

// CheckLock fails if another run holds the lock. Where nothing was applied yet, no run does.
func CheckLock(ctx context.Context, rt Locker) error {
	nothing := func(context.Context) error { return nil }
	return Locked(ctx, rt, nothing, nothing)
}

// Locked calls do while it holds the lock, with a context that ends when the lock is lost. An error that the loss has
// caused is replaced by the reason of the loss. If nothing was applied yet, no lock can exist: then it calls instead;
// without one it refuses.
func Locked(ctx context.Context, rt Locker, do, instead func(context.Context) error) error {
	held, unlock, err := rt.Lock(ctx)
	switch {
	case errors.Is(err, ErrNoPlace) && instead != nil:
		return instead(ctx)
	case errors.Is(err, ErrNoPlace):
		return clierr.New(clierr.Failed, "run kcpctl up first", "%w", err)
	case err != nil:
		return err
	}
	defer unlock()
	if err = do(held); err == nil {
		return nil
	}
	// The context of the lock has another cause than ctx, whatever happened to ctx since, only if the lock was lost.
	if lost := context.Cause(held); lost != nil && lost != context.Cause(ctx) {
		return lost
	}
	rt.Ended(context.WithoutCancel(held), err)
	return err
}
