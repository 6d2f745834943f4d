package watch

import (
	"hash/maphash"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// newSet returns a set that is not started.
func newSet(o Options) *Set {
	return &Set{o: o, table: &table{}, seed: maphash.MakeSeed()}
}

// unpack returns an object that was held.
func (s *Set) unpack(h held) *unstructured.Unstructured { return s.table.unpack(h.packed) }

func TestSlimKeepsACopy(t *testing.T) {
	s := newSet(Options{})
	spec := map[string]any{"replicas": int64(2), "list": []any{"a"}, "none": nil}
	h := s.hold(&unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{
			"name": "web", "managedFields": []any{map[string]any{"manager": "kubectl"}},
			"annotations": map[string]any{"kubectl.kubernetes.io/last-applied-configuration": "{}", "a": "b"},
		}, "spec": spec,
	}})
	want := map[string]any{
		"metadata": map[string]any{"name": "web", "annotations": map[string]any{"a": "b"}},
		"spec":     map[string]any{"replicas": int64(2), "list": []any{"a"}, "none": nil},
	}
	require.Equal(t, want, s.unpack(h).Object)
	spec["replicas"], spec["list"].([]any)[0] = int64(3), "b"
	require.Equal(t, want, s.unpack(h).Object, "it has what was decoded")
}

func TestSlimSharesStrings(t *testing.T) {
	s := newSet(Options{})
	named := func(name string) string {
		u := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": strings.Clone(name)}}}
		return s.unpack(s.hold(u)).GetName()
	}
	same := func(name string) bool { return unsafe.StringData(named(name)) == unsafe.StringData(named(name)) }
	require.True(t, same("web"))
	require.False(t, same(strings.Repeat("x", longestShared+1)), "long strings are not kept")
	for i := range 2 * maxShared {
		require.Equal(t, strconv.Itoa(i), named(strconv.Itoa(i)))
	}
	require.Len(t, s.table.all, maxShared+2, "not all that ever were, but there is room for the names of fields")
	require.True(t, same("web"))
}

func TestSlimDoesNotShareSecrets(t *testing.T) {
	s := newSet(Options{})
	h := s.hold(&unstructured.Unstructured{Object: map[string]any{"kind": "Secret", "data": map[string]any{"password": "cGFzc3dvcmQ="}}})
	require.Contains(t, s.table.all, "password")
	require.NotContains(t, s.table.all, "cGFzc3dvcmQ=")
	require.Equal(t, map[string]any{"password": "cGFzc3dvcmQ="}, s.unpack(h).Object["data"])
}

func TestSlimKeepsWhatIsRead(t *testing.T) {
	keep := [][]string{{"metadata"}, {"status", "conditions"}, {"status", "phase"}, {"absent", "field"}}
	s := newSet(Options{Keep: keep})
	h := s.hold(&unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": "web"}, "data": map[string]any{"password": "x"},
		"status": map[string]any{"conditions": []any{"a"}, "phase": "Bound", "claims": []any{"b"}},
	}})
	require.Equal(t, map[string]any{
		"metadata": map[string]any{"name": "web"}, "status": map[string]any{"conditions": []any{"a"}, "phase": "Bound"},
	}, s.unpack(h).Object)
}

// value returns a random value of JSON.
func value(r *rand.Rand, depth int) any {
	switch n := r.IntN(9); {
	case n == 0:
		return nil
	case n == 1:
		return r.IntN(2) == 0
	case n == 2:
		return int64(r.Uint64()) >> r.IntN(64)
	case n == 3:
		return r.NormFloat64()
	case n < 6 || depth == 0:
		return strings.Repeat(strconv.Itoa(r.IntN(50)), r.IntN(70))
	case n == 6:
		out := make([]any, r.IntN(4))
		for i := range out {
			out[i] = value(r, depth-1)
		}
		return out
	}
	out := map[string]any{}
	for range r.IntN(6) {
		out[strconv.Itoa(r.IntN(30))] = value(r, depth-1)
	}
	return out
}

// What is unpacked is what was packed.
func TestPack(t *testing.T) {
	s := newSet(Options{})
	r := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		object := map[string]any{"kind": []any{"Secret", "ConfigMap"}[r.IntN(2)], "a": value(r, 5), "b": value(r, 5)}
		u := &unstructured.Unstructured{Object: object}
		want := u.DeepCopy()
		h := s.hold(u)
		require.NotEmpty(t, h.packed)
		require.Equal(t, want.Object, s.unpack(h).Object)
	}
	for _, extreme := range []any{int64(math.MinInt64), int64(math.MaxInt64), math.Inf(1), "", []any{}, map[string]any{}} {
		h := s.hold(&unstructured.Unstructured{Object: map[string]any{"a": extreme}})
		require.Equal(t, map[string]any{"a": extreme}, s.unpack(h).Object)
	}
}

func TestPackTakesOnlyValuesOfJSON(t *testing.T) {
	s := newSet(Options{})
	object := map[string]any{"a": int32(1)}
	require.Panics(t, func() { s.hold(&unstructured.Unstructured{Object: object}) })
}
