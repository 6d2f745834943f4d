package local

import (
	"context"

	"github.com/kcpctl/kcpctl/internal/plan"
)

// Unreachable returns none: this machine is always reached.
func (r *Runtime) Unreachable(context.Context) []plan.Unreachable { return nil }

// LeaveOut has nothing to leave out.
func (r *Runtime) LeaveOut([]plan.Unreachable) {}
