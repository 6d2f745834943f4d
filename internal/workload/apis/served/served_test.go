package served_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/workload/apis/negotiate"
	"github.com/kcpctl/kcpctl/internal/workload/apis/served"
)

var deployments = schema.GroupResource{Group: "apps", Resource: "deployments"}

func newAPI(version string, s *apiextensionsv1.JSONSchemaProps) negotiate.API {
	return negotiate.API{
		Group: "apps", Version: version, Scope: apiextensionsv1.NamespaceScoped, Schema: s,
		Names:        apiextensionsv1.CustomResourceDefinitionNames{Plural: "deployments", Kind: "Deployment"},
		Subresources: apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
		Columns:      []apiextensionsv1.CustomResourceColumnDefinition{{Name: "Ready", Type: "string", JSONPath: ".status.ready"}},
	}
}

// What the controller reads is what the syncer has read.
func TestRoundTrip(t *testing.T) {
	object := &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
		"spec": {Type: "object", Default: &apiextensionsv1.JSON{Raw: []byte(`{"a":1}`)}, Enum: []apiextensionsv1.JSON{{Raw: []byte(`"x"`)}}},
	}}
	of := negotiate.Cluster{APIs: []negotiate.API{newAPI("v1", object), newAPI("v1beta1", object)}, Problems: map[schema.GroupResource]string{{Resource: "services"}: "no"}}
	for gr, want := range map[schema.GroupResource]served.API{
		deployments:            {Versions: of.APIs},
		{Resource: "services"}: {Problem: "no"},
	} {
		a := served.Of(gr, of)
		require.Empty(t, cmp.Diff(want, a))
		content, err := served.Encode(a)
		require.NoError(t, err)
		o := served.Object("edge", "uid", gr, content)
		require.Equal(t, "cluster-edge."+gr.String(), o.GetName())
		require.True(t, served.IsOf(o, "uid"))
		require.False(t, served.IsOf(o, "another"), "of a Cluster that had the name before")
		back, err := served.Decode(gr, o)
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(want, back))
	}
}

// An API that is too large is a problem of this API.
func TestLargeSchemas(t *testing.T) {
	s := &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{}}
	for i := range 20001 {
		s.Properties[strings.Repeat("x", 1+i%10)+string(rune('a'+i%26))+string(rune(0x4e00+i))] = apiextensionsv1.JSONSchemaProps{Type: "string"}
	}
	content, err := served.Encode(served.API{Versions: []negotiate.API{newAPI("v1", s)}})
	require.NoError(t, err)
	back, err := served.Decode(deployments, served.Object("edge", "uid", deployments, content))
	require.NoError(t, err)
	require.Contains(t, back.Problem, "the controller cannot read its schema: it has 2")
	require.Contains(t, back.Problem, "braces, more than 20000")
}

func TestDecodeRefuses(t *testing.T) {
	version := func(text string) string {
		return `{"versions":[{"group":"apps","version":"v1","names":{"plural":"deployments","kind":"Deployment"},"scope":"Namespaced","schema":{"type":"object"}` + text + `}]}`
	}
	for name, tc := range map[string]struct{ content, want string }{
		"nothing":         {"{}", "it must have either versions or a problem"},
		"both":            {strings.TrimSuffix(version(""), "}") + `,"problem":"x"}`, "it must have either versions or a problem"},
		"no JSON":         {"x", "invalid character"},
		"another API":     {version(`,"group":"batch"`), "it has the API deployments.batch"},
		"no version":      {version(`,"version":"../v1"`), `it has the version "../v1", which is not valid`},
		"no kind":         {version(`,"names":{"plural":"deployments","kind":""}`), "version v1 has no kind"},
		"no scope":        {version(`,"scope":"x"`), `version v1 has the scope "x"`},
		"no schema":       {version(`,"schema":null`), "version v1 has no schema of an object"},
		"another schema":  {version(`,"schema":{"type":"string"}`), "version v1 has no schema of an object"},
		"a long problem":  {`{"problem":"` + strings.Repeat("x", 5000) + `"}`, "the problem has more than 4096 bytes"},
		"many objects":    {`{"versions":[` + strings.Repeat("{},", 20000) + `{}]}`, "it has 20002 braces"},
		"many values":     {`{"versions":[],"problem":[` + strings.Repeat("1,", 500001) + `1]}`, "it has 500002 commas"},
		"deep":            {`{"versions":` + strings.Repeat("[", 1000000), "exceeded max depth"},
		"a bomb":          {strings.Repeat(" ", 17<<20), "it has more than 16777216 bytes"},
		"the same twice":  {strings.Replace(version(""), "[{", `[{"group":"apps","version":"v1","names":{"plural":"deployments","kind":"D"},"scope":"Cluster","schema":{"type":"object"}},{`, 1), "or there twice"},
		"another content": {"", "EOF"},
	} {
		var out bytes.Buffer
		w := gzip.NewWriter(&out)
		_, err := w.Write([]byte(tc.content))
		require.NoError(t, err)
		require.NoError(t, w.Close())
		_, err = served.Decode(deployments, served.Object("edge", "uid", deployments, out.Bytes()))
		if tc.content == "" {
			tc.want = "unexpected end of JSON input"
		}
		require.ErrorContains(t, err, tc.want, name)
	}
	for name, content := range map[string]map[string]any{
		"no content": nil, "no key": {"binaryData": map[string]any{}}, "no base64": {"binaryData": map[string]any{"api.json.gz": "ä"}},
		"not compressed": {"binaryData": map[string]any{"api.json.gz": base64.StdEncoding.EncodeToString([]byte("{}"))}}, "another type": {"binaryData": "x"},
	} {
		_, err := served.Decode(deployments, &unstructured.Unstructured{Object: content})
		require.ErrorContains(t, err, "key api.json.gz", name)
	}
}

// Whatever a syncer writes, the controller reads it or has an error.
func FuzzDecode(f *testing.F) {
	content, err := served.Encode(served.API{Versions: []negotiate.API{newAPI("v1", &apiextensionsv1.JSONSchemaProps{Type: "object"})}})
	require.NoError(f, err)
	f.Add(content)
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, content []byte) {
		a, err := served.Decode(deployments, served.Object("edge", "uid", deployments, content))
		require.True(t, err == nil || a.Versions == nil)
		for i := range a.Versions {
			_, err := negotiate.Schema(&a.Versions[i])
			require.NoError(t, err)
		}
	})
}
