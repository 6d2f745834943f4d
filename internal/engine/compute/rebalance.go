package compute

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/client/cluster"
	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/workload/apis/negotiate"
	"github.com/kcpctl/kcpctl/internal/workload/placement/roots"
	"github.com/kcpctl/kcpctl/internal/workload/placement/splitter"
)

// Move is a change that a request to rebalance would make.
type Move struct {
	Workspace string `json:"workspace"`
	Namespace string `json:"namespace"`
	Resource  string `json:"resource"`
	Object    string `json:"object"`
	// From has the replicas by cluster before the move, and To after it.
	From map[string]int64 `json:"from"`
	To   map[string]int64 `json:"to"`
}

// Rebalance requests from the controller to divide the replicas of a root, or of all roots if it is nil, by the free
// capacity of the clusters.
func (w *Workspace) Rebalance(ctx context.Context, root *Root) error {
	at := w.ref(kcpapi.APIExport, api.ExportWorkloads)
	switch {
	case root != nil && splitter.Follows(root.Resource, root.Object):
		return clierr.New(clierr.BadInput, "specify a workload that needs it, or none for all workloads",
			"%s %s is not rebalanced: it is on the clusters of the workloads that need it", root.Resource, root.Name)
	case root != nil:
		at = root.Ref
	default:
		if _, err := w.published(ctx); err != nil {
			return err
		}
	}
	id := w.Now().UTC().Format(time.RFC3339Nano) // a value that no earlier request has
	if _, err := w.PatchObject(ctx, at, map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{api.AnnotationRebalanceRequest: id}},
	}); err != nil {
		return fmt.Errorf("annotate %s %s in %s: %w", at.Kind, at.Name, at.Workspace, err)
	}
	return nil
}

// Moves returns what a request to rebalance a root, or all roots if it is nil, would move, sorted by workspace. preview
// computes it: Preview.
func (w *Workspace) Moves(
	ctx context.Context, only *Root, preview func(context.Context, roots.State) ([]roots.Move, error),
) ([]Move, error) {
	state, err := w.state(ctx)
	if err != nil {
		return nil, err
	}
	all, err := preview(ctx, state)
	if err != nil {
		return nil, clierr.New(clierr.Failed, "make all shards reachable, or use a longer --timeout", "%w", err)
	}
	all = slices.DeleteFunc(all, func(m roots.Move) bool {
		return only != nil && (m.Cluster != only.Object.GetAnnotations()[kcpapi.AnnotationCluster] ||
			m.GroupResource() != only.Resource || m.Namespace != only.Object.GetNamespace() || m.Name != only.Name)
	})
	clusters := map[string]bool{}
	for _, m := range all {
		clusters[m.Cluster] = true
	}
	paths := Paths(ctx, w.Client, slices.Sorted(maps.Keys(clusters)))
	var out []Move
	for _, m := range all {
		out = append(out, Move{paths[m.Cluster], m.Namespace, m.GroupResource().String(), m.Name, m.From, m.To})
	}
	slices.SortStableFunc(out, func(a, b Move) int {
		return cmp.Or(cmp.Compare(a.Workspace, b.Workspace), cmp.Compare(a.Namespace, b.Namespace))
	})
	return out, nil
}

// state returns what the controller bases decisions on.
func (w *Workspace) state(ctx context.Context) (state roots.State, err error) {
	in, err := w.published(ctx)
	if err != nil {
		return state, err
	}
	live, err := negotiate.Published(in.Export, in.Schemas)
	if err != nil {
		return state, err
	}
	state.Published = &roots.Published{}
	for _, gvr := range live {
		if slices.ContainsFunc(w.APIs, func(a string) bool { return schema.ParseGroupResource(a) == gvr.GroupResource() }) {
			state.Published.Scheduled = append(state.Published.Scheduled, gvr)
		} else {
			state.Published.Removed = append(state.Published.Removed, gvr)
		}
	}
	state.Clusters, err = w.Clusters(ctx)
	return state, err
}

// Preview computes what would move, from the objects of all workspaces.
func (w *Workspace) Preview(ctx context.Context, state roots.State, timeout time.Duration) ([]roots.Move, error) {
	proxy, ok := w.Client.(*kcp.Client)
	if !ok {
		return nil, fmt.Errorf("no client for a front-proxy: %T", w.Client)
	}
	endpoints, err := w.endpoints(ctx)
	if err != nil {
		return nil, err
	}
	var urls []string
	route := &kcp.Router{Default: proxy, Prefixes: map[string]*kcp.Client{}}
	for _, e := range endpoints {
		urls = append(urls, e.URL.String())
		client, err := w.connect(e)
		if err != nil {
			return nil, err
		}
		defer client.Close()
		route.Prefixes[e.URL.String()] = client
	}
	return roots.Preview(cluster.Quiet(ctx),
		roots.Options{KCP: route.Config(), Workspace: w.Path, Now: w.Now}, state, urls, timeout)
}
