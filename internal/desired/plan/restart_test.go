package plan

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// workload is an object whose pods have some annotations.
func workload(kind string, annotations map[string]any) *unstructured.Unstructured {
	metadata := map[string]any{}
	if annotations != nil {
		metadata["annotations"] = annotations
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"kind": kind, "spec": map[string]any{"template": map[string]any{"metadata": metadata}},
	}}
}

func TestRestart(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	before := workload("Deployment", map[string]any{"a": "b"})
	got := Restart(before, at)
	require.Equal(t, workload("Deployment",
		map[string]any{"a": "b", topology.AnnotationRestartedAt: "2026-01-02T03:04:05.000000006Z"}), got)
	require.Equal(t, workload("Deployment", map[string]any{"a": "b"}), before, "the rendered object is not changed")
	require.NotEmpty(t, restartedAt(Restart(workload("StatefulSet", nil), at)))
}

func TestKeepRestart(t *testing.T) {
	restarted := func(kind, at string) *unstructured.Unstructured {
		return workload(kind, map[string]any{topology.AnnotationRestartedAt: at})
	}
	for name, tc := range map[string]struct{ want, live, kept *unstructured.Unstructured }{
		"never restarted": {workload("Deployment", nil), workload("Deployment", nil), workload("Deployment", nil)},
		"new":             {workload("Deployment", nil), nil, workload("Deployment", nil)},
		"restarted":       {workload("Deployment", nil), restarted("Deployment", "1"), restarted("Deployment", "1")},
		"again":           {restarted("StatefulSet", "2"), restarted("StatefulSet", "1"), restarted("StatefulSet", "2")},
		"no pods":         {workload("Job", nil), restarted("Job", "1"), workload("Job", nil)},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, tc.kept, KeepRestart(tc.want, tc.live)) })
	}
}
