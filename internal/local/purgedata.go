package local

import (
	"context"
	"os"

	"github.com/kcpctl/kcpctl/internal/pki"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// PurgeData deletes the folder of a component, whose process has ended.
func (r *Runtime) PurgeData(_ context.Context, id topology.ID) error {
	return writeError(os.RemoveAll(r.layout.path("components", topology.Object(r.layout.Setup, id.Kind(), id.Name()))))
}

// Forget deletes certificates from the store.
func (s store) Forget(ctx context.Context, keys []pki.LeafKey) error {
	return writeError(s.Store.Forget(ctx, keys))
}
