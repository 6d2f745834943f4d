package setup

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
)

// The decoder supports only these kinds of values. A newer Kubernetes API may have others.
func TestTypesAreOnesThatTheDecoderKnows(t *testing.T) {
	d := newDecoder()
	for _, root := range []reflect.Type{setupType(), reflect.TypeFor[podTemplate](), reflect.TypeFor[service]()} {
		eachType(d, root, map[reflect.Type]bool{}, func(inner reflect.Type) {
			if hasNotation(inner) { // such as FieldsV1 in the metadata of a volumeClaimTemplate, which users do not write
				require.Contains(t, []string{"Quantity", "Duration", "Replicas", "IntOrString", "Time", "FieldsV1"}, inner.Name())
				return
			}
			require.Contains(t, []reflect.Kind{
				reflect.Struct, reflect.Map, reflect.Slice, reflect.Interface, reflect.String, reflect.Bool, reflect.Int32, reflect.Int64,
				reflect.Float64,
			}, inner.Kind(), inner)
		})
	}
}

func eachType(d *decoder, t reflect.Type, seen map[reflect.Type]bool, visit func(reflect.Type)) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if seen[t] {
		return
	}
	seen[t] = true
	visit(t)
	switch {
	case isObject(t):
		for _, f := range d.structType(t).fields {
			eachType(d, f.typ, seen, visit)
		}
	case t.Kind() == reflect.Map || t.Kind() == reflect.Slice:
		eachType(d, t.Elem(), seen, visit)
	}
}

func TestSuggestions(t *testing.T) {
	for typo, want := range map[string]string{
		"nmae": "name", "Name": "name", "replica": "replicas", "podTemplates": "podTemplate", "image": "image", "logLvl": "logLevel",
		"foo": "", "n": "", "virtualworkspaceurl": "virtualWorkspaceURL",
	} {
		f := newDecoder().structType(reflect.TypeFor[v1alpha1.Shard]()).nearest(typo)
		if want == "" {
			require.Nil(t, f, typo)
			continue
		}
		require.NotNil(t, f, typo)
		require.Equal(t, want, f.name, typo)
	}
}
