package watch_test

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

// labelled is an object with a label, as which it is counted.
func labelled(namespace, name, version, label string) map[string]any {
	o := object("1a", namespace, name, version)
	if label != "" {
		o["metadata"].(map[string]any)["labels"] = map[string]any{"on": label}
	}
	return o
}

func TestClasses(t *testing.T) {
	alpha, beta := newShard(t, path), newShard(t, path)
	alpha.event("ADDED", labelled("shop", "root", "1", ""))
	alpha.event("ADDED", labelled("shop", "one", "1", "c1"))
	alpha.event("ADDED", labelled("other", "two", "1", "c2"))
	beta.event("ADDED", object("2b", "shop", "root", "1"))
	s := newSet(t, watch.Options{
		Path: watch.AllClusters, Class: func(u *unstructured.Unstructured) string { return u.GetLabels()["on"] },
	})
	resources := []schema.GroupVersionResource{deployments}
	require.NoError(t, s.Update([]string{alpha.URL, beta.URL}, resources))
	is := func(want map[string]int) {
		t.Helper()
		eventually(t, func() bool { return s.Complete() && reflect.DeepEqual(want, s.Classes(deployments)) }, "the counts change")
	}
	is(map[string]int{"": 2, "c1": 1, "c2": 1})
	require.ElementsMatch(t, []watch.Key{{Cluster: "1a", Namespace: "shop", Name: "root"}, {Cluster: "2b", Namespace: "shop", Name: "root"}},
		s.Keys(deployments, ""))
	require.Equal(t, []watch.Key{{Cluster: "1a", Namespace: "shop", Name: "one"}}, s.KeysIn(deployments, "1a", "shop", "c1"))
	require.True(t, s.Has(deployments, watch.Key{Cluster: "2b", Namespace: "shop", Name: "root"}))
	require.False(t, s.Has(deployments, watch.Key{Cluster: "2b", Namespace: "shop", Name: "one"}))
	class, ok := s.Class(deployments, watch.Key{Cluster: "1a", Namespace: "other", Name: "two"})
	require.True(t, ok)
	require.Equal(t, "c2", class)
	require.Len(t, s.KeysAt(watch.Source{Endpoint: beta.URL, Resource: deployments}, ""), 1)
	require.Equal(t, map[string]int{"": 1, "c1": 1, "c2": 1}, s.ClassesIn("1a"))

	eventually(t, alpha.watched, "the watch has begun")
	alpha.event("MODIFIED", labelled("shop", "one", "2", "c2"))
	is(map[string]int{"": 2, "c2": 2})
	alpha.event("ADDED", labelled("shop", "three", "3", "c3"))
	is(map[string]int{"": 2, "c2": 2, "c3": 1})
	alpha.event("DELETED", labelled("other", "two", "4", "c2"))
	is(map[string]int{"": 2, "c2": 1, "c3": 1})

	require.NoError(t, s.Update([]string{beta.URL}, resources))
	is(map[string]int{"": 1})
	require.Empty(t, s.ClassesIn("1a"))
	require.Equal(t, map[string]int{"": 1}, s.ClassesIn("2b"))
	require.NoError(t, s.Update(nil, resources))
	is(map[string]int{})
	require.Empty(t, s.ClassesIn("2b"))
}

// A list that replaces what was known counts as the changes would that have been missed.
func TestClassesAfterAnotherList(t *testing.T) {
	alpha := newShard(t, path)
	alpha.event("ADDED", labelled("shop", "one", "1", "c1"))
	alpha.event("ADDED", labelled("shop", "two", "1", "c2"))
	s := newSet(t, watch.Options{Path: watch.AllClusters, Class: func(u *unstructured.Unstructured) string { return u.GetLabels()["on"] }})
	require.NoError(t, s.Update([]string{alpha.URL}, []schema.GroupVersionResource{deployments}))
	eventually(t, func() bool { return s.Complete() && alpha.watched() }, "it is watched")
	alpha.mu.Lock()
	delete(alpha.objects, "two")
	alpha.objects["one"] = labelled("shop", "one", "2", "c3")
	for w := range alpha.watches {
		w <- map[string]any{"type": "ERROR", "object": map[string]any{
			"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 410, "reason": "Expired", "message": "too old",
		}}
	}
	alpha.mu.Unlock()
	want := map[string]int{"c3": 1}
	eventually(t, func() bool { return reflect.DeepEqual(want, s.Classes(deployments)) }, "the counts are those of the list")
	require.Equal(t, want, s.ClassesIn("1a"))
}
