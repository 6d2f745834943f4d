package compute

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/poll"
)

// drainInterval is the time between two looks at a cluster that is drained.
const drainInterval = time.Second

// Drain requests from the controller to move what is scheduled to a cordoned cluster, and waits until nothing is, or
// until the context ends. It reports what is left when it changes.
func (w *Workspace) Drain(ctx context.Context, name string, report func(left string)) error {
	if err := w.annotate(ctx, name, api.AnnotationDrain, "true"); err != nil {
		return err
	}
	brief := func(left string) {
		first, _, _ := strings.Cut(left, ". ")
		report(first)
	}
	err := poll.Until(ctx, drainInterval, brief, func() (string, error) { return w.left(ctx, name) })
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return clierr.New(clierr.NotReady,
			"rerun the command to continue, or run kcpctl cluster uncordon "+name+" to end the drain",
			"cluster %q: %w", name, err)
	}
	return err
}

// left returns what is still scheduled to a cluster, as the controller says. It is empty if nothing is.
func (w *Workspace) left(ctx context.Context, name string) (string, error) {
	cl, err := w.Cluster(ctx, name)
	switch {
	case err != nil && ctx.Err() == nil:
		return poll.Reason(err), nil // kcp may answer again
	case err != nil:
		return "", ctx.Err()
	case cl == nil:
		return "", clierr.New(clierr.Conflict, "see kcpctl cluster list",
			"cluster %q was removed while it was drained", name)
	case !cl.Draining():
		return "", clierr.New(clierr.Conflict, "rerun the command",
			"cluster %q was uncordoned while it was drained", name)
	}
	s := ConditionOf(cl, api.ConditionSchedulable)
	switch {
	case s.ObservedGeneration == cl.Generation && s.Reason == api.ReasonDrained:
		return "", nil
	case s.ObservedGeneration == cl.Generation && (s.Reason == api.ReasonDraining || s.Reason == api.ReasonRemoving):
		return cmp.Or(s.Message, s.Reason), nil
	}
	return "waits for the controller. If it does not run, see kcpctl status", nil
}

// GiveUp requests from the controller not to wait, when the Cluster is deleted, for what is scheduled to it.
func (w *Workspace) GiveUp(ctx context.Context, name string) error {
	return w.annotate(ctx, name, api.AnnotationForceRemoval, "true")
}
