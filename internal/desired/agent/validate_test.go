package agent_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/kcpctl/kcpctl/internal/api/release"
	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/agent"
)

// complete has every field that the agent knows, with a valid value.
const complete = `
resource: {apiGroup: example.com, kind: Widget, versions: [v1]}
filter:
  namespace: {matchLabels: {a: b}, matchExpressions: [{key: c, operator: In, values: [d]}]}
  resource: {matchLabels: {a: b}}
naming: {name: "{{ .ClusterName }}-{{ .Object.metadata.name }}", namespace: "{{ .ClusterPath | sha3short }}"}
enableWorkspacePaths: true
projection: {group: example.org, versions: {v1: v2}, scope: Cluster, kind: Gizmo, plural: gizmos, shortNames: [gi], categories: [all]}
mutation:
  spec:
  - delete: {path: spec.a}
  - regex: {path: spec.b, pattern: "^a", replacement: b}
  - template: {path: spec.c, template: "{{ .Value.String }}"}
  status:
  - cel: {path: status.d, expression: "self.a"}
related:
- identifier: a
  origin: kcp
  group: example.com
  version: v1
  resource: things
  identityHash: abc
  cleanup: true
  projection: {group: example.org, version: v2, resource: others}
  object:
    reference: {path: spec.name, regex: {pattern: a, replacement: b}}
    namespace: {selector: {matchLabels: {a: "{{ .ClusterName }}"}, rewrite: {template: {template: "{{ .Value }}"}}}}
  mutation: {spec: [{delete: {path: a}}]}
  watch: {bySelector: {matchLabels: {a: b}}}
- {identifier: b, origin: service, kind: Secret, cleanup: true, object: {template: {template: "{{ .Object.metadata.name }}"}}, watch: {byOwner: {}}}
synchronization: {enabled: true}
`

func object(t *testing.T, text string) v1alpha1.Object {
	t.Helper()
	out := v1alpha1.Object{}
	require.NoError(t, yaml.Unmarshal([]byte(text), &out))
	return out
}

func validate(t *testing.T, specs ...v1alpha1.Object) []agent.Problem {
	t.Helper()
	var all []agent.Source
	for i, s := range specs {
		all = append(all, agent.Source{PublishedResource: v1alpha1.PublishedResource{Name: string(rune('a' + i)), Spec: s}})
	}
	problems, err := agent.Validate(release.NewestAgent, all)
	require.NoError(t, err)
	return problems
}

func TestCompleteIsValid(t *testing.T) { require.Empty(t, validate(t, object(t, complete))) }

// A value of a wrong type in any field is a problem of that field, and never a crash.
func TestWrongTypes(t *testing.T) {
	tried := 0
	each(map[string]any(object(t, complete)), nil, func(path []any, _ any) {
		for _, wrong := range []any{"text", []any{"text"}, map[string]any{"a": "b"}, nil, true, 1.5} {
			spec := object(t, complete)
			old := replace(map[string]any(spec), path, wrong)
			problems := validate(t, spec)
			if wrong == nil || sameType(old, wrong) {
				continue
			}
			tried++
			found := false
			for _, p := range problems {
				found = found || strings.HasPrefix(p.Field, "spec."+path[0].(string))
			}
			require.True(t, found, "%v: %v", path, problems)
		}
	})
	require.Greater(t, tried, 300)
}

// A field that is not known is a warning, wherever it is.
func TestUnknownFields(t *testing.T) {
	each(map[string]any(object(t, complete)), nil, func(path []any, value any) {
		fields, ok := value.(map[string]any)
		last, _ := path[len(path)-1].(string)
		if !ok || last == "matchLabels" || last == "versions" || len(fields) == 0 {
			return
		}
		spec := object(t, complete)
		replace(map[string]any(spec), append(append([]any{}, path...), "later"), "x")
		problems := validate(t, spec)
		require.Len(t, problems, 1, "%v", path)
		require.True(t, problems[0].Warning, "%v", problems)
		require.Contains(t, problems[0].Field, "later")
	})
}

// each calls a function for every value below a value.
func each(value any, path []any, do func(path []any, value any)) {
	down := func(key, inner any) {
		at := append(append([]any{}, path...), key)
		do(at, inner)
		each(inner, at, do)
	}
	switch value := value.(type) {
	case map[string]any:
		for key, inner := range value {
			down(key, inner)
		}
	case []any:
		for i, inner := range value {
			down(i, inner)
		}
	}
}

// replace sets a value and returns the previous one.
func replace(in any, path []any, value any) any {
	for _, key := range path[:len(path)-1] {
		in = child(in, key)
	}
	last := path[len(path)-1]
	old := child(in, last)
	switch in := in.(type) {
	case map[string]any:
		in[last.(string)] = value
	case []any:
		in[last.(int)] = value
	}
	return old
}

func child(in, key any) any {
	switch in := in.(type) {
	case map[string]any:
		return in[key.(string)]
	case []any:
		return in[key.(int)]
	}
	return nil
}

