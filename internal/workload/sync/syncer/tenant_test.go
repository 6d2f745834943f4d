package syncer

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/api/kinds"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
)

// A selector cannot be about namespaces of another workspace, also in a leaf that a user has made.
func TestSelectorsAreConfined(t *testing.T) {
	const own = "{key: workloads.kcp.dev/setup, operator: In, values: [demo-x]}, {key: workloads.kcp.dev/workspace, operator: In, values: [2a]}"
	for from, want := range map[string]string{
		"{}": "{matchExpressions: [" + own + "]}",
		"{matchExpressions: [{key: workloads.kcp.dev/namespace, operator: In, values: [shop]}]}": "{matchExpressions: [" +
			"{key: workloads.kcp.dev/namespace, operator: In, values: [shop]}, " + own + "]}",
		"{matchLabels: {kubernetes.io/metadata.name: shop}}":                           "{matchLabels: {workloads.kcp.dev/namespace: shop}, matchExpressions: [" + own + "]}",
		"{matchLabels: {workloads.kcp.dev/workspace: another}}":                        "{matchLabels: {workloads.kcp.dev/workspace: another}, matchExpressions: [" + own + "]}",
		"{matchExpressions: [{key: workloads.kcp.dev/setup, operator: DoesNotExist}]}": "{matchExpressions: [{key: workloads.kcp.dev/setup, operator: DoesNotExist}]}",
		"{matchExpressions: [{key: workloads.kcp.dev/setup, operator: Exists}]}":       "{matchExpressions: [{key: workloads.kcp.dev/setup, operator: Exists}, " + own + "]}",
	} {
		policy := func(selector string) string {
			return "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nspec: {podSelector: {}, ingress: [{from: [{podSelector: {}}, {namespaceSelector: " + selector + "}]}]}"
		}
		o := parse(t, policy(from))
		tenant{"demo-x", "2a", "c1"}.peers(o)
		require.Equal(t, parse(t, policy(want)).Object, o.Object, from)
	}
}

const affine = `
apiVersion: apps/v1
kind: Deployment
spec: {template: {spec: {affinity: {
  podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: zone, namespaces: [shop], labelSelector: {}}]},
  podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: {topologyKey: zone, namespaceSelector: SELECTOR}}]}}}}}
`

func TestAffinityIsAboutOwnNamespaces(t *testing.T) {
	o := parse(t, strings.Replace(affine, "SELECTOR", "{matchLabels: {kubernetes.io/metadata.name: db}}", 1))
	require.Nil(t, tenant{"demo-x", "2a", "c1"}.affinity(kinds.PodSpec(o)))
	want := strings.Replace(affine, "SELECTOR", "{matchLabels: {workloads.kcp.dev/namespace: db}, matchExpressions: ["+
		"{key: workloads.kcp.dev/setup, operator: In, values: [demo-x]}, {key: workloads.kcp.dev/workspace, operator: In, values: [2a]}]}", 1)
	want = strings.Replace(want, "[shop]", "["+api.DownstreamNamespace("demo-x", "2a", "shop")+"]", 1)
	require.Equal(t, parse(t, want).Object, o.Object)

	o = parse(t, strings.Replace(affine, "SELECTOR", "{matchLabels: {team: a}}", 1))
	denied := tenant{"demo-x", "2a", "c1"}.affinity(kinds.PodSpec(o))
	require.Equal(t, api.ReasonNotAllowed, denied.reason)
	require.Contains(t, denied.message, "selects namespaces by label team, which namespaces of cluster c1 do not have: list them")
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
