package workspace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/engine/run/agents"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
)

// planner compares objects in workspaces with the live ones, by a dry run of server-side apply.
type planner struct {
	*objects
	force bool
	// workspaces are the Workspace objects that were read, by path. Each is read once.
	workspaces parallel.Memo[string, *unstructured.Unstructured]
}

func (s *objects) planner(force bool) *planner {
	return &planner{objects: s, force: force}
}

// plan compares objects, and finds the objects of previous runs that the setup no longer has.
func (p *planner) plan(ctx context.Context, wanted []render.Object, known []record.Placed,
	o run.PlanOptions) (*plan.Plan, error) {
	items, conflicts := make([]plan.Item, len(wanted)), make([][]plan.Conflict, len(wanted))
	silent := make([]error, len(wanted))
	err := parallel.Each(ctx, parallel.Indices(wanted), func(ctx context.Context, i int) (err error) {
		items[i] = itemOf(wanted[i], plan.Create)
		conflicts[i], err = p.compare(ctx, &items[i])
		switch down := shardDown(items[i].Ref, err); {
		case down:
			items[i], silent[i], err = itemOf(wanted[i], plan.Unknown), err, nil
		case cannotAnswer(items[i].Ref, err) && begun(items[i].Workspace, known):
			items[i].Action, err = plan.Unknown, nil
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	previous, down, err := p.previous(ctx, items, known, o.Orphan)
	if err != nil {
		return nil, err
	}
	gone, err := prune(items, previous, o.PruneData)
	if slices.ContainsFunc(gone, func(it plan.Item) bool { return it.Action == plan.Unknown }) {
		silent = append(silent, down)
	}
	noAnswer := cmp.Or(silent...)
	return &plan.Plan{Items: append(items, gone...), Conflicts: slices.Concat(conflicts...), NoAnswer: noAnswer,
		Stale: noAnswer != nil}, err
}

func itemOf(o render.Object, a plan.Action) plan.Item {
	return plan.Item{
		Ref: o.Ref(), Component: o.Component, Action: a, Want: o.Unstructured,
		Used: o.GetAnnotations()[topology.AnnotationUse] == topology.UseExisting,
	}
}

// compare finds out what an apply would change in an object.
func (p *planner) compare(ctx context.Context, it *plan.Item) ([]plan.Conflict, error) {
	exists, err := p.exists(ctx, it.Workspace)
	if err != nil || !exists {
		return nil, err // everything in a new workspace is created
	}
	if it.Live, err = p.read(ctx, it.Ref); err != nil {
		return nil, err
	}
	if err := it.CheckEnding("", nil); err != nil {
		return nil, err
	}
	if it.Used && it.Live != nil {
		it.Action = plan.Unchanged
		return nil, nil
	}
	if err := p.fixed(it.Ref, it.Live, it.Want); err != nil {
		return nil, err
	}
	want, note, err := p.complete(ctx, it.Live, it.Want, false)
	if err != nil {
		return nil, err
	}
	it.Note = note
	owner := p.foreign(*it)
	fields, err := it.DryRun(func(force bool) (*unstructured.Unstructured, error) {
		return p.applyObject(ctx, it.Ref, want, true, force)
	})
	if it.Live == nil && err != nil {
		waits, failed := p.mayWait(ctx, it.Ref, want, err)
		if failed != nil {
			return nil, failed
		}
		if waits {
			it.Merged, err = nil, nil
		}
	}
	if err != nil {
		return nil, rejected(*it, err)
	}
	if it.Live == nil {
		it.Merged = nil
	}
	return append(owner, it.Settle(fields, p.force)...), nil
}

// complete adds to an object what follows from others: the time of the last restart of its pods, the claims of an
// APIExport, the identity of a physical cluster, or the credential for it. With issue, a credential that is due is
// issued. The note is a message for the user.
func (p *planner) complete(
	ctx context.Context, live, want *unstructured.Unstructured, issue bool,
) (_ *unstructured.Unstructured, note string, _ error) {
	want, note, err := p.withClaims(ctx, live, plan.KeepRestart(want, live))
	if err != nil {
		return nil, "", err
	}
	if want, err = p.withIdentity(ctx, live, want, issue); err != nil {
		return nil, "", err
	}
	want, err = p.withCredential(ctx, live, want, issue)
	return want, note, err
}

// mayWait reports whether a new object may be refused only because something is missing that the run creates first: the
// API of the object, the APIExport of an APIBinding, the type of a Workspace, or the namespace or the
// CustomResourceDefinition on a cluster.
func (p *planner) mayWait(ctx context.Context, ref plan.Ref, want *unstructured.Unstructured, err error) (bool, error) {
	switch {
	case errors.Is(err, kcp.ErrNotServed), topology.IsKubernetes(ref.Workspace) && apierrors.IsNotFound(err):
		return true, nil
	case ref.GroupKind() == kcpapi.APIBinding.GroupKind():
		return apierrors.IsForbidden(err) || apierrors.IsNotFound(err), nil
	case ref.GroupKind() == kcpapi.Workspace.GroupKind() &&
		apierrors.IsForbidden(err): // kcp: pkg/admission/workspacetypeexists
		return p.lacksType(ctx, want)
	}
	return false, nil
}

// lacksType reports whether the type of a Workspace is the one that the controller of spec.workloads creates, and does
// not exist yet.
func (p *planner) lacksType(ctx context.Context, workspace *unstructured.Unstructured) (bool, error) {
	w := p.topology.Setup.Spec.Workloads
	path, _, _ := unstructured.NestedString(workspace.Object, "spec", "type", "path")
	name, _, _ := unstructured.NestedString(workspace.Object, "spec", "type", "name")
	if w == nil || path != w.Workspace || name != w.WorkspaceType {
		return false, nil
	}
	if exists, err := p.exists(ctx, path); err != nil || !exists {
		return err == nil, err
	}
	live, err := p.read(ctx,
		plan.Ref{Workspace: path, GroupVersionKind: kcpapi.WorkspaceType.GroupVersionKind, Name: name})
	return live == nil && err == nil, err
}

// errNotReady means that a workspace exists, and does not show what it has.
var errNotReady = errors.New("is not Ready")

// exists reports whether the workspace at a path exists and is Ready, so that it has objects.
func (p *planner) exists(ctx context.Context, path string) (bool, error) {
	present, err := p.present(ctx, path)
	if errors.Is(err, errNotReady) {
		return false, nil
	}
	return present, err
}

// present reports whether the workspace at a path exists. It fails with errNotReady if that workspace, or one above it,
// is not Ready: then it is not known what is in it.
func (p *planner) present(ctx context.Context, path string) (bool, error) {
	parent, name, below := cutPath(path)
	if topology.IsKubernetes(path) || !below {
		return true, nil
	}
	if above, err := p.present(ctx, parent); err != nil || !above {
		return false, err
	}
	ws, err := p.workspace(ctx, parent, name)
	if err != nil || ws == nil || ws.GetDeletionTimestamp() != nil {
		return false, err
	}
	if reason := kcp.WorkspaceReady(ws); reason != nil {
		return false, fmt.Errorf("workspace %s %w: %w", path, errNotReady, reason)
	}
	return true, nil
}

// workspace returns the Workspace object with a name, or nil.
func (p *planner) workspace(ctx context.Context, parent, name string) (*unstructured.Unstructured, error) {
	o, err := p.workspaces.Get(ctx, parent+":"+name, func(ctx context.Context) (*unstructured.Unstructured, error) {
		return p.client.Object(ctx,
			plan.Ref{Workspace: parent, GroupVersionKind: kcpapi.Workspace.GroupVersionKind, Name: name})
	})
	if err != nil {
		return nil, fmt.Errorf("read Workspace/%s in %s: %w", name, parent, err)
	}
	return o, nil
}

// read returns an object, or nil.
func (p *planner) read(ctx context.Context, ref plan.Ref) (*unstructured.Unstructured, error) {
	if ref.GroupKind() == kcpapi.Workspace.GroupKind() {
		o, err := p.workspace(ctx, ref.Workspace, ref.Name)
		return o.DeepCopy(), err
	}
	o, err := p.object(ctx, ref)
	if topology.IsKubernetes(ref.Workspace) && apierrors.IsForbidden(err) {
		return nil, clierr.New(clierr.Failed,
			"ask an administrator of the cluster for the permissions, or choose another context",
			"read %s: %w", ref, err)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", ref, err)
	}
	return o, nil
}

// previous returns the objects of previous runs that are no longer wanted and still belong to the installation. Those
// in a workspace that does not answer are unknown, and down is why: the record keeps them, and a later run decides
// about them. Objects of orphans on a cluster that the setup no longer has are forgotten.
func (p *planner) previous(ctx context.Context, wanted []plan.Item, known []record.Placed, orphans []topology.ID) (
	out []plan.Item, down, failed error) {
	want := map[plan.Ref]bool{}
	for _, it := range wanted {
		it.Version = ""
		want[it.Ref] = true
	}
	found, silent := make([]*plan.Item, len(known)), make([]error, len(known))
	failed = parallel.Each(ctx, parallel.Indices(known), func(ctx context.Context, i int) error {
		ref := known[i].Ref()
		versionless := ref
		versionless.Version = ""
		if want[versionless] {
			return nil
		}
		live, err := p.placed(ctx, ref)
		it := &plan.Item{Ref: ref, Component: known[i].Component, Action: plan.Delete, Live: live}
		switch {
		case errors.Is(err, errNoCluster),
			errors.Is(err, errNoServiceCluster) && slices.Contains(orphans, known[i].Component):
			return nil // its objects are not deleted, and are forgotten
		case errors.Is(err, errNotReady), !topology.IsKubernetes(ref.Workspace) && shardDown(ref, err):
			it.Action, silent[i] = plan.Unknown, err
		case cannotAnswer(ref, err) &&
			!isService(ref.Workspace): // an agent is removed with everything that it keeps, or not at all
			it.Action = plan.Keep
		case errors.Is(err, errNoServiceCluster):
			return err
		case cannotAnswer(ref, err), errors.As(err, new(configError)) && isService(ref.Workspace):
			return clierr.Also(err, fmt.Sprintf("if the cluster is lost for good, remove it from spec.clusters, too, "+
				"and run kcpctl up --%s %s", agents.FlagOrphan, known[i].Component))
		case err != nil:
			return err
		case live == nil || !p.owns(live) || live.GetDeletionTimestamp() != nil:
			return nil
		}
		found[i] = it
		return nil
	})
	for _, it := range found {
		if it != nil {
			out = append(out, *it)
		}
	}
	return out, cmp.Or(silent...), failed
}

// placed returns an object of a previous run, or nil if it does not exist, or its workspace does not.
func (p *planner) placed(ctx context.Context, ref plan.Ref) (*unstructured.Unstructured, error) {
	if present, err := p.present(ctx, ref.Workspace); err != nil || !present {
		return nil, err
	}
	return p.read(ctx, ref)
}

// cutPath divides the path of a workspace into the path of its parent and its name. below is false for a path without a
// parent.
func cutPath(path string) (parent, name string, below bool) {
	i := strings.LastIndex(path, ":")
	if i < 0 {
		return "", path, false
	}
	return path[:i], path[i+1:], true
}
