package workspace

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// The controller takes the logical cluster of the compute workspace for the ID of the setup in physical clusters. The
// record of the installation keeps the first one: under another ID everything would run twice. The
// CustomResourceDefinition of Cluster is where both are compared, because it is the first object that the controller
// reads. It has the recorded ID only if that differs, so that nothing changes when the ID becomes known.

// isDefinition reports whether an object is the CustomResourceDefinition of Cluster in the compute workspace.
func isDefinition(component topology.ID, o *unstructured.Unstructured) bool {
	return component.Kind() == topology.Workloads && o != nil &&
		o.GroupVersionKind().GroupKind() == definitionKind.GroupKind()
}

// withSetup adds the recorded ID of the setup for a compute workspace that has another one. Without a record, an
// existing ID is kept.
func (s *objects) withSetup(live, want *unstructured.Unstructured) *unstructured.Unstructured {
	if !isDefinition(topology.ID(want.GetAnnotations()[topology.AnnotationComponent]), want) {
		return want
	}
	var is map[string]string
	if live != nil {
		is = live.GetAnnotations()
	}
	id := cmp.Or(s.workloadsID, is[api.AnnotationSetup])
	if id == "" || is[kcpapi.AnnotationCluster] == id && is[api.AnnotationSetup] == "" {
		return want
	}
	out := want.DeepCopy()
	annotations := out.GetAnnotations()
	annotations[api.AnnotationSetup] = id
	out.SetAnnotations(annotations)
	return out
}

// setupIn returns the ID of the setup that the controller takes from the CustomResourceDefinition.
func setupIn(definition *unstructured.Unstructured) string {
	a := definition.GetAnnotations()
	return cmp.Or(a[api.AnnotationSetup], a[kcpapi.AnnotationCluster])
}

// definitionOf returns the item of a plan with the CustomResourceDefinition of Cluster, unless the plan deletes or
// keeps it, or does not know it.
func definitionOf(p *plan.Plan) *plan.Item {
	i := slices.IndexFunc(p.Items,
		func(it plan.Item) bool { return isDefinition(it.Component, it.Want) && it.Action != plan.Unknown })
	if i < 0 {
		return nil
	}
	return &p.Items[i]
}

// setupOf returns the ID of the setup, as far as a plan has seen it.
func setupOf(p *plan.Plan) string {
	if it := definitionOf(p); it != nil && it.Live != nil {
		return setupIn(it.Live)
	}
	return ""
}

// newSetup returns the ID of the setup after a plan was applied. If kcp does not say it, it is for the next run.
func (r *Runtime) newSetup(ctx context.Context, p *plan.Plan) string {
	it := definitionOf(p)
	if it == nil || it.Live != nil {
		return setupOf(p)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, answerTime, fmt.Errorf("no answer after %s", answerTime))
	defer cancel()
	s, err := r.connect(ctx)
	if err != nil {
		return ""
	}
	live, err := s.client.Object(ctx, placeOf(it.Ref))
	if err != nil || live == nil {
		return ""
	}
	return setupIn(live)
}

// sameCompute compares the compute workspace with the recorded one. An ID that is not recorded yet is something to
// write, and another compute workspace is something to know.
func (r *Runtime) sameCompute(p *plan.Plan, recorded string) {
	it := definitionOf(p)
	if it == nil {
		return
	}
	live := ""
	if it.Live != nil {
		live = it.Live.GetAnnotations()[kcpapi.AnnotationCluster]
	}
	if recorded == "" {
		p.Stale = p.Stale || live != ""
		return
	}
	if live == recorded {
		return
	}
	is := "will be created again"
	if live != "" {
		is = fmt.Sprintf("is the logical cluster %s", live)
	}
	message := fmt.Sprintf("the compute workspace %s %s, and what runs in the physical clusters was created from the logical cluster %s. "+
		"%s stays the ID of this installation there, so that nothing runs twice. Objects are updated again when their workspaces have bound the "+
		"APIExports of the new compute workspace, and have the objects; until then what runs stays, and what has no object is kept for an hour, "+
		"volumes always", it.Workspace, is, recorded, recorded)
	r.mu.Lock()
	said := r.replaced == message
	r.replaced = message
	r.mu.Unlock()
	if !said {
		r.notify(message)
	}
}
