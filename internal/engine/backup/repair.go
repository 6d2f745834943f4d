package backup

import (
	"cmp"
	"context"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/engine/backup/content"
	"github.com/kcpctl/kcpctl/internal/engine/backup/live"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
	"github.com/kcpctl/kcpctl/internal/kit/poll"
)

// Action is what Repair does.
type Action string

// The actions.
const (
	// Adopt creates the Workspace of a logical cluster that has lost it.
	Adopt Action = "create its Workspace again"
	// DeleteOrphan deletes a logical cluster without a Workspace, and everything in it.
	DeleteOrphan Action = "delete the logical cluster"
	// DeleteMissing deletes a Workspace whose logical cluster does not exist.
	DeleteMissing Action = "delete the Workspace"
)

// Of returns the action for something that does not fit together, if the user has chosen one. There is none for a
// logical cluster that two shards have: it is not known which copy is complete.
func (r *Repair) Of(t content.Tear) (Action, bool) {
	for _, a := range r.Actions {
		switch {
		case t.Reason == content.WithoutWorkspace && len(t.Shards) == 1 && (a == Adopt || a == DeleteOrphan),
			t.Reason == content.WithoutCluster && a == DeleteMissing:
			return a, true
		}
	}
	return "", false
}

// Repair repairs what does not fit together in a running installation.
type Repair struct {
	Reader  *live.Reader
	Runtime run.Locker
	Actions []Action
	// Shown are the tears that the user has agreed to repair.
	Shown   []content.Tear
	Observe run.Observer
	Now     func() time.Time

	events
}

// Run repairs what was shown and still does not fit together. After an interruption it can be run again.
func (r *Repair) Run(ctx context.Context) error {
	r.events = events{observe: r.Observe, now: r.Now}
	return run.Locked(ctx, r.Runtime, r.run, nil)
}

func (r *Repair) run(ctx context.Context) error {
	now, err := r.Reader.Find(ctx)
	if err != nil {
		return err
	}
	var agreed []content.Tear
	var refused []error
	for _, t := range now.Tears {
		action, chosen := r.Of(t)
		if chosen && slices.ContainsFunc(r.Shown, func(o content.Tear) bool { return live.Same(t, o) }) {
			agreed = append(agreed, t)
			refused = append(refused, mayRepair(now, t, action))
		}
	}
	if err := parallel.Join(refused); err != nil {
		return err
	}
	for _, t := range agreed {
		action, _ := r.Of(t)
		r.step(t.Path, run.Running, string(action))
		if err := r.repair(ctx, now, t, action); err != nil {
			return r.fail(t.Path, explain(t, err))
		}
		r.step(t.Path, run.Done, "done")
	}
	return nil
}

// mayRepair refuses logical clusters that are not what they seem to be. Nothing was written yet.
func mayRepair(now *live.Reading, t content.Tear, action Action) error {
	if action == DeleteMissing {
		return nil
	}
	l := kcp.LogicalClusterOf(now.Clusters[t.Cluster].Unstructured)
	_, found := now.Clusters[l.Workspace.Cluster]
	switch {
	case l.Migration != "" || l.Moving:
		return clierr.New(clierr.Failed, "run the command again when it has moved; kcpctl move completes its own moves",
			"%s is being moved to another shard; nothing was changed", t.Path)
	case l.Workspace == (kcp.WorkspaceRef{}):
		return clierr.New(clierr.Failed, "look at the owner of its LogicalCluster",
			"%s does not belong to a Workspace; nothing was changed", t.Path)
	case action == Adopt && !found:
		return clierr.New(clierr.Failed, "adopt the workspace above it first, or delete it with --delete-orphans",
			"%s cannot be adopted: the workspace %s, which its Workspace would be in, does not exist; nothing was "+
				"changed", t.Path, l.Workspace.Cluster)
	}
	return nil
}

// explain adds the workspace and, if it is missing, the next step.
func explain(t content.Tear, err error) error {
	code, hint := clierr.Code(err), clierr.Hint(err)
	if apierrors.IsConflict(err) {
		code = clierr.Conflict
	}
	return clierr.New(code, cmp.Or(hint, "correct the cause, and run the command again: it continues"), "%s: %w",
		t.Path, err)
}

func (r *Repair) repair(ctx context.Context, now *live.Reading, t content.Tear, action Action) error {
	cluster := now.Clusters[t.Cluster]
	switch action {
	case Adopt:
		return r.adopt(ctx, now, cluster)
	case DeleteOrphan:
		return r.delete(ctx, t, cluster, kcp.LogicalClusterRef(t.Cluster))
	}
	for at, o := range now.Workspaces {
		if kcp.ClusterOf(o.Unstructured) == t.Cluster {
			return r.delete(ctx, t, o, kcp.WorkspaceRef(at).Ref())
		}
	}
	return nil
}

// adopt creates the Workspace of a logical cluster, and makes it its owner. An interrupted run may have created it.
func (r *Repair) adopt(ctx context.Context, now *live.Reading, cluster live.Object) error {
	l := kcp.LogicalClusterOf(cluster.Unstructured)
	parent := now.Clusters[l.Workspace.Cluster].Client
	workspace, err := parent.Object(ctx, l.Workspace.Ref())
	switch {
	case err != nil:
		return err
	case workspace == nil:
		workspace, err = parent.CreateWorkspaceOf(ctx, cluster.Unstructured, cluster.Shard.ShardName())
		if err != nil {
			return err
		}
	case kcp.ClusterOf(workspace) != l.Name:
		return clierr.New(clierr.Failed, "delete one of the two: this one with --delete-orphans",
			"another Workspace has its name, with another logical cluster")
	}
	return cluster.Client.SetOwner(ctx, cluster.Unstructured, workspace)
}

// delete deletes an object that nothing has changed since it was read, and waits until it is gone.
func (r *Repair) delete(ctx context.Context, t content.Tear, o live.Object, p plan.Ref) error {
	if err := o.Client.DeleteUnchanged(ctx, p, o.Unstructured); err != nil {
		return err
	}
	report := func(reason string) { r.step(t.Path, run.Running, reason) }
	err := poll.Until(ctx, time.Second, report, func() (string, error) {
		now, err := o.Client.Object(ctx, p)
		switch {
		case err != nil:
			return run.FirstLine(err), nil
		case now == nil || now.GetUID() != o.GetUID():
			return "", nil
		}
		return "waiting until kcp has deleted its content", nil
	})
	if err != nil {
		return clierr.New(clierr.NotReady, "run the command again: it continues", "it is still being deleted: %w",
			context.Cause(ctx))
	}
	return nil
}
