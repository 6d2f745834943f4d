package compute

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/client/object"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// Cordon makes a Cluster unschedulable or schedulable. Before that, edit makes the same change in the setup file, under
// the lock. It is nil if nothing changes there.
func (w *Workspace) Cordon(ctx context.Context, lock run.Locker, live *api.Cluster, on bool, edit func() error) error {
	if edit == nil {
		return w.mark(ctx, live.Name, on)
	}
	return run.Locked(ctx, lock, func(ctx context.Context) error {
		if err := edit(); err != nil {
			return err
		}
		if err := w.mark(ctx, live.Name, on); err != nil {
			return clierr.Also(err, "the setup file is changed already: rerun the command to continue")
		}
		return nil
	}, nil)
}

// EndDrain removes the request for a drain from a Cluster.
func (w *Workspace) EndDrain(ctx context.Context, live *api.Cluster) error {
	if _, drain := live.Annotations[api.AnnotationDrain]; !drain {
		return nil
	}
	return w.annotate(ctx, live.Name, api.AnnotationDrain, nil)
}

// mark makes a Cluster unschedulable or schedulable, if it is not. If up has applied the Cluster, mark does it as the
// same field manager: up cannot change back what another one has set.
func (w *Workspace) mark(ctx context.Context, name string, on bool) error {
	live, err := w.Object(ctx, w.cluster(name))
	if err != nil {
		return fmt.Errorf("read Cluster %s in %s: %w", name, w.Path, err)
	}
	if live == nil || isUnschedulable(live) == on {
		return nil
	}
	var value any // none is the default
	if on {
		value = true
	}
	if want := object.Owned(live); want != nil {
		want.SetUID(live.GetUID())
		spec, _ := want.Object["spec"].(map[string]any)
		if delete(spec, "unschedulable"); on && spec != nil {
			spec["unschedulable"] = value
		}
		live, err = w.ApplyObject(ctx, w.cluster(name), want, false, false)
		if err != nil {
			return fmt.Errorf("apply Cluster %s in %s: %w", name, w.Path, err)
		}
		if isUnschedulable(live) == on {
			return nil
		}
	}
	return w.patch(ctx, name, map[string]any{"spec": map[string]any{"unschedulable": value}})
}

func isUnschedulable(cluster *unstructured.Unstructured) bool {
	on, _, _ := unstructured.NestedBool(cluster.Object, "spec", "unschedulable")
	return on
}