func sameType(a, b any) bool {
	kind := func(v any) string {
		switch v.(type) {
		case map[string]any:
			return "object"
		case []any:
			return "list"
		case string:
			return "string"
		case bool:
			return "bool"
		}
		return "number"
	}
	return kind(a) == kind(b)
}

func TestTemplates(t *testing.T) {
	for name, c := range map[string]struct{ naming, want string }{
		"with changes the dot":   {`{{ with .Object.metadata }}{{ .name }}-{{ $.ClusterName }}{{ end }}`, ""},
		"range changes the dot":  {`{{ .ClusterName }}{{ range $k, $v := .Object.spec }}{{ .anything }}{{ $v }}{{ end }}`, ""},
		"the root in a block":    {`{{ .ClusterName }}{{ with .Object }}{{ $.Clustername }}{{ end }}`, "no .Clustername"},
		"if keeps the dot":       {`{{ .ClusterName }}{{ if .Objekt }}x{{ end }}`, "no .Objekt"},
		"a pipeline":             {`{{ .ClusterName | trunc 8 | default .Nam }}`, "no .Nam"},
		"parentheses":            {`{{ .ClusterName }}{{ (index .Objects "a").b }}`, "no .Objects"},
		"a function":             {`{{ .ClusterName | sha256 }}`, `function "sha256" not defined`},
		"sprig":                  {`{{ .ClusterName | sha256sum | upper | b64enc }}`, ""},
		"the deprecated names":   {`$remoteClusterName-$remoteName`, ""},
		"an unclosed template":   {`{{ .ClusterName`, "unclosed action"},
		"the deprecated hash":    {`{{ .ClusterName | shortHash }}`, ""},
		"a variable of a block":  {`{{ $n := .ClusterName }}{{ $n.anything }}`, ""},
		"else of with keeps dot": {`{{ .ClusterName }}{{ with .Object }}{{ else }}{{ .Foo }}{{ end }}`, "no .Foo"},
	} {
		t.Run(name, func(t *testing.T) {
			problems := validate(t, v1alpha1.Object{
				"resource": map[string]any{"apiGroup": "example.com", "kind": "Widget"}, "naming": map[string]any{"name": c.naming},
				"projection": map[string]any{"scope": "Cluster"},
			})
			if c.want == "" {
				require.Empty(t, problems)
				return
			}
			require.Len(t, problems, 1)
			require.Contains(t, problems[0].Detail, c.want)
		})
	}
}

// Names that two objects can share are warnings.
func TestNamesThatCollide(t *testing.T) {
	for name, c := range map[string]struct {
		naming map[string]any
		scope  string
		want   []string
	}{
		"the defaults":            {nil, "", nil},
		"no logical cluster":      {map[string]any{"namespace": "all"}, "", []string{".ClusterName"}},
		"no namespace":            {map[string]any{"name": "{{ .Object.metadata.name }}"}, "", []string{".Object.metadata.namespace"}},
		"neither":                 {map[string]any{"name": "x", "namespace": "y"}, "", []string{".ClusterName", ".Object.metadata.namespace"}},
		"no namespaces":           {map[string]any{"name": "{{ .Object.metadata.name }}"}, "Cluster", nil},
		"the namespace as it is":  {map[string]any{"name": "{{ .Object.metadata.name }}", "namespace": "{{ .ClusterName }}-{{ .Object.metadata.namespace }}"}, "", nil},
		"the deprecated variable": {map[string]any{"name": "$remoteName", "namespace": "$remoteClusterName-$remoteNamespaceHash"}, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			spec := v1alpha1.Object{"resource": map[string]any{"apiGroup": "example.com", "kind": "Widget"}}
			if c.naming != nil {
				spec["naming"] = c.naming
			}
			if c.scope != "" {
				spec["projection"] = map[string]any{"scope": c.scope}
			}
			problems := validate(t, spec)
			require.Len(t, problems, len(c.want))
			for i, p := range problems {
				require.True(t, p.Warning)
				require.Contains(t, p.Detail, "contains "+c.want[i])
			}
		})
	}
}

// What agent add proposes is valid, and needs no note.
func TestProposalsAreValid(t *testing.T) {
	var all []v1alpha1.Object
	for _, p := range []agent.Proposal{
		{Group: "example.com", Kind: "Widget", Plural: "widgets", Namespaced: true, Versions: []string{"v1", "v2"}, SecretPath: "spec.secretName"},
		{Group: "example.com", Kind: "Fish", Plural: "fish", Versions: []string{"v1"}},
		{Group: "example.com", Kind: "Gadget", Plural: "gadgets", Namespaced: true},
	} {
		all = append(all, agent.Propose(p).Spec)
	}
	require.Empty(t, validate(t, all...))
}

// The agent creates the copy of a related object again while its object is deleted, which a namespace that is deleted
// refuses.
func TestRelatedObjectsOfTheServiceClusterNeedCleanup(t *testing.T) {
	problems := validate(t, object(t, strings.Replace(complete, "cleanup: true, ", "", 1)))
	require.Len(t, problems, 1)
	require.True(t, problems[0].Warning)
	require.Equal(t, "spec.related[1]", problems[0].Field)
	require.Contains(t, problems[0].Detail, "without cleanup: true")
}
