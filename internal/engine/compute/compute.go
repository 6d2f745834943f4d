// Package compute works in the compute workspace of a running kcp: it cordons and drains Clusters, and reads what is
// scheduled to them, and why.
package compute

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
)

// Client has the methods of a client for kcp that the package needs.
type Client interface {
	Object(ctx context.Context, p plan.Ref) (*unstructured.Unstructured, error)
	Objects(ctx context.Context, p plan.Ref, selector string) ([]unstructured.Unstructured, error)
	ApplyObject(ctx context.Context, p plan.Ref, o *unstructured.Unstructured,
		dryRun, force bool) (*unstructured.Unstructured, error)
	PatchObject(ctx context.Context, p plan.Ref, patch map[string]any) (*unstructured.Unstructured, error)
	Resources(ctx context.Context, workspace string, gv schema.GroupVersion) ([]metav1.APIResource, error)
}

// Workspace is the compute workspace of a setup that runs.
type Workspace struct {
	Client
	// Path is its path, and APIs are the APIs of the setup file.
	Path     string
	APIs     []string
	Topology *topology.Topology
	Dialer   kcp.Dialer
	State    *pki.State
	Now      func() time.Time
}

// Connect connects to the compute workspace of a setup with workloads, through a front-proxy on a cluster that is not
// lost. It sends no request.
func Connect(
	d kcp.Dialer, t *topology.Topology, lost []plan.Unreachable, state *pki.State, now func() time.Time,
) (*Workspace, error) {
	client, err := run.ConnectFrontProxy(d, t, lost, state, now())
	if err != nil {
		return nil, err
	}
	of := t.Setup.Spec.Workloads
	return &Workspace{
		Client: client, Path: of.Workspace, APIs: of.APIs, Topology: t, Dialer: d, State: state, Now: now,
	}, nil
}

// cluster is where a Cluster is.
func (w *Workspace) cluster(name string) plan.Ref {
	return plan.Ref{Workspace: w.Path, GroupVersionKind: api.ClusterGVK(), Name: name}
}

// Clusters returns all Clusters, sorted by name.
func (w *Workspace) Clusters(ctx context.Context) ([]*api.Cluster, error) {
	all, err := w.Objects(ctx, w.cluster(""), "")
	if err != nil {
		return nil, clierr.New(clierr.Failed, "see kcpctl status", "%w", err)
	}
	var out []*api.Cluster
	for i := range all {
		cl, err := api.ClusterOf(&all[i])
		if err != nil {
			return nil, err
		}
		out = append(out, cl)
	}
	slices.SortFunc(out, func(a, b *api.Cluster) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

// Cluster returns a Cluster, or nil if it does not exist.
func (w *Workspace) Cluster(ctx context.Context, name string) (*api.Cluster, error) {
	o, err := w.Object(ctx, w.cluster(name))
	if err != nil {
		return nil, clierr.New(clierr.Failed, "see kcpctl status", "read Cluster %s in %s: %w", name, w.Path, err)
	}
	if o == nil {
		return nil, nil
	}
	return api.ClusterOf(o)
}

// patch changes a Cluster.
func (w *Workspace) patch(ctx context.Context, name string, patch map[string]any) error {
	if _, err := w.PatchObject(ctx, w.cluster(name), patch); err != nil {
		return fmt.Errorf("change Cluster %s in %s: %w", name, w.Path, err)
	}
	return nil
}

// annotate sets an annotation of a Cluster. Nil removes it.
func (w *Workspace) annotate(ctx context.Context, cluster, annotation string, value any) error {
	return w.patch(ctx, cluster,
		map[string]any{"metadata": map[string]any{"annotations": map[string]any{annotation: value}}})
}

// Paths returns the paths of the workspaces of logical clusters, by name. If a path does not exist, or cannot be
// read, the name is used. The group of kcpctl has all permissions in all workspaces (kcp:
// pkg/authorization/bootstrap/policy.go, SystemKcpAdminGroup).
func Paths(ctx context.Context, c Client, clusters []string) map[string]string {
	paths := parallel.Map(parallel.Limit, clusters, func(name string) string {
		o, err := c.Object(ctx, kcp.LogicalClusterRef(name))
		if err != nil || o == nil {
			return name
		}
		return cmp.Or(o.GetAnnotations()[kcpapi.AnnotationPath], name)
	})
	out := map[string]string{}
	for i, name := range clusters {
		out[name] = paths[i]
	}
	return out
}
