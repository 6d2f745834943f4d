package kcp

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/client/object"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/mergepatch"
	"github.com/kcpctl/kcpctl/internal/kit/poll"
)

// The annotations of a Workspace with the shard of its logical cluster: the name since kcp v0.32, and a hash of the
// name, which does not change when the logical cluster moves to another shard.
const (
	onShardAnnotation     = "core.kcp.io/shard"
	onShardHashAnnotation = "internal.tenancy.kcp.io/shard"
)

// tenancyExport is the APIExport of Workspaces.
const tenancyExport = "tenancy.kcp.io"

// exportIdentity returns the identity of an APIExport. It fails if the APIExport has no identity yet.
func exportIdentity(ctx context.Context, workspace dynamic.Interface, export string) (string, error) {
	o, err := workspace.Resource(exportResource).Get(ctx, export, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	hash, _, _ := unstructured.NestedString(o.Object, "status", "identityHash")
	if hash == "" {
		return "", fmt.Errorf("APIExport %s has no identity yet", export)
	}
	return hash, nil
}

// WorkspaceIdentity returns the identity of the Workspaces' API, which is needed to list them across logical clusters.
// The client's server is the root shard.
func (c *Client) WorkspaceIdentity(ctx context.Context) (string, error) {
	return exportIdentity(ctx, c.workspace(RootWorkspace), tenancyExport)
}

// Workspace is a Workspace object, which can be on another shard than its logical cluster.
type Workspace struct {
	// Path is the logical cluster of the object and its name, such as "root:team".
	Path string
	// Deleting means that it is being deleted.
	Deleting bool
}

func (w Workspace) String() string { return w.Path }

// Workspaces returns the workspaces whose logical clusters are on a shard, from the Workspace objects on the client's
// server, sorted by path. It needs system:masters.
func (c *Client) Workspaces(ctx context.Context, identity, shard string) ([]Workspace, error) {
	r := workspaceResource
	r.Resource += ":" + identity
	var out []Workspace
	err := c.eachOf(ctx, r, func(o *unstructured.Unstructured) error {
		if isOnShard(o, shard) {
			out = append(out, Workspace{o.GetAnnotations()[kcpapi.AnnotationCluster] + ":" + o.GetName(),
				o.GetDeletionTimestamp() != nil})
		}
		return nil
	})
	slices.SortFunc(out, func(a, b Workspace) int { return strings.Compare(a.Path, b.Path) })
	return out, err
}

// Selectors returns the location selectors of the Workspace objects on the client's server: the shards that the
// workspaces may be on. It needs system:masters.
func (c *Client) Selectors(ctx context.Context, identity string) (map[WorkspaceRef]labels.Selector, error) {
	r := workspaceResource
	r.Resource += ":" + identity
	out := map[WorkspaceRef]labels.Selector{}
	err := c.eachOf(ctx, r, func(o *unstructured.Unstructured) error {
		ref := WorkspaceRef{o.GetAnnotations()[kcpapi.AnnotationCluster], o.GetName()}
		spec, found, err := unstructured.NestedMap(o.Object, "spec", "location", "selector")
		if err != nil || !found {
			out[ref] = labels.Everything()
			return err
		}
		var selector metav1.LabelSelector
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(spec, &selector); err != nil {
			return fmt.Errorf("location selector of workspace %s:%s: %w", ref.Cluster, ref.Name, err)
		}
		out[ref], err = metav1.LabelSelectorAsSelector(&selector)
		return err
	})
	return out, err
}

// DeletedWorkspaces returns the paths of those Workspaces that are being deleted. kcp reads the shard before it removes
// the Workspace's finalizer: without the shard the Workspace is not deleted (kcp:
// pkg/reconciler/tenancy/workspace/workspace_reconcile_deletion.go).
func (c *Client) DeletedWorkspaces(ctx context.Context, identity, shard string) ([]string, error) {
	all, err := c.Workspaces(ctx, identity, shard)
	var out []string
	for _, w := range all {
		if w.Deleting {
			out = append(out, w.Path)
		}
	}
	return out, err
}

// isOnShard reports whether the logical cluster of a Workspace is on a shard.
func isOnShard(workspace *unstructured.Unstructured, shard string) bool {
	if name, ok := workspace.GetAnnotations()[onShardAnnotation]; ok {
		return name == shard
	}
	return workspace.GetAnnotations()[onShardHashAnnotation] == shardHash(shard)
}

// shardHash returns the beginning of the hash of a shard's name in base 36, with a zero for each leading zero byte.
func shardHash(shard string) string {
	sum := sha256.Sum224([]byte(shard))
	zeros := 0
	for zeros < len(sum) && sum[zeros] == 0 {
		zeros++
	}
	return (strings.Repeat("0", zeros) + new(big.Int).SetBytes(sum[:]).Text(36))[:8]
}

const (
	// rescheduleAfter is how long the scheduler leaves a workspace alone before it is made to try again.
	rescheduleAfter = time.Second
	// scheduledAnnotation of a workspace is changed, so that the scheduler tries again.
	scheduledAnnotation = "kcpctl.dev/scheduling-requested-at"
	phaseScheduling     = "Scheduling"
	phaseInitializing   = "Initializing"
)

// WorkspaceReady returns what a workspace that is not ready waits for.
func WorkspaceReady(w *unstructured.Unstructured) error {
	phase := phaseOf(w)
	if phase == "Ready" {
		return nil
	}
	return errors.New(withReason(strings.ToLower(cmp.Or(phase, "not scheduled")), w))
}

// WorkspaceShard returns the shard that a workspace was scheduled to, also if it is not one of shards. Before kcp
// v0.32, only one of shards is found. It is empty if the shard is not known.
func WorkspaceShard(workspace *unstructured.Unstructured, shards []string) string {
	if name := workspace.GetAnnotations()[onShardAnnotation]; name != "" {
		return name
	}
	i := slices.IndexFunc(shards, func(s string) bool { return isOnShard(workspace, s) })
	if i < 0 {
		return ""
	}
	return shards[i]
}

// AwaitWorkspace waits until a workspace is Ready or ctx ends, and reports what it waits for.
func (c *Client) AwaitWorkspace(ctx context.Context, parent, name string, report func(reason string)) error {
	return awaitReady(ctx, c.workspace(parent).Resource(workspaceResource), name, 0, report)
}

// errGivenUp is the cause of a workspace that kcp does not initialize any further.
var errGivenUp = errors.New("kcp no longer initializes it")

// awaitReady waits until a workspace is Ready. Right after a start the scheduler fails, because workspace types and
// shards reach it through the cache. It would try again after 5, 10, 20 ms and so on, up to 5 s and more, but it also
// tries again when the workspace changes (kcp: pkg/reconciler/tenancy/workspace/workspace_controller.go). So an
// annotation of a workspace is changed if the scheduler has left it alone for a while. With a patience, it gives up a
// workspace that does not change for that time while it is initialized.
func awaitReady(
	ctx context.Context, workspaces dynamic.ResourceInterface, name string, patience time.Duration, report func(string),
) error {
	idle := stillness{limit: rescheduleAfter}
	stuck := stillness{limit: patience}
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	return poll.UntilWorks(ctx, pollInterval, report, func() error {
		got, err := workspaces.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if phaseOf(got) == phaseScheduling && idle.reached(got.GetResourceVersion()) {
			now := map[string]any{scheduledAnnotation: time.Now().UTC().Format(time.RFC3339Nano)}
			_, _ = mergepatch.Send(ctx, workspaces, object.FieldManager, name, "",
				map[string]any{"metadata": map[string]any{"annotations": now}})
		}
		if patience > 0 && phaseOf(got) == phaseInitializing && stuck.reached(got.GetResourceVersion()) {
			giveUp(errGivenUp)
		}
		return WorkspaceReady(got)
	})
}

// stillness measures how long an object does not change. The limit doubles each time that it is reached: a change of
// the object at the wrong moment makes the scheduler fail with a conflict, and a slow scheduler must not fail forever.
type stillness struct {
	limit   time.Duration
	version string
	since   time.Time
}

func (s *stillness) reached(version string) bool {
	now := time.Now()
	if version != s.version || s.since.IsZero() {
		s.version = version
		s.since = now
		return false
	}
	if now.Sub(s.since) < s.limit {
		return false
	}
	s.since = now
	s.limit = 2 * s.limit
	return true
}

// BindRoles binds cluster roles to a group in a workspace: one ClusterRoleBinding <name>-<role> for each, with labels.
// It also binds the role that lets the group enter the workspace.
func (c *Client) BindRoles(ctx context.Context, path, name, group string, roles []string,
	labels map[string]string) error {
	bindings := c.workspace(path).Resource(kind.ClusterRoleBinding.GVR())
	for _, role := range topology.WithAccess(roles) {
		b := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "rbac.authorization.k8s.io/v1",
			"kind":       "ClusterRoleBinding",
			"roleRef":    map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
			"subjects": []any{
				map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group},
			},
		}}
		b.SetName(name + "-" + role)
		b.SetLabels(labels)
		_, err := bindings.Apply(ctx, b.GetName(), b,
			metav1.ApplyOptions{FieldManager: object.FieldManager, Force: true})
		if err != nil {
			return fmt.Errorf("bind cluster role %s in workspace %s: %w", role, path, err)
		}
	}
	return nil
}
