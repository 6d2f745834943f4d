package local

import (
	"context"

	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
)

// Unreachable returns none: this machine is always reached.
func (r *Runtime) Unreachable(context.Context) []plan.Unreachable { return nil }

// LeaveOut does nothing: this machine is always reached.
func (r *Runtime) LeaveOut([]plan.Unreachable) {}

// Belong never fails: nothing on this machine is kcp-operator's.
func (r *Runtime) Belong(context.Context, []plan.Item) error { return nil }

// Inherited returns no authorities: nothing on this machine is kcp-operator's.
func (r *Runtime) Inherited(context.Context) (*pki.State, error) { return &pki.State{}, nil }
