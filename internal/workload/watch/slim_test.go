package watch

import (
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestSlimKeepsACopy(t *testing.T) {
	spec := map[string]any{"replicas": int64(2), "list": []any{"a"}, "none": nil}
	u := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": "web", "managedFields": []any{map[string]any{"manager": "kubectl"}}}, "spec": spec,
	}}
	(&slimmer{}).slim(u)
	want := map[string]any{
		"metadata": map[string]any{"name": "web"}, "spec": map[string]any{"replicas": int64(2), "list": []any{"a"}, "none": nil},
	}
	require.Equal(t, want, u.Object)
	spec["replicas"], spec["list"].([]any)[0] = int64(3), "b"
	require.Equal(t, want, u.Object, "it has what was decoded")
}

func TestSlimSharesStrings(t *testing.T) {
	var s slimmer
	named := func(name string) string {
		u := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": strings.Clone(name)}}}
		s.slim(u)
		return u.GetName()
	}
	same := func(name string) bool { return unsafe.StringData(named(name)) == unsafe.StringData(named(name)) }
	require.True(t, same("web"))
	require.False(t, same(strings.Repeat("x", longestShared+1)), "long strings are not kept")
	for i := range 2 * maxShared {
		named(strconv.Itoa(i))
	}
	require.Len(t, s.shared, maxShared, "not all that ever were")
	require.True(t, same("web"))
}

func TestSlimDoesNotShareSecrets(t *testing.T) {
	var s slimmer
	u := &unstructured.Unstructured{Object: map[string]any{"kind": "Secret", "data": map[string]any{"password": "cGFzc3dvcmQ="}}}
	s.slim(u)
	require.Contains(t, s.shared, "password")
	require.NotContains(t, s.shared, "cGFzc3dvcmQ=")
	require.Equal(t, map[string]any{"password": "cGFzc3dvcmQ="}, u.Object["data"])
}

func TestSlimKeepsWhatIsRead(t *testing.T) {
	s := slimmer{keep: [][]string{{"metadata"}, {"status", "conditions"}, {"status", "phase"}, {"absent", "field"}}}
	u := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": "web"}, "data": map[string]any{"password": "x"},
		"status": map[string]any{"conditions": []any{"a"}, "phase": "Bound", "claims": []any{"b"}},
	}}
	s.slim(u)
	require.Equal(t, map[string]any{
		"metadata": map[string]any{"name": "web"}, "status": map[string]any{"conditions": []any{"a"}, "phase": "Bound"},
	}, u.Object)
}
