package workspace_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/runtime/workspace"
	"github.com/kcpctl/kcpctl/internal/testutil/fakekcp"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

const definition = "root:compute/customresourcedefinitions/clusters.workloads.kcp.dev"

// computeIn makes the compute workspace of a kcp a logical cluster, with the CustomResourceDefinition of Cluster in it.
func computeIn(t *testing.T, k *fakekcp.Kcp, cluster, installation string, annotations map[string]string) {
	t.Helper()
	k.PutIn("root/workspaces/compute", &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": map[string]any{"name": "compute"}, "status": map[string]any{"phase": "Ready"},
	}})
	crd, err := api.CRD()
	require.NoError(t, err)
	crd.SetLabels(map[string]string{topology.LabelInstallation: installation})
	all := map[string]string{kcpapi.AnnotationCluster: cluster}
	for key, value := range annotations {
		all[key] = value
	}
	crd.SetAnnotations(all)
	k.PutIn(definition, crd)
}

// The ID of the setup in physical clusters is the first compute workspace. It is recorded by the first run that sees
// it, and stays.
func TestIDOfTheSetupIsRecorded(t *testing.T) {
	inWorld(t, "", func(t *testing.T, w *world) {
		w.mustRun(t)
		w.use(t, "spec:\n  workloads: {}\n")
		w.below.Kcp.Always("GET /clusters/root:compute/apis/apiextensions.k8s.io/v1", fakekcp.Answer{Code: http.StatusOK, Body: map[string]any{
			"resources": []any{map[string]any{"name": "customresourcedefinitions", "kind": "CustomResourceDefinition"}},
		}})
		top := topologytest.Build(t, topologytest.Header+"spec:\n  workloads: {}\n")
		var notes []string
		rt := workspace.Wrap(w.below, top, nil, time.Now, func(note string) { notes = append(notes, note) })
		t.Cleanup(func() { _ = rt.Close() })
		known, err := rt.Record(t.Context())
		require.NoError(t, err)
		require.Empty(t, known.WorkloadsID)
		compared := func() (*plan.Plan, plan.Item) {
			p, _, err := run.Compare(t.Context(), top, rt, time.Now())
			require.NoError(t, err)
			for _, it := range p.Items {
				if it.Kind == "CustomResourceDefinition" {
					return p, it
				}
			}
			t.Fatal("no definition in the plan")
			return nil, plan.Item{}
		}
		id := func(o *unstructured.Unstructured) string { return o.GetAnnotations()[api.AnnotationSetup] }

		created, it := compared()
		require.Equal(t, plan.Create, it.Action)
		require.Empty(t, id(it.Want))

		computeIn(t, w.below.Kcp, "first", known.Installation, nil)
		after := *known
		require.NoError(t, rt.Finish(t.Context(), created, &after, plan.Applied{}))
		require.Equal(t, "first", after.WorkloadsID, "the run that creates the workspace records it")
		require.NoError(t, rt.Finish(t.Context(), &plan.Plan{}, known, plan.Applied{}))
		require.Empty(t, known.WorkloadsID)

		p, it := compared()
		require.True(t, p.Stale, "the ID is something to write for an installation of an earlier release")
		require.Empty(t, id(it.Merged), "the controller takes it from the workspace")
		require.NoError(t, rt.Finish(t.Context(), p, known, plan.Applied{}))
		known, err = rt.Record(t.Context())
		require.NoError(t, err)
		require.Equal(t, "first", known.WorkloadsID)
		p, it = compared()
		require.Empty(t, id(it.Merged), "nothing changes because the ID is known")
		require.False(t, p.Stale)
		require.Empty(t, notes)

		computeIn(t, w.below.Kcp, "second", known.Installation, nil)
		p, it = compared()
		require.Equal(t, plan.Change, it.Action)
		require.Equal(t, "first", id(it.Merged))
		compared()
		require.Len(t, notes, 1, "it is said once")
		require.Contains(t, notes[0], "the compute workspace root:compute is the logical cluster second, and what runs in the physical clusters "+
			"was created from the logical cluster first. first stays the ID of this installation there, so that nothing runs twice.")
		require.NoError(t, rt.Finish(t.Context(), p, known, plan.Applied{}))
		known, err = rt.Record(t.Context())
		require.NoError(t, err)
		require.Equal(t, "first", known.WorkloadsID)

		lost := *known
		lost.WorkloadsID = ""
		require.NoError(t, rt.Finish(t.Context(), &plan.Plan{}, &lost, plan.Applied{}))
		computeIn(t, w.below.Kcp, "second", known.Installation, map[string]string{api.AnnotationSetup: "first"})
		p, it = compared()
		require.Equal(t, "first", id(it.Merged), "without a record, the existing ID stays")
		require.NoError(t, rt.Finish(t.Context(), p, &lost, plan.Applied{}))
		require.Equal(t, "first", lost.WorkloadsID, "and is recorded again")

		w.below.Kcp.PutIn(definition, nil)
		_, it = compared()
		require.Equal(t, plan.Create, it.Action)
		w.below.Kcp.PutIn("root/workspaces/compute", nil)
		compared()
		require.Contains(t, notes[1], "the compute workspace root:compute will be created again")
	})
}
