package deploy_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/engine/check"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeruntime"
	"github.com/kcpctl/kcpctl/internal/testutil/runtest"
)

// checked lets a run check a cluster, and notes which checks it runs: a quick one answers quick, a thorough one
// thorough.
func (w *world) checked(quick, thorough error) *[]string {
	var calls []string
	w.Runtime.Place = check.Facts{Clusters: []check.Cluster{&fakeruntime.Cluster{
		Permissions: func([]render.Object) error {
			calls = append(calls, "quick")
			return quick
		},
		Admission: func(objects []render.Object) error {
			call := "thorough"
			if len(objects) == 1 {
				call += " " + objects[0].GetKind() + "/" + objects[0].GetName()
			}
			calls = append(calls, call)
			return thorough
		},
		Nodes: map[string]int{"amd64": 1, "riscv64": 1},
	}}}
	return &calls
}

// A run checks everything in brief before it writes, and what it changes thoroughly.
func TestPreflight(t *testing.T) {
	boom, bang := clierr.New(clierr.Failed, "do something", "boom"), clierr.New(clierr.Failed, "do another thing", "bang")
	t.Run("the first run", func(t *testing.T) {
		inWorld(t, runtest.Minimal, func(t *testing.T, w *world) {
			calls := w.checked(nil, nil)
			w.MustRun(t)
			require.Equal(t, []string{"quick", "thorough"}, *calls)
			require.Contains(t, w.Of("")[0], "KCP015: some nodes are riscv64")
		})
	})
	t.Run("nothing to do", func(t *testing.T) {
		inWorld(t, runtest.Minimal, func(t *testing.T, w *world) {
			w.MustRun(t)
			calls := w.checked(nil, boom)
			w.MustRun(t)
			require.Equal(t, []string{"quick"}, *calls)
		})
	})
	t.Run("one object to change", func(t *testing.T) {
		inWorld(t, runtest.Minimal, func(t *testing.T, w *world) {
			w.MustRun(t)
			w.Runtime.Edit("Deployment/kcp/demo-root", func(o *unstructured.Unstructured) {
				require.NoError(t, unstructured.SetNestedField(o.Object, int64(7), "spec", "replicas"))
			})
			calls := w.checked(nil, nil)
			w.MustRun(t)
			require.Equal(t, []string{"quick", "thorough Deployment/demo-root"}, *calls)
		})
	})
	t.Run("a quick check fails", func(t *testing.T) {
		inWorld(t, runtest.Minimal, func(t *testing.T, w *world) {
			calls := w.checked(boom, nil)
			_, err := w.Run(t)
			runtest.RequireError(t, err, clierr.Failed, "KCP002: boom")
			require.Equal(t, "do something", clierr.Hint(err))
			require.Equal(t, []string{"quick"}, *calls)
			require.Empty(t, w.Runtime.Calls(), "nothing was to be written")
		})
	})
	t.Run("a thorough check fails", func(t *testing.T) {
		inWorld(t, runtest.Minimal, func(t *testing.T, w *world) {
			w.checked(nil, boom)
			_, err := w.Run(t)
			runtest.RequireError(t, err, clierr.Failed, "KCP014: boom")
			require.Empty(t, w.Runtime.Calls(), "nothing was to be written")
		})
	})
	t.Run("a failure that is ignored", func(t *testing.T) {
		inWorld(t, runtest.Minimal, func(t *testing.T, w *world) {
			w.checked(boom, bang)
			w.Up.Options.IgnoreChecks = []string{"KCP002", "kcp014"}
			w.MustRun(t)
			require.Subset(t, strings.Split(strings.Join(w.Of(""), "\n"), "\n"), []string{"KCP002: boom", "KCP014: bang"})
		})
	})
	t.Run("a check knows why the plan fails", func(t *testing.T) {
		inWorld(t, runtest.Minimal, func(t *testing.T, w *world) {
			w.checked(nil, bang)
			w.Runtime.On("Plan", func() error { return boom })
			_, err := w.Run(t)
			require.ErrorIs(t, err, boom)
			require.ErrorContains(t, err, "KCP014: bang")
		})
	})
}
