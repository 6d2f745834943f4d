package operator_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/desired/operator"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// A setup says which RootShard it takes over, and those of earlier releases by their aliases. Nothing is guessed.
func TestOrigin(t *testing.T) {
	for text, want := range map[string]operator.Origin{
		"spec: {takeOver: {rootShard: prod, uid: u1}, rootShard: {aliases: [other-kcp]}}\n": {Name: "prod", UID: "u1"},
		"spec: {rootShard: {aliases: [prod-kcp]}}\n":                                        {Name: "prod"},
		"spec: {rootShard: {aliases: [prod, prod-kcp]}}\n":                                  {Name: "prod"},
		"spec: {rootShard: {aliases: [a-kcp, b-kcp]}}\n":                                    {},
		"spec: {frontProxies: [{name: main, aliases: [prod-kcp]}]}\n":                       {},
	} {
		got, err := operator.OriginOf(topologytest.Build(t, text))
		require.Equal(t, want, got, text)
		if want.Name == "" {
			require.ErrorContains(t, err, "does not say which installation of kcp-operator it takes over", text)
			require.Contains(t, clierr.Hint(err), "spec.takeOver.rootShard")
			continue
		}
		require.NoError(t, err, text)
	}
}

func object(kind, name string, spec map[string]any) unstructured.Unstructured {
	return unstructured.Unstructured{Object: map[string]any{"kind": kind, "metadata": map[string]any{"name": name},
		"spec": spec}}
}

func ref(path, name string) map[string]any { return map[string]any{path: map[string]any{"name": name}} }

// Every object belongs to the RootShards that it leads to.
func TestMembers(t *testing.T) {
	m := operator.MembersOf([]unstructured.Unstructured{
		object("Kubeconfig", "of-b", map[string]any{"target": ref("frontProxyRef", "edge")}),
		object("Kubeconfig", "of-a", map[string]any{"target": ref("shardRef", "a1")}),
		object("CacheServer", "own", nil), object("CacheServer", "shared", nil), object("CacheServer", "unused", nil),
		object("VirtualWorkspace", "vw", map[string]any{"target": ref("rootShardRef", "a")}),
		object("FrontProxy", "edge", map[string]any{"rootShard": ref("ref", "b")}),
		object("Shard", "a1", map[string]any{"rootShard": ref("ref", "a"), "cache": ref("ref", "shared")}),
		object("Shard", "b1", map[string]any{"rootShard": ref("ref", "b"), "cache": ref("ref", "own")}),
		object("RootShard", "a", nil), object("RootShard", "b", map[string]any{"cache": ref("ref", "shared")}),
	})
	for o, roots := range map[operator.Object][]string{
		{Kind: "RootShard", Name: "a"}: {"a"}, {Kind: "Shard", Name: "a1"}: {"a"}, {Kind: "FrontProxy",
			Name: "edge"}: {"b"}, {Kind: "Kubeconfig", Name: "of-b"}: {"b"},
		{Kind: "Kubeconfig", Name: "of-a"}: {"a"}, {Kind: "VirtualWorkspace", Name: "vw"}: {"a"}, {Kind: "CacheServer",
			Name: "own"}: {"b"},
		{Kind: "CacheServer", Name: "shared"}: {"a", "b"}, {Kind: "CacheServer", Name: "unused"}: nil,
	} {
		require.ElementsMatch(t, roots, m[o], o)
		require.Equal(t, len(roots) == 1 && roots[0] == "a", m.Only(o, "a"), o)
	}
}

// What kcp-operator has made shows for which object: by its owner, also one in between, or by its labels.
func TestMadeFor(t *testing.T) {
	labels := map[string]string{"app.kubernetes.io/managed-by": "kcp-operator",
		"app.kubernetes.io/component": "front-proxy", "app.kubernetes.io/instance": "edge"}
	service := object("Service", "x", nil)
	require.False(t, operator.Owned(&service))
	service.SetLabels(labels)
	of, known := operator.MadeFor(&service)
	require.True(t, known && operator.Owned(&service))
	require.Equal(t, "FrontProxy edge", of.String())
	service.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p"},
		{APIVersion: "deploy.operator.kcp.io/v1alpha1", Kind: "CompiledShard", Name: "a1"}})
	of, _ = operator.MadeFor(&service)
	require.Equal(t, "Shard a1", of.String())
	foreign := object("Service", "x", nil)
	_, known = operator.MadeFor(&foreign)
	require.False(t, known)
	for _, tc := range []struct {
		of    operator.Object
		roots []string
		want  string
	}{
		{operator.Object{}, nil, "an unknown object of kcp-operator"}, {operator.Object{Kind: "Shard", Name: "a"},
			[]string{"b"}, "Shard a of RootShard b"},
		{operator.Object{Kind: "Shard", Name: "a"}, nil, "Shard a, which does not exist or refers to no RootShard"},
		{operator.Object{Kind: "RootShard", Name: "b"}, []string{"b"}, "RootShard b"},
	} {
		require.Equal(t, tc.want, operator.Describe(tc.of, tc.roots))
	}
}
