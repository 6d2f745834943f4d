package run

import (
	"context"
	"errors"
	"io"
	"net"

	"github.com/kcpctl/kcpctl/internal/pki"
	"github.com/kcpctl/kcpctl/internal/plan"
	"github.com/kcpctl/kcpctl/internal/ready"
	"github.com/kcpctl/kcpctl/internal/record"
	"github.com/kcpctl/kcpctl/internal/render"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// Runtime is what runs a setup's components: Kubernetes clusters (package kube), or this machine (package local). Order,
// waiting, registration and canary are the same for both and live in this package.
type Runtime interface {
	// Where says in a few words where the setup runs: "context kind-dev, namespace kcp".
	Where() string
	// Store keeps the setup's PKI.
	Store() pki.Store
	// Preflight finds what would keep the objects from being applied: permissions, missing references, occupied ports. It
	// reports everything at once and writes nothing.
	Preflight(ctx context.Context, objects []render.Object) error
	// Plan compares the rendered objects with the live ones, and adds what is to be deleted. It writes nothing.
	Plan(ctx context.Context, objects []render.Object, o PlanOptions) (*plan.Plan, error)
	// Record is what the installation knows of itself: an empty record before its first run.
	Record(ctx context.Context) (*record.Record, error)
	// Lock keeps other runs out until unlock is called. The context that it returns ends, with the reason as its cause, when
	// the lock is lost: everything that is written belongs under it. It fails with ErrNoPlace where nothing was applied yet
	// that a lock could be in.
	Lock(ctx context.Context) (held context.Context, unlock func(), err error)
	// Begin remembers all objects of a plan, and the record, before the first object is written, so that nothing that an
	// interrupted run made is lost sight of.
	Begin(ctx context.Context, p *plan.Plan, r *record.Record) error
	// Apply writes objects. Those of one call are independent of each other, but for their kinds.
	Apply(ctx context.Context, items []plan.Item, o PlanOptions) error
	// Finish deletes what the plan deletes, and remembers what was applied, and the record.
	Finish(ctx context.Context, p *plan.Plan, r *record.Record, a plan.Applied) error
	// State says how far a component is. It is called again and again and must be cheap.
	State(ctx context.Context, c *topology.Component) (ready.State, error)
	// Replace replaces the pods of a component one after another, so that the others go on to serve.
	Replace(ctx context.Context, c *topology.Component) error
	// Dial connects to the port on which a component serves.
	Dial(ctx context.Context, c *topology.Component) (net.Conn, error)
	// History returns the setups that were applied, oldest first.
	History(ctx context.Context) ([]plan.Revision, error)
	// Objects returns everything that the setup has applied, by component.
	Objects(ctx context.Context) ([]plan.Item, error)
	// Delete deletes objects and waits until they are gone.
	Delete(ctx context.Context, items []plan.Item) error
	// Purge deletes what Delete keeps: data, PKI, inventory, the lock, namespaces that the setup made. The lock is held, and
	// goes last.
	Purge(ctx context.Context) error
	// PurgeData deletes what Delete keeps of a component: its volumes, or its data on this machine.
	PurgeData(ctx context.Context, id topology.ID) error
	// Logs copies a component's logs.
	Logs(ctx context.Context, c *topology.Component, o LogOptions, w io.Writer) error
	// Close ends what the runtime started for itself, such as port-forwards. It stops no component.
	Close() error
}

// PlanOptions say how to plan and to apply.
type PlanOptions struct {
	// Force takes over fields that other managers own.
	Force bool
}

// ErrNoPlace says that there is nothing yet in which a lock could be.
var ErrNoPlace = errors.New("nothing was applied yet")

// Locked calls do while this run holds the lock, with a context that ends when the lock is lost. Errors that the loss has
// caused are told as the loss.
func Locked(ctx context.Context, rt Runtime, do func(context.Context) error) error {
	held, unlock, err := rt.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	err = do(held)
	if err != nil && held.Err() != nil && ctx.Err() == nil {
		return context.Cause(held)
	}
	return err
}

// LogOptions say which logs.
type LogOptions struct {
	Follow   bool
	Previous bool
	// Tail is the number of last lines; 0 is all.
	Tail int64
}
