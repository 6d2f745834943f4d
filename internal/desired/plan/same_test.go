package plan

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestSameIgnoresWhatTheServerKeeps(t *testing.T) {
	service := func(change func(o map[string]any)) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: map[string]any{
			"kind":     "Service",
			"metadata": map[string]any{"name": "a", "resourceVersion": "1", "generation": int64(1), "labels": map[string]any{"a": "b"}},
			"spec":     map[string]any{"ports": []any{map[string]any{"port": int64(443)}}},
			"status":   map[string]any{"loadBalancer": map[string]any{}},
		}}
		if change != nil {
			change(u.Object)
		}
		return u
	}
	meta := func(o map[string]any) map[string]any { return o["metadata"].(map[string]any) }
	for name, tc := range map[string]struct {
		change func(o map[string]any)
		same   bool
	}{
		"nothing":     {nil, true},
		"status":      {func(o map[string]any) { o["status"] = "x" }, true},
		"no status":   {func(o map[string]any) { delete(o, "status") }, true},
		"bookkeeping": {func(o map[string]any) { meta(o)["resourceVersion"], meta(o)["generation"] = "2", int64(2) }, true},
		"managers":    {func(o map[string]any) { meta(o)["managedFields"] = []any{"x"} }, true},
		"label":       {func(o map[string]any) { meta(o)["labels"] = map[string]any{"a": "c"} }, false},
		"annotation":  {func(o map[string]any) { meta(o)["annotations"] = map[string]any{"a": "c"} }, false},
		"lost label":  {func(o map[string]any) { delete(meta(o), "labels") }, false},
		"port": {func(o map[string]any) {
			o["spec"] = map[string]any{"ports": []any{map[string]any{"port": int64(444)}}}
		}, false},
		"another field": {func(o map[string]any) { o["data"] = map[string]any{} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.same, Same(service(nil), service(tc.change)))
			require.Equal(t, tc.same, Same(service(tc.change), service(nil)))
		})
	}
}
