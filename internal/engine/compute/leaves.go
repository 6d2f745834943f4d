package compute

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
)

// Leaves are objects of an API in a workspace that are scheduled to a cluster.
type Leaves struct {
	Workspace, API string
	Count          int
}

// Lister calls do for every object of an API, in all workspaces: EachObject.
type Lister func(ctx context.Context, gr schema.GroupResource, do func(*unstructured.Unstructured)) error

// Leaves returns what is scheduled to a Cluster, sorted by workspace and API, and why some of it cannot be read.
func (w *Workspace) Leaves(ctx context.Context, cl *api.Cluster, list Lister) (found []Leaves, unread []string) {
	for _, gr := range leafAPIs(cl) {
		counts := map[string]int{} // by logical cluster
		err := list(ctx, gr, func(leaf *unstructured.Unstructured) {
			if leaf.GetLabels()[api.LabelCluster] == cl.Name {
				counts[leaf.GetAnnotations()[kcpapi.AnnotationCluster]]++
			}
		})
		if err != nil {
			unread = append(unread, fmt.Sprintf("%s: %s", gr, run.FirstLine(err)))
		}
		for workspace, n := range counts {
			found = append(found, Leaves{workspace, gr.String(), n})
		}
	}
	names := map[string]bool{}
	for _, l := range found {
		names[l.Workspace] = true
	}
	paths := Paths(ctx, w.Client, slices.Sorted(maps.Keys(names)))
	for i := range found {
		found[i].Workspace = paths[found[i].Workspace]
	}
	slices.SortFunc(found, func(a, b Leaves) int {
		return cmp.Or(cmp.Compare(a.Workspace, b.Workspace), cmp.Compare(a.API, b.API))
	})
	return found, gather.Messages(unread)
}

// leafAPIs returns the APIs whose objects can be leaves: the APIs that are or were published, and the APIs of kcp
// itself that follow workloads.
func leafAPIs(cl *api.Cluster) (out []schema.GroupResource) {
	for _, a := range cl.Status.APIs {
		if a.State != api.APIIgnored {
			out = append(out, a.GroupResource())
		}
	}
	for _, r := range api.Dependencies() {
		if !slices.Contains(out, r.GroupResource()) {
			out = append(out, r.GroupResource())
		}
	}
	return out
}
