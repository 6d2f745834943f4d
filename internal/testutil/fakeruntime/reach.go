package fakeruntime

import (
	"context"
	"slices"

	"github.com/kcpctl/kcpctl/internal/desired/plan"
)

// Unreachable returns Lost.
func (r *Runtime) Unreachable(context.Context) []plan.Unreachable {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.Lost
}

// LeaveOut makes the next plans leave clusters out, but not the home cluster.
func (r *Runtime) LeaveOut(all []plan.Unreachable) {
	r.mu.Lock()
	defer r.mu.Unlock()
	home := r.topology.Home.Name
	r.left = slices.DeleteFunc(slices.Clone(all), func(u plan.Unreachable) bool { return u.Cluster == home })
}

// requireReachable fails if a cluster cannot be reached and is not left out. The caller holds r.mu.
func (r *Runtime) requireReachable() error {
	for _, l := range r.Lost {
		if _, left := plan.UnreachableIn(r.left, l.Cluster); !left {
			return l.Err
		}
	}
	return nil
}

// remembersLeft reports whether the last run left clusters out and this one does not. The caller holds r.mu.
func (r *Runtime) remembersLeft() bool {
	n := len(r.history)
	return len(r.left) == 0 && n > 0 && len(r.history[n-1].Without) > 0
}
