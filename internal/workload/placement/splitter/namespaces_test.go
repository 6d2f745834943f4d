package splitter_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kcpctl/kcpctl/internal/workload/placement/splitter"
)

// A selector is about the namespaces of the workspace, and about namespaces of the cluster that belong to no workspace.
func TestWithNamespaces(t *testing.T) {
	const notOfAWorkspace = "{key: workloads.kcp.dev/setup, operator: DoesNotExist}"
	namespaces := map[string]labels.Set{"default": nil, "frontend": {"tier": "front"}, "shop": {"tier": "front", "team": "a"}}
	for _, tc := range []struct{ from, want string }{
		{"[{podSelector: {}}]", "[{podSelector: {}}]"},
		{"[{ipBlock: {cidr: 10.0.0.0/8}}]", "[{ipBlock: {cidr: 10.0.0.0/8}}]"},
		{"[]", "[]"},
		{
			"[{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: frontend}}}]",
			"[{namespaceSelector: {matchExpressions: [{key: workloads.kcp.dev/namespace, operator: In, values: [frontend]}]}}]",
		},
		{
			"[{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: frontend, tier: back}}}]",
			`[{namespaceSelector: {matchExpressions: [{key: workloads.kcp.dev/namespace, operator: In, values: [""]}]}}]`,
		},
		{
			"[{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: kube-system}}, podSelector: {matchLabels: {k8s-app: kube-dns}}}]",
			"[{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: kube-system}, matchExpressions: [" + notOfAWorkspace + ", " +
				"{key: kubernetes.io/metadata.name, operator: NotIn, values: [default, frontend, shop]}]}, podSelector: {matchLabels: {k8s-app: kube-dns}}}]",
		},
		{
			"[{namespaceSelector: {}}, {podSelector: {}}]",
			"[{namespaceSelector: {matchExpressions: [{key: workloads.kcp.dev/namespace, operator: Exists}]}}, " +
				"{namespaceSelector: {matchExpressions: [" + notOfAWorkspace + "]}}, {podSelector: {}}]",
		},
		{
			"[{namespaceSelector: {matchExpressions: [{key: tier, operator: In, values: [front]}]}}]",
			"[{namespaceSelector: {matchExpressions: [{key: workloads.kcp.dev/namespace, operator: In, values: [frontend, shop]}]}}, " +
				"{namespaceSelector: {matchExpressions: [{key: tier, operator: In, values: [front]}, " + notOfAWorkspace + "]}}]",
		},
		{
			"[{namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [shop]}]}}]",
			"[{namespaceSelector: {matchExpressions: [{key: workloads.kcp.dev/namespace, operator: In, values: [default, frontend]}]}}, " +
				"{namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [shop]}, " + notOfAWorkspace + "]}}]",
		},
		{
			"[{namespaceSelector: {matchExpressions: [{key: tier, operator: Wrong}]}}]",
			"[{namespaceSelector: {matchExpressions: [{key: tier, operator: Wrong}]}}]",
		},
	} {
		policy := func(peers string) string {
			return "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, spec: {ingress: [{from: " + peers + "}], egress: [{to: " + peers + "}, {}]}}"
		}
		root := object(t, policy(tc.from))
		require.Equal(t, object(t, policy(tc.want)), splitter.WithNamespaces(root, namespaces), tc.from)
		require.Equal(t, object(t, policy(tc.from)), root, "the root is not changed")
	}
	service := object(t, "{apiVersion: v1, kind: Service, spec: {ingress: [{from: [{namespaceSelector: {}}]}]}}")
	require.Equal(t, service, splitter.WithNamespaces(service, namespaces))
}
