package integration

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/kcpctl/kcpctl/examples"
	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/test/apiserver"
)

// What Argo CD, Flux or kubectl apply --server-side has applied from rendered manifests, kcpctl up leaves as it is:
// what the API server adds to an object does not make its values differ.
func TestManifestsOfExamplesThatOthersHaveApplied(t *testing.T) {
	apiserver.Need(t)
	for _, name := range examples.Names() {
		t.Run(name, func(t *testing.T) {
			rt, objects := open(t, name)
			applyAs(t, "argocd-controller", objects)
			p, err := rt.Plan(t.Context(), objects, run.PlanOptions{})
			require.NoError(t, err)
			var fields []string
			for _, c := range p.Conflicts {
				fields = append(fields, c.Object+" "+c.Field)
			}
			require.Empty(t, fields)
			require.Equal(t, len(objects), p.Count(plan.Unchanged), p.Summary())
		})
	}
}

// applyAs applies objects as another field manager.
func applyAs(t *testing.T, manager string, objects []render.Object) {
	t.Helper()
	_, client, _ := connect(t)
	for _, k := range kind.Applied {
		for _, o := range objects {
			if o.GroupVersionKind() != k.GroupVersionKind {
				continue
			}
			var at dynamic.ResourceInterface = client.Resource(k.GVR())
			if !k.ClusterScoped {
				at = client.Resource(k.GVR()).Namespace(o.GetNamespace())
			}
			_, err := at.Apply(t.Context(), o.GetName(), o.Unstructured, metav1.ApplyOptions{FieldManager: manager})
			require.NoError(t, err, o.Ref())
		}
	}
}
