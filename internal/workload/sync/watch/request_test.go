package watch_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/testutil/fakeapi"
	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

var secrets = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}

// The content of a Secret is not in memory, and is read when it is needed.
func TestMetadataOnly(t *testing.T) {
	server := fakeapi.New(t)
	const at = "api/v1/secrets"
	server.Apply(t, "1a", at, `
apiVersion: v1
kind: Secret
metadata: {name: first, namespace: shop, labels: {a: b}}
data: {password: eA==}`)
	server.Apply(t, "1a", "apis/apps/v1/deployments", `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec: {replicas: 2}`)
	var seen recorder
	s := newSet(t, watch.Options{
		Path: watch.AllClusters, Changed: seen.changed, MetadataOnly: func(r schema.GroupVersionResource) bool { return r == secrets },
	})
	require.NoError(t, s.Update([]string{server.URL}, []schema.GroupVersionResource{secrets, deployments}))
	eventually(t, s.Complete, "it is listed")
	server.Apply(t, "1a", at, `{apiVersion: v1, kind: Secret, metadata: {name: second, namespace: shop}, data: {password: eA==}}`)
	eventually(t, func() bool { return len(s.List(secrets)) == 2 }, "the second one comes with the watch")

	for _, o := range s.List(secrets) {
		require.True(t, o.Partial)
		require.NotContains(t, o.Object, "data")
		require.NotEmpty(t, o.GetUID())
		require.Equal(t, "1a", watch.KeyOf(o.Unstructured).Cluster)
		whole, err := s.Fetch(context.Background(), secrets, watch.KeyOf(o.Unstructured))
		require.NoError(t, err)
		require.False(t, whole.Partial)
		require.Equal(t, "Secret", whole.GetKind())
		require.Equal(t, map[string]any{"password": "eA=="}, whole.Object["data"])
	}
	first, _ := s.Get(secrets, watch.Key{Cluster: "1a", Namespace: "shop", Name: "first"})
	require.Equal(t, map[string]string{"a": "b"}, first.GetLabels())
	o, err := s.Fetch(context.Background(), deployments, watch.Key{Cluster: "1a", Namespace: "shop", Name: "web"})
	require.NoError(t, err)
	require.False(t, o.Partial)
	require.Contains(t, o.Object, "spec")

	server.Apply(t, "1a", at, `{metadata: {name: first, namespace: shop, labels: {a: c}}}`)
	eventually(t, func() bool {
		o, _ := s.Get(secrets, watch.Key{Cluster: "1a", Namespace: "shop", Name: "first"})
		return o.GetLabels()["a"] == "c"
	}, "a change comes with the watch")
	require.Contains(t, seen.take(), "1a|shop/first")
	_, err = s.Fetch(context.Background(), secrets, watch.Key{Cluster: "1a", Namespace: "shop", Name: "third"})
	require.True(t, apierrors.IsNotFound(err))
}

// Nothing is read of an object that has another one's name.
func TestFetchOfAnotherObject(t *testing.T) {
	alpha := newShard(t, path)
	alpha.event("ADDED", object("1a", "default", "web", "1"))
	s := newSet(t, watch.Options{Path: watch.AllClusters, MetadataOnly: func(schema.GroupVersionResource) bool { return true }})
	require.NoError(t, s.Update([]string{alpha.URL}, []schema.GroupVersionResource{deployments}))
	eventually(t, s.Complete, "it is listed")
	alpha.mu.Lock()
	replaced := object("1a", "default", "web", "2")
	(&unstructured.Unstructured{Object: replaced}).SetUID("another")
	alpha.one = replaced
	alpha.mu.Unlock()
	_, err := s.Fetch(context.Background(), deployments, watch.Key{Cluster: "1a", Namespace: "default", Name: "web"})
	require.True(t, apierrors.IsNotFound(err), "%v", err)
}
