package run_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/render"
)

// asked notes what a run checks, and answers.
func (w *world) asked(notes []string, quick, thorough error) *[]string {
	var calls []string
	w.up.Preflight = func(_ context.Context, objects []render.Object, full bool) ([]string, error) {
		if !full {
			calls = append(calls, "quick")
			return nil, quick
		}
		call := "thorough"
		if len(objects) == 1 {
			call += " " + objects[0].GetKind() + "/" + objects[0].GetName()
		}
		calls = append(calls, call)
		return notes, thorough
	}
	return &calls
}

// What a run checks before it writes: everything in brief, what it changes thoroughly.
func TestPreflight(t *testing.T) {
	boom, bang := clierr.New(clierr.Failed, "do something", "boom"), clierr.New(clierr.Failed, "do another thing", "bang")
	t.Run("the first run", func(t *testing.T) {
		inWorld(t, minimal, func(t *testing.T, w *world) {
			calls := w.asked([]string{"mind the gap"}, nil, nil)
			w.mustRun(t)
			require.Equal(t, []string{"quick", "thorough"}, *calls)
			require.Contains(t, w.of(""), "mind the gap")
		})
	})
	t.Run("nothing to do", func(t *testing.T) {
		inWorld(t, minimal, func(t *testing.T, w *world) {
			w.mustRun(t)
			calls := w.asked(nil, nil, boom)
			w.mustRun(t)
			require.Equal(t, []string{"quick"}, *calls)
		})
	})
	t.Run("one object to change", func(t *testing.T) {
		inWorld(t, minimal, func(t *testing.T, w *world) {
			w.mustRun(t)
			w.rt.Edit("Deployment/kcp/demo-root", func(o *unstructured.Unstructured) {
				require.NoError(t, unstructured.SetNestedField(o.Object, int64(7), "spec", "replicas"))
			})
			calls := w.asked(nil, nil, nil)
			w.mustRun(t)
			require.Equal(t, []string{"quick", "thorough Deployment/demo-root"}, *calls)
		})
	})
	t.Run("a quick check fails", func(t *testing.T) {
		inWorld(t, minimal, func(t *testing.T, w *world) {
			calls := w.asked(nil, boom, nil)
			_, err := w.run(t)
			requireError(t, err, clierr.Failed, "boom")
			require.Equal(t, []string{"quick"}, *calls)
			require.Empty(t, w.rt.Calls(), "nothing was to be written")
		})
	})
	t.Run("a thorough check fails", func(t *testing.T) {
		inWorld(t, minimal, func(t *testing.T, w *world) {
			w.asked(nil, nil, boom)
			_, err := w.run(t)
			requireError(t, err, clierr.Failed, "boom")
			require.Empty(t, w.rt.Calls(), "nothing was to be written")
		})
	})
	t.Run("a check knows why the plan fails", func(t *testing.T) {
		inWorld(t, minimal, func(t *testing.T, w *world) {
			w.asked(nil, nil, bang)
			w.rt.On("Plan", func() error { return boom })
			_, err := w.run(t)
			require.ErrorIs(t, err, boom)
			require.ErrorIs(t, err, bang)
		})
	})
}
