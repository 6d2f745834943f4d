package workspace

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/kcp"
	"github.com/kcpctl/kcpctl/internal/plan"
	"github.com/kcpctl/kcpctl/internal/record"
	"github.com/kcpctl/kcpctl/internal/render"
	"github.com/kcpctl/kcpctl/internal/run"
	"github.com/kcpctl/kcpctl/internal/testutil/pkitest"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// fakeCluster is a physical cluster that keeps what is applied.
type fakeCluster struct {
	objects map[string]*unstructured.Unstructured
	// broken is why it does not answer.
	broken error
	issued int
	// fits is the kubeconfig that can still be used.
	fits string
}

func name(p kcp.Place) string { return p.Kind + "/" + p.Name }

func (f *fakeCluster) Object(_ context.Context, p kcp.Place) (*unstructured.Unstructured, error) {
	return f.objects[name(p)].DeepCopy(), f.broken
}

func (f *fakeCluster) ApplyObject(_ context.Context, p kcp.Place, o *unstructured.Unstructured, dryRun, _ bool) (*unstructured.Unstructured, error) {
	if f.broken != nil {
		return nil, f.broken
	}
	out := o.DeepCopy()
	out.SetUID("uid")
	if !dryRun {
		f.objects[name(p)] = out
	}
	return out, nil
}

func (f *fakeCluster) DeleteObject(_ context.Context, p kcp.Place, _ *unstructured.Unstructured) error {
	delete(f.objects, name(p))
	return f.broken
}

func (f *fakeCluster) Issue(_ context.Context, namespace, account string, _ time.Duration) ([]byte, error) {
	f.issued++
	f.fits = fmt.Sprintf("%s/%s %d", namespace, account, f.issued)
	return []byte(f.fits), f.broken
}

func (f *fakeCluster) Fits(_ context.Context, kubeconfig []byte, _, _ string) bool {
	return f.fits != "" && string(kubeconfig) == f.fits
}

// newPhysical returns a setup with a physical cluster, and its objects: those on the cluster, and all others.
func newPhysical(t *testing.T) (s *objects, f *fakeCluster, onCluster, others []render.Object) {
	t.Helper()
	top := topologytest.Build(t, topologytest.Header+"spec:\n  workloads: {clusters: [{name: c1}]}\n")
	state := pkitest.Issue(t, top, time.Now())
	all, err := render.Objects(top, state)
	require.NoError(t, err)
	for _, o := range all {
		if _, ok := topology.IsPhysical(o.Workspace); ok {
			onCluster = append(onCluster, o)
		} else {
			others = append(others, o)
		}
	}
	f = &fakeCluster{objects: map[string]*unstructured.Unstructured{}}
	s = &objects{topology: top, installations: []string{state.Installation.ID}, open: func(v1alpha1.WorkloadCluster) (Physical, error) { return f, nil }}
	return s, f, onCluster, others
}

func actions(p *plan.Plan) (out []string) {
	for _, it := range p.Items {
		out = append(out, string(it.Action)+" "+it.Kind)
	}
	return out
}

func TestObjectsOnPhysicalClusters(t *testing.T) {
	s, f, wanted, _ := newPhysical(t)
	mustPlan := func(wanted []render.Object, known []record.Placed) *plan.Plan {
		t.Helper()
		p, err := s.planner(false).plan(t.Context(), wanted, known, run.PlanOptions{})
		require.NoError(t, err)
		require.Empty(t, p.Conflicts)
		return p
	}
	p := mustPlan(wanted, nil)
	require.Equal(t, []string{"create Namespace", "create ServiceAccount", "create ClusterRole", "create ClusterRoleBinding"}, actions(p))
	require.NoError(t, s.apply(t.Context(), p.Items, false, func(string) {}))
	require.Len(t, f.objects, 4)

	p = mustPlan(wanted, nil)
	require.Equal(t, 4, p.Count(plan.Unchanged), actions(p))

	r := &record.Record{}
	r.SetPlaced(p, false)
	require.Len(t, r.Placed, 3, "setups share the namespace")

	f.broken = errors.New("connection refused")
	p = mustPlan(wanted, r.Placed)
	require.Equal(t, 4, p.Count(plan.Unknown), "a cluster that does not answer does not prevent other changes")
	require.Equal(t, 3, mustPlan(nil, r.Placed).Count(plan.Keep))
	err := s.deleteOne(t.Context(), plan.Item{Ref: r.Placed[0].Ref(), Action: plan.Delete})
	require.Contains(t, clierr.Hint(err), "remove it from spec.workloads.clusters")

	f.broken = nil
	p = mustPlan(nil, r.Placed)
	require.Equal(t, 3, p.Count(plan.Delete), actions(p))
	require.NoError(t, s.delete(t.Context(), p.Items))
	require.Equal(t, []string{"Namespace/kcpctl-syncer"}, slices.Collect(func(yield func(string) bool) {
		for n := range f.objects {
			yield(n)
		}
	}))

	s.topology = topologytest.Build(t, topologytest.Header)
	require.Equal(t, 3, mustPlan(nil, r.Placed).Count(plan.Keep), "a cluster that the setup no longer has")

	for _, o := range wanted {
		f.objects[name(placeOf(o.Ref()))] = o.Unstructured
	}
	s.removed = map[string]v1alpha1.WorkloadCluster{"c1": {Name: "c1"}}
	p = mustPlan(nil, r.Placed)
	require.Equal(t, 3, p.Count(plan.Delete), "a run that removes the cluster")
	r.SetPlaced(p, true)
	require.Empty(t, r.Placed, "a limited run forgets what it deletes")
}

func TestCredentialsAreIssuedWhenTheyAreApplied(t *testing.T) {
	s, f, _, others := newPhysical(t)
	i := slices.IndexFunc(others, func(o render.Object) bool { return o.GetKind() == "Secret" && o.Workspace == "root:compute" })
	require.GreaterOrEqual(t, i, 0)
	want := others[i].Unstructured
	content := func(live *unstructured.Unstructured, issue bool) (*unstructured.Unstructured, string) {
		t.Helper()
		out, err := s.withCredential(t.Context(), live, want, issue)
		require.NoError(t, err)
		text, _, _ := unstructured.NestedString(out.Object, "data", "kubeconfig")
		raw, err := base64.StdEncoding.DecodeString(text)
		require.NoError(t, err)
		return out, string(raw)
	}
	_, text := content(nil, false)
	require.Equal(t, issuing, text)
	require.Zero(t, f.issued, "a plan issues nothing")

	live, text := content(nil, true)
	require.Equal(t, "kcpctl-syncer/demo-cluster-c1 1", text)
	again, text := content(live, true)
	require.Equal(t, "kcpctl-syncer/demo-cluster-c1 1", text, "it still fits")
	require.Equal(t, live, again)

	f.fits = ""
	_, text = content(live, false)
	require.Equal(t, issuing, text, "the plan shows that it is renewed")
	_, text = content(live, true)
	require.Equal(t, "kcpctl-syncer/demo-cluster-c1 2", text)
}
