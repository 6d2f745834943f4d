package workspace

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// holders are the kinds of objects that data is lost with.
var holders = []schema.GroupKind{
	// kcp deletes the logical cluster with everything in it (kcp: pkg/reconciler/core/logicalclusterdeletion).
	kcpapi.Workspace.GroupKind(),
	// kcp deletes all objects of the bound APIs in the workspace (kcp: pkg/reconciler/apis/apibindingdeletion,
	// deleteAllCRs).
	kcpapi.APIBinding.GroupKind(),
	// It has the identity under which the objects of its APIs are stored in all workspaces that bind it.
	kcpapi.APIExport.GroupKind(),
	// All its objects are deleted with it.
	kind.CustomResourceDefinition.GroupKind(),
}

// HoldsData reports whether data is lost if an object of a kind is deleted.
func HoldsData(k schema.GroupKind) bool { return slices.Contains(holders, k) }

// prune decides what becomes of objects of previous runs. Objects that hold data are kept, unless their component is in
// data. Other objects in a workspace that is kept are kept, except for the rights of components that the setup no
// longer has: copies of their certificates are still valid. Everything in a workspace that is deleted is deleted with
// it. The others that are unknown are returned unchanged.
func prune(wanted, previous []plan.Item, data []topology.ID) ([]plan.Item, error) {
	var kept, deleted []string
	for i := range previous {
		it := &previous[i]
		if HoldsData(it.GroupKind()) && !slices.Contains(data, it.Component) {
			it.Action = plan.Keep
		}
		if it.GroupKind() == kcpapi.Workspace.GroupKind() {
			if path := it.Workspace + ":" + it.Name; it.Action == plan.Delete {
				deleted = append(deleted, path)
			} else {
				kept = append(kept, path)
			}
		}
	}
	for _, path := range deleted {
		if err := emptyBelow(path, wanted, previous); err != nil {
			return nil, err
		}
	}
	var out []plan.Item
	for _, it := range previous {
		asked := HoldsData(it.GroupKind()) && it.Action == plan.Delete
		switch {
		case within(it.Workspace, deleted) && !asked:
			continue
		case within(it.Workspace, kept) && !asked && !record.Entitles(it.Ref, it.Component):
			it.Action = plan.Keep
		}
		out = append(out, it)
	}
	return out, nil
}

// emptyBelow refuses to delete a workspace if a workspace in it is kept.
func emptyBelow(path string, wanted, previous []plan.Item) error {
	for _, it := range slices.Concat(wanted, previous) {
		if it.GroupKind() == kcpapi.Workspace.GroupKind() && it.Action != plan.Delete &&
			within(it.Workspace, []string{path}) {
			return clierr.New(clierr.Failed, "delete that workspace too, or neither of them",
				"workspace %s cannot be deleted: workspace %s:%s is in it, and stays", path, it.Workspace, it.Name)
		}
	}
	return nil
}

// within reports whether a workspace is one of others, or below one.
func within(path string, others []string) bool {
	return slices.ContainsFunc(others, func(o string) bool { return path == o || strings.HasPrefix(path, o+":") })
}
