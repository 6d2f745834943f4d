package roots

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/api/kinds"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/placement/splitter"
)

func refOf(i item) splitter.Ref { return splitter.Ref{GroupResource: i.GroupResource(), Name: i.Name} }

// protect writes the leaves of what has to be in a cluster before the pods of a workload, see kinds.IsFirst, before the
// workload gets its first leaf there: the syncer of the cluster applies them in this order. The decision about the
// workload is known. If something that the workload needs there cannot have a leaf, it returns the reason: the workload
// waits. It returns when to look again if that is not possible yet, or zero.
func (f *followers) protect(ctx context.Context, i item, changes splitter.Changes,
	leaves map[string]*unstructured.Unstructured) (r refusal, again time.Duration, _ error) {
	var fresh []string
	for _, leaf := range changes.Apply {
		if cluster := leaf.GetLabels()[api.LabelCluster]; leaves[cluster] == nil {
			fresh = append(fresh, cluster)
		}
	}
	if len(fresh) == 0 || splitter.CanFollow(i.GroupResource()) || !f.guarded(i) {
		return r, 0, nil
	}
	sc := f.look(namespace(i.Key))
	needs := splitter.FindNeeds(sc.workloads, sc.objects)
	for _, ref := range sc.refs() { // sorted: the same refusal is returned each time
		root := sc.roots[ref]
		if !kinds.IsFirst(ref.GroupResource, ref.Name) {
			continue
		}
		if !sc.complete[root.Endpoint] && splitter.SelectsNamespaces(root.Unstructured) {
			return r, incompleteInterval, nil
		}
		refused, err := f.placeNeeded(ctx, sc, ref, needs[ref])
		if err != nil {
			return r, 0, err
		}
		needed := slices.ContainsFunc(fresh, func(c string) bool {
			return slices.Contains(needs[ref][c], refOf(i).String())
		})
		if refused != "" && needed && r == "" {
			r = refusal(fmt.Sprintf("it waits for %s, which protects its pods: %s", ref, refused))
		}
	}
	return r, 0, nil
}
