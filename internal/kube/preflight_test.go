package kube

import (
	"testing"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/render"
)

func TestGrantedBy(t *testing.T) {
	rules := []authorizationv1.ResourceRule{
		{Verbs: []string{"get", "list"}, APIGroups: []string{"apps"}, Resources: []string{"deployments"}},
		{Verbs: []string{"*"}, APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"one"}},
		{Verbs: []string{"create"}, APIGroups: []string{""}, Resources: []string{"pods/portforward"}},
	}
	for name, tc := range map[string]struct {
		permission permission
		want       bool
	}{
		"granted":             {permission{verb: "get", group: "apps", resource: "deployments", namespace: "kcp"}, true},
		"another verb":        {permission{verb: "patch", group: "apps", resource: "deployments", namespace: "kcp"}, false},
		"another group":       {permission{verb: "get", group: "", resource: "deployments", namespace: "kcp"}, false},
		"some objects":        {permission{verb: "get", resource: "secrets", namespace: "kcp"}, false},
		"subresource":         {permission{verb: "create", resource: "pods", subresource: "portforward", namespace: "kcp"}, true},
		"not the subresource": {permission{verb: "create", resource: "pods", namespace: "kcp"}, false},
		"of the cluster":      {permission{verb: "get", group: "apps", resource: "deployments"}, false},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, tc.want, tc.permission.grantedBy(rules)) })
	}
}

func TestPermissionsFollowTheObjects(t *testing.T) {
	service := render.Object{Unstructured: &unstructured.Unstructured{}}
	service.SetGroupVersionKind(known("Service").GroupVersionKind)
	has := func(all []permission, text string) bool {
		for _, p := range all {
			if p.String() == text {
				return true
			}
		}
		return false
	}
	all := permissions("kcp", []render.Object{service}, true)
	require.True(t, has(all, "patch services in namespace kcp"))
	require.False(t, has(all, "patch statefulsets.apps in namespace kcp"))
	require.False(t, has(all, "create namespaces"))
	all = permissions("kcp", nil, false)
	require.True(t, has(all, "create namespaces"))
	require.True(t, has(all, "patch statefulsets.apps in namespace kcp"))
	require.True(t, has(all, "create pods/portforward in namespace kcp"))
}

func TestPodReferences(t *testing.T) {
	o := &unstructured.Unstructured{Object: map[string]any{"kind": "Deployment", "metadata": map[string]any{"name": "d"}, "spec": map[string]any{
		"template": map[string]any{"spec": map[string]any{
			"imagePullSecrets": []any{map[string]any{"name": "pull"}},
			"volumes": []any{
				map[string]any{"name": "all", "secret": map[string]any{"secretName": "s1"}},
				map[string]any{"name": "opt", "configMap": map[string]any{"name": "c1", "optional": true}},
				map[string]any{"name": "mix", "projected": map[string]any{"sources": []any{
					map[string]any{"secret": map[string]any{"name": "s2", "items": []any{map[string]any{"key": "k", "path": "p"}}}},
					map[string]any{"configMap": map[string]any{"name": "c2"}},
				}}},
			},
			"containers": []any{map[string]any{"name": "kcp",
				"env":     []any{map[string]any{"name": "A", "valueFrom": map[string]any{"secretKeyRef": map[string]any{"name": "s3", "key": "k"}}}, map[string]any{"name": "B", "value": "x"}},
				"envFrom": []any{map[string]any{"configMapRef": map[string]any{"name": "c3"}}},
			}},
		}}}}}
	refs, err := podReferences(o)
	require.NoError(t, err)
	require.Equal(t, []reference{
		{"Secret", "pull", "", "Deployment/d (imagePullSecrets)"},
		{"Secret", "s1", "", "Deployment/d (volume all)"},
		{"Secret", "s2", "k", "Deployment/d (volume mix)"},
		{"ConfigMap", "c2", "", "Deployment/d (volume mix)"},
		{"Secret", "s3", "k", "Deployment/d (variable A of container kcp)"},
		{"ConfigMap", "c3", "", "Deployment/d (variables of container kcp)"},
	}, refs)
	none, err := podReferences(&unstructured.Unstructured{Object: map[string]any{"kind": "Secret"}})
	require.NoError(t, err)
	require.Empty(t, none)
}
