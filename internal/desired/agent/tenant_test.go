package agent_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/api/release"
	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/agent"
)

// An object of a workspace leads only to Secrets of this workspace.
func TestTenancy(t *testing.T) {
	const (
		own    = `{namespace: "{{ .ClusterName }}"}`
		shared = `{name: "{{ .ClusterName }}-{{ .Object.metadata.name }}", namespace: shared}`
		plain  = `{name: "{{ .Object.metadata.name }}-{{ .Object.metadata.namespace }}", namespace: shared}`
		chosen = `{reference: {path: spec.secretName}}`
	)
	for name, tc := range map[string]struct{ naming, object, want string }{
		"a name of the user in a namespace of the workspace": {own, chosen, ""},
		"the default namespace":                              {`{}`, chosen, ""},
		"a name of the user in a shared namespace":           {shared, chosen, "related[0].object: Invalid"},
		"a template with a field of the user":                {shared, `{template: {template: "{{ .Object.spec.secretName }}"}}`, "related[0].object: Invalid"},
		"a template with the workspace":                      {shared, `{template: {template: "{{ .ClusterName }}-{{ .Object.spec.secretName }}"}}`, ""},
		"the name of the copy, which has the workspace":      {shared, `{template: {template: "{{ .Object.metadata.name }}-creds"}}`, ""},
		"the name of the copy, which users choose":           {plain, `{template: {template: "{{ .Object.metadata.name }}-creds"}}`, "related[0].object: Invalid"},
		"a fixed name":                 {shared, `{template: {template: "ca"}}`, ""},
		"labels without the workspace": {shared, `{selector: {matchLabels: {app: db}, rewrite: {template: {template: x}}}}`, "related[0].object: Invalid"},
		"labels with the workspace":    {shared, `{selector: {matchLabels: {ws: "{{ .ClusterName }}"}, rewrite: {template: {template: x}}}}`, ""},
		"a namespace of the user":      {own, `{template: {template: "x"}, namespace: {reference: {path: spec.namespace}}}`, "related[0].object.namespace: Invalid"},
		"the namespace of the copy": {
			own, `{reference: {path: spec.secretName}, namespace: {reference: {path: metadata.namespace}}}`, "",
		},
		"a namespace with the workspace": {shared, `{reference: {path: spec.secretName}, namespace: {template: {template: "{{ .ClusterName }}"}}}`, ""},
		"the namespace of the setup":     {`{name: "{{ .ClusterName }}-{{ .Object.metadata.name }}", namespace: kcp}`, `{template: {template: "x"}}`, "naming.namespace: Invalid"},
		"related objects in the namespace of the agent": {
			own, `{template: {template: "x"}, namespace: {template: {template: agents}}}`, "related[0].object.namespace.template.template: Invalid",
		},
	} {
		for _, origin := range []string{"service", "kcp"} {
			t.Run(name+", "+origin, func(t *testing.T) {
				spec := object(t, `{resource: {apiGroup: example.com, kind: Widget}, naming: `+tc.naming+`,
  related: [{identifier: a, origin: `+origin+`, kind: Secret, cleanup: true, watch: {byOwner: {}}, object: `+tc.object+`}]}`)
				problems, err := agent.Validate(release.NewestAgent, []agent.Source{{PublishedResource: v1alpha1.PublishedResource{Name: "a", Spec: spec}}}, "kcp", "agents")
				require.NoError(t, err)
				var errs []string
				for _, p := range problems {
					if !p.Warning {
						errs = append(errs, p.Error.Error())
					}
				}
				if tc.want == "" {
					require.Empty(t, errs)
					return
				}
				require.Len(t, errs, 1)
				require.True(t, strings.HasPrefix(errs[0], "spec."+tc.want), errs[0])
			})
		}
	}
}

func TestReserved(t *testing.T) {
	s := &v1alpha1.Setup{Spec: v1alpha1.Spec{Clusters: []v1alpha1.Cluster{
		{Name: "home", Namespace: "kcp"}, {Name: "agents", Namespace: "agents"}, {Name: "far", Context: "far", Namespace: "far"},
	}}}
	require.Equal(t, []string{"kcp", "agents"}, agent.Reserved(s, &v1alpha1.Agent{Cluster: "agents"}))
	require.Equal(t, []string{"far"}, agent.Reserved(s, &v1alpha1.Agent{Cluster: "far"}))
}
