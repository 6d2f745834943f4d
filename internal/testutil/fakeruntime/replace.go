package fakeruntime

import (
	"context"

	"github.com/kcpctl/kcpctl/internal/topology"
)

// Replace only notes that it was called.
func (r *Runtime) Replace(ctx context.Context, c *topology.Component) error {
	return r.write(ctx, "Replace "+string(c.ID()))
}
