package workspace_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/testutil/fakekcp"
)

// export stores an APIExport that asks for claims, as a field manager has written them.
func (w *world) export(path, name, manager string, claims ...map[string]any) {
	name = path + "/apiexports/" + name
	o := w.below.Kcp.In(name)
	if o == nil {
		o = &unstructured.Unstructured{Object: fakekcp.Export(name[strings.LastIndex(name, "/")+1:], "x").Body.(map[string]any)}
		o.SetAPIVersion("apis.kcp.io/v1alpha2")
	}
	all, fields := []any{}, map[string]any{}
	for _, c := range claims {
		all = append(all, c)
		fields[`k:{"group":"`+c["group"].(string)+`","resource":"`+c["resource"].(string)+`"}`] = map[string]any{}
	}
	o.Object["spec"] = map[string]any{"permissionClaims": all}
	o.Object["metadata"].(map[string]any)["managedFields"] = []any{map[string]any{
		"manager": manager, "operation": "Update", "fieldsType": "FieldsV1",
		"fieldsV1": map[string]any{"f:spec": map[string]any{"f:permissionClaims": fields}},
	}}
	w.below.Kcp.PutIn(name, o)
}

func (w *world) accepted(t *testing.T, binding string) []any {
	t.Helper()
	claims, _, err := unstructured.NestedSlice(w.below.Kcp.In(binding).Object, "spec", "permissionClaims")
	require.NoError(t, err)
	return claims
}

func asked(group, resource string, verbs ...any) map[string]any {
	return map[string]any{"group": group, "resource": resource, "verbs": verbs}
}

func allowed(group, resource string, verbs ...any) map[string]any {
	out := asked(group, resource, verbs...)
	out["selector"], out["state"] = map[string]any{"matchAll": true}, "Accepted"
	return out
}

// What an APIExport asks for when it is bound is accepted with acceptAllClaims. What its owner adds later is not.
func TestClaimsThatAreAddedLater(t *testing.T) {
	inWorld(t, teams, func(t *testing.T, w *world) {
		w.export("root", "widgets.example.com", "provider", asked("", "secrets", "get", "list"), map[string]any{
			"group": "", "resource": "events", "verbs": []any{"*"}, "defaultSelector": map[string]any{"matchLabels": map[string]any{"a": "b"}},
		})
		w.mustRun(t)
		first := []any{allowed("", "secrets", "get", "list"), map[string]any{
			"group": "", "resource": "events", "verbs": []any{"*"}, "selector": map[string]any{"matchLabels": map[string]any{"a": "b"}}, "state": "Accepted",
		}}
		require.Equal(t, first, w.accepted(t, bound))
		require.NotContains(t, w.notes(), "not accepted")

		w.export("root", "widgets.example.com", "provider", asked("", "secrets", "get", "list", "delete"), asked("", "configmaps", "get"),
			map[string]any{"group": "", "resource": "events", "verbs": []any{"*"}, "defaultSelector": map[string]any{"matchLabels": map[string]any{"a": "b"}}})
		require.Empty(t, w.diff(t))
		require.Empty(t, w.mustRun(t))
		require.Equal(t, first, w.accepted(t, bound))
		require.Contains(t, w.notes(), "APIBinding/widgets.example.com in "+teamA+": these claims of APIExport widgets.example.com in root are not accepted: "+
			"secrets (get, list, delete), written by provider; configmaps (get), written by provider; they are newer than the APIBinding")

		w.use(t, strings.Replace(teams, "acceptAllClaims: true", "claims: [{resource: configmaps, verbs: [get]}]", 1))
		require.Equal(t, []string{"apply " + bound}, w.mustRun(t))
		listed := allowed("", "configmaps", "get")
		listed["identityHash"] = ""
		require.Equal(t, []any{listed}, w.accepted(t, bound))

		w.export("root", "widgets.example.com", "provider", asked("", "secrets", "get"), asked("", "events", "get"))
		live := w.below.Kcp.In(bound)
		live.SetAnnotations(map[string]string{topology.AnnotationComponent: "workspace/" + teamA}) // as server-side apply leaves it
		w.below.Kcp.PutIn(bound, live)
		w.use(t, teams)
		require.Equal(t, []string{"apply " + bound}, w.mustRun(t), "acceptAllClaims is new")
		require.Equal(t, []any{allowed("", "secrets", "get"), allowed("", "events", "get")}, w.accepted(t, bound))
		w.export("root", "widgets.example.com", "provider", asked("", "secrets", "get"))
		require.Equal(t, []string{"apply " + bound}, w.mustRun(t), "what is not asked for any more is not accepted any more")
		require.Equal(t, []any{allowed("", "secrets", "get")}, w.accepted(t, bound))
	})
}

// An agent may change its APIExport. Its consumers accept what follows from the setup, whatever the APIExport asks for.
func TestClaimsOfAnAgentFollowFromTheSetup(t *testing.T) {
	const (
		spec = `spec:
  agents:
  - name: widgets
    workspace: root:widgets
    bind: [root:teams]
    paused: true
    publishedResources: [{name: widgets, spec: {resource: {apiGroup: example.com, kind: Widget}, naming: {name: "{{ .ClusterName }}"}}}]
  workspaces:
  - name: teams
    workspaces: [{name: team-a, bindings: [{export: "root:widgets:widgets", acceptAllClaims: true}]}]
`
		ofAgent = "root:teams/apibindings/widgets"
		ofTeam  = "root:teams:team-a/apibindings/widgets"
	)
	inWorld(t, spec, func(t *testing.T, w *world) {
		w.mustRun(t)
		w.export("root:widgets", "widgets", "api-syncagent", asked("", "events", "*"))
		w.mustRun(t)
		events := []any{allowed("", "events", "*")}
		for _, binding := range []string{ofAgent, ofTeam} {
			require.Equal(t, events, w.accepted(t, binding), binding)
		}

		w.export("root:widgets", "widgets", "kubectl-patch", asked("", "events", "*"), asked("", "secrets", "*"),
			asked("rbac.authorization.k8s.io", "clusterrolebindings", "*"))
		require.Empty(t, w.diff(t))
		require.Empty(t, w.mustRun(t))
		for _, binding := range []string{ofAgent, ofTeam} {
			require.Equal(t, events, w.accepted(t, binding), binding)
		}
		require.Contains(t, w.notes(), "APIBinding/widgets in root:teams: these claims of APIExport widgets in root:widgets are not accepted: "+
			"secrets (*), written by kubectl-patch; clusterrolebindings.rbac.authorization.k8s.io (*), written by kubectl-patch")

		// An earlier run accepted whatever the APIExport asked for.
		old := w.below.Kcp.In(ofAgent)
		old.SetAnnotations(map[string]string{topology.AnnotationClaims: topology.AcceptAll, topology.AnnotationComponent: "agent/widgets"})
		require.NoError(t, unstructured.SetNestedSlice(old.Object, append(events, allowed("", "secrets", "*")), "spec", "permissionClaims"))
		w.below.Kcp.PutIn(ofAgent, old)
		require.Equal(t, []string{"apply " + ofAgent}, w.mustRun(t))
		require.Equal(t, events, w.accepted(t, ofAgent))
	})
}
