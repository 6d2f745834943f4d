package redact

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
)

func TestSetupWithoutSecrets(t *testing.T) {
	s := &v1alpha1.Setup{}
	s.Metadata.Name = "demo"
	s.Spec.Version = "v0.32.3"
	s.Spec.Defaults.ExtraArgs = []string{"--token-url=MARKER-flag", "--v=4", "--feature-gates=A=true,B=false", "--bare"}
	s.Spec.Defaults.PodTemplate = v1alpha1.Overlay{
		"metadata": map[string]any{"annotations": map[string]any{"name": "MARKER-annotation"}},
		"spec": map[string]any{
			"containers": []any{map[string]any{
				"name": "side", "image": "registry/side:1", "command": []any{"sh", "-c", "login MARKER-command"},
				"args": []any{"--password", "MARKER-argument", "--level=3"},
				"env": []any{
					map[string]any{"name": "TOKEN", "value": "MARKER-variable"}, map[string]any{"name": "LEVEL", "value": "3"},
				},
			}},
			"volumes": []any{map[string]any{"name": "v", "csi": map[string]any{
				"volumeAttributes": map[string]any{"any": "MARKER-attribute", "password": "MARKER-password"},
			}}},
			"terminationGracePeriodSeconds": float64(30),
		},
	}
	s.Spec.Agents = []v1alpha1.Agent{{Name: "a", PublishedResources: []v1alpha1.PublishedResource{
		{Name: "p", Spec: v1alpha1.Object{"mutation": map[string]any{"set": "MARKER-spec"}}},
	}}}
	r := New()
	text, err := r.Setup(s)
	require.NoError(t, err)
	require.NotContains(t, string(text), "MARKER")
	for _, kept := range []string{"name: demo", "version: v0.32.3", "- --token-url=<redacted>", "- --v=4", "- --bare",
		"- --feature-gates=A=true,B=false", "name: side", "image: registry/side:1", "- --level=3", "name: TOKEN", "value: \"3\"",
		"terminationGracePeriodSeconds: 30"} {
		require.Contains(t, string(text), kept)
	}
	for _, also := range []string{"MARKER-flag", "MARKER-annotation", "login MARKER-command", "MARKER-argument", "MARKER-variable", "MARKER-password"} {
		require.NotContains(t, string(r.Text([]byte("log: "+also))), also, "it is removed from logs, too")
	}
}

// Each field whose content kcpctl passes on is redacted, also one that a later kcpctl adds.
func TestFieldsThatArePassedOn(t *testing.T) {
	seen := map[reflect.Type]bool{}
	var found []string
	var walk func(reflect.Type)
	walk = func(at reflect.Type) {
		for at.Kind() == reflect.Pointer || at.Kind() == reflect.Slice {
			at = at.Elem()
		}
		if at.Kind() != reflect.Struct || seen[at] || !strings.Contains(at.PkgPath(), "v1alpha1") {
			return
		}
		seen[at] = true
		for i := range at.NumField() {
			f := at.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			open := f.Type.Kind() == reflect.Map && f.Type.Elem().Kind() == reflect.Interface
			if open || name == "annotations" {
				found = append(found, name)
				require.Contains(t, freeForm(), name, "%s.%s", at, f.Name)
			}
			if strings.Contains(strings.ToLower(name), "args") {
				require.Equal(t, "extraArgs", name)
			}
			walk(f.Type)
		}
	}
	walk(reflect.TypeFor[v1alpha1.Setup]())
	require.Subset(t, slices.Compact(slices.Sorted(slices.Values(found))), []string{"podTemplate", "service"})
}
