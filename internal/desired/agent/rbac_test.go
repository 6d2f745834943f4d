package agent_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/agent"
	"github.com/kcpctl/kcpctl/internal/testutil"
)

// parse returns the agent of a text: the fields of spec.agents[0].
func parse(t *testing.T, text string) *v1alpha1.Agent {
	t.Helper()
	a := &v1alpha1.Agent{Name: "widgets", Workspace: "root:widgets", APIExport: "widgets.example.com"}
	require.NoError(t, yaml.UnmarshalStrict([]byte(text), a))
	return a
}

const everything = `
publishedResources:
- name: widgets
  spec:
    resource: {apiGroup: example.com, kind: Widget, versions: [v1]}
    filter: {namespace: {matchLabels: {team: a}}}
    enableWorkspacePaths: true
    projection: {group: widgets.example.org, kind: Gizmo}
    related:
    - {identifier: connection, origin: service, kind: Secret, object: {template: {template: x}}}
    - {identifier: config, origin: kcp, version: v1, resource: configmaps, object: {template: {template: x}}}
    - identifier: foreign
      origin: service
      group: certs.example.com
      version: v1
      resource: certificates
      identityHash: "0123"
      projection: {group: certs.example.org}
      object: {template: {template: x}}
    - {identifier: own, origin: kcp, group: example.org, version: v1, resource: policies, object: {template: {template: x}}}
- name: fish
  plural: fish
  spec: {resource: {apiGroup: example.com, kind: Fish, version: v1}}
- name: policies
  spec:
    resource: {apiGroup: example.com, kind: Policy}
    projection: {group: example.org}
    synchronization: {enabled: false}
permissions:
- {apiGroups: [""], resources: [configmaps], verbs: [list]}
`

func TestRules(t *testing.T) {
	for name, text := range map[string]string{
		"everything": everything,
		"minimal":    `publishedResources: [{name: w, spec: {resource: {apiGroup: example.com, kind: Widget}}}]`,
	} {
		t.Run(name, func(t *testing.T) {
			a := parse(t, text)
			data, err := yaml.Marshal(map[string]any{"workspace": agent.RulesInWorkspace(a), "service": agent.RulesInServiceCluster(a, "kcp")})
			require.NoError(t, err)
			testutil.Golden(t, name+".yaml", data)
		})
	}
}

// An agent in the namespace default has all its rules there.
func TestRulesInDefault(t *testing.T) {
	rules := agent.RulesInServiceCluster(parse(t, everything), "default").Namespaces
	require.Len(t, rules, 1)
	require.Len(t, rules["default"], 4)
}

// No rule lets an agent write what it does not synchronize.
func TestRulesAreMinimal(t *testing.T) {
	a := parse(t, `publishedResources: [{name: w, spec: {resource: {apiGroup: example.com, kind: Widget},
  related: [{identifier: c, origin: service, kind: Secret, object: {template: {template: x}}}]}}]`)
	for _, r := range append(agent.RulesInServiceCluster(a, "kcp").Cluster, agent.RulesInWorkspace(a)...) {
		require.NotContains(t, r.Verbs, "*")
		require.NotContains(t, r.Resources, "*")
		if r.Resources[0] == "secrets" {
			require.Equal(t, []string{"get", "list", "watch"}, r.Verbs)
		}
	}
	_, named := byResource(agent.RulesInWorkspace(a), "apiexports/content")
	require.Equal(t, []string{"widgets.example.com"}, named)
}

func byResource(rules []rbacv1.PolicyRule, resource string) (verbs, names []string) {
	for _, r := range rules {
		if r.Resources[0] == resource {
			return r.Verbs, r.ResourceNames
		}
	}
	return nil, nil
}

func TestClaims(t *testing.T) {
	claim := func(group, resource, hash string) agent.Claim {
		return agent.Claim{GroupResource: schema.GroupResource{Group: group, Resource: resource}, IdentityHash: hash}
	}
	for name, c := range map[string]struct {
		text string
		want []agent.Claim
	}{
		"everything": {everything, []agent.Claim{
			claim("", "configmaps", ""), claim("", "events", ""), claim("", "namespaces", ""), claim("", "secrets", ""),
			claim("certs.example.org", "certificates", "0123"), claim("core.kcp.io", "logicalclusters", ""),
		}},
		"minimal": {
			`publishedResources: [{name: w, spec: {resource: {apiGroup: example.com, kind: Widget}}}]`,
			[]agent.Claim{claim("", "events", "")},
		},
		"a filter of resources needs no namespaces": {
			`publishedResources: [{name: w, spec: {resource: {apiGroup: example.com, kind: Widget}, filter: {resource: {matchLabels: {a: b}}}}}]`,
			[]agent.Claim{claim("", "events", "")},
		},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, agent.Claims(parse(t, c.text))) })
	}
}

func TestKinds(t *testing.T) {
	kinds := agent.Kinds(parse(t, everything))
	require.Equal(t, agent.PublishedKind{
		Name: "widgets", GroupKind: schema.GroupKind{Group: "example.com", Kind: "Widget"}, Plural: "widgets", Versions: []string{"v1"},
		Projected: schema.GroupResource{Group: "widgets.example.org", Resource: "gizmos"}, ProjectedKind: schema.GroupKind{Group: "widgets.example.org", Kind: "Gizmo"},
		Synchronized: true, Filter: agent.Filter{NamespaceLabels: "team=a"},
	}, kinds[0])
	require.Equal(t, "fish", kinds[1].Plural)
	require.Equal(t, []string{"v1"}, kinds[1].Versions)
	require.Equal(t, "policies", kinds[2].Plural)
	require.Equal(t, schema.GroupResource{Group: "example.org", Resource: "policies"}, kinds[2].Projected)
}
