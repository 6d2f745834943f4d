package kube

import (
	"context"
	"fmt"

	"github.com/kcpctl/kcpctl/internal/topology"
)

// PurgeData deletes the volumes of a component, which no pod may use any more.
func (r *Runtime) PurgeData(ctx context.Context, id topology.ID) error {
	selector := fmt.Sprintf("%s,%s=%s,%s=%s", r.selector(), topology.LabelComponent, id.Kind(), topology.LabelName, id.Name())
	return r.everywhere(quiet(ctx), func(ctx context.Context, s *site) error {
		claims, err := s.list(ctx, known("PersistentVolumeClaim"), selector)
		if err != nil {
			return err
		}
		return concurrently(ctx, indices(claims), func(ctx context.Context, i int) error {
			return s.delete(ctx, known("PersistentVolumeClaim"), &claims[i])
		})
	})
}
