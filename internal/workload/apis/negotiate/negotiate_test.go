package negotiate_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/apis/negotiate"
)

var widgets = schema.GroupResource{Group: "example.com", Resource: "widgets"}

// widget returns a version of the API widgets, with these fields of spec.
func widget(t *testing.T, version, fields string) negotiate.API {
	t.Helper()
	s := &apiextensionsv1.JSONSchemaProps{}
	require.NoError(t, yaml.UnmarshalStrict([]byte("{type: object, properties: {spec: {type: object, properties: {"+fields+"}}}}"), s))
	return negotiate.API{
		Group: "example.com", Version: version, Schema: s, Scope: apiextensionsv1.NamespaceScoped,
		Names:        apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Kind: "Widget"},
		Subresources: apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
	}
}

func cluster(name string, apis ...negotiate.API) negotiate.Cluster {
	return negotiate.Cluster{Name: name, APIs: apis}
}

// negotiated runs a negotiation and returns what the next one reads.
func negotiated(t *testing.T, in negotiate.Input) (*negotiate.Output, negotiate.Input) {
	t.Helper()
	in.APIs = []schema.GroupResource{widgets}
	out, err := negotiate.Negotiate(in)
	require.NoError(t, err)
	in.Schemas = append(in.Schemas, out.Schemas...)
	if out.Export != nil {
		in.Export = out.Export.DeepCopy()
		require.NoError(t, unstructured.SetNestedField(in.Export.Object, "hash", "status", "identityHash"))
	}
	return out, in
}

// specOf returns the fields of spec in the schema that is published.
func specOf(t *testing.T, in negotiate.Input) []string {
	t.Helper()
	resources, _, _ := unstructured.NestedSlice(in.Export.Object, "spec", "resources")
	require.Len(t, resources, 1)
	for _, s := range in.Schemas {
		if s.GetName() != resources[0].(map[string]any)["schema"] {
			continue
		}
		versions, _, _ := unstructured.NestedSlice(s.Object, "spec", "versions")
		fields, _, _ := unstructured.NestedMap(versions[0].(map[string]any), "schema", "properties", "spec", "properties")
		var names []string
		for _, name := range []string{"a", "b", "c"} {
			if _, ok := fields[name]; ok {
				names = append(names, name)
			}
		}
		return names
	}
	t.Fatalf("no schema %v", resources)
	return nil
}

func states(out *negotiate.Output) map[string]string {
	all := map[string]string{}
	for name, s := range out.States {
		all[name] = string(s[0].State) + " " + s[0].Version + ": " + s[0].Message
	}
	return all
}

func TestFirstPublicationIsTheCommonSchema(t *testing.T) {
	out, in := negotiated(t, negotiate.Input{Clusters: []negotiate.Cluster{
		cluster("c1", widget(t, "v1", "a: {type: string}, b: {type: string}")),
		cluster("c2", widget(t, "v1", "a: {type: string}, c: {type: string}")),
		cluster("c3", widget(t, "v1", "a: {type: integer}")),
		{Name: "c4", Problems: map[schema.GroupResource]string{widgets: "the cluster does not serve widgets.example.com"}},
		cluster("c5", widget(t, "v1", "a: {type: string}")),
	}})
	require.Equal(t, []string{"a"}, specOf(t, in))
	require.Equal(t, map[string]string{
		"c1": "Compatible v1: not published: spec.b: the field is missing",
		"c2": "Compatible v1: not published: spec.c: the field is missing",
		"c3": "Incompatible v1: spec.a: the types differ: string, integer",
		"c4": "Ignored v1: the cluster does not serve widgets.example.com",
		"c5": "Published v1: ",
	}, states(out))
	require.Empty(t, out.ClusterExports, "the identity is not known yet")

	condition := negotiate.Condition(out.States["c3"])
	require.Equal(t, metav1.ConditionFalse, condition.Status)
	require.Equal(t, "widgets.example.com: spec.a: the types differ: string, integer", condition.Message)
	require.Equal(t, metav1.ConditionTrue, negotiate.Condition(out.States["c1"]).Status)
}

func TestAPublishedSchemaStays(t *testing.T) {
	_, in := negotiated(t, negotiate.Input{Clusters: []negotiate.Cluster{
		cluster("c1", widget(t, "v1", "a: {type: string}, b: {type: string}")),
	}})
	published := in.Export.Object["spec"]

	in.Clusters = append(in.Clusters, cluster("c2", widget(t, "v1", "a: {type: string}")))
	out, next := negotiated(t, in)
	require.Empty(t, out.Schemas)
	require.Equal(t, published, out.Export.Object["spec"])
	require.Equal(t, "Incompatible v1: spec.b: the field is missing", states(out)["c2"])

	for _, clusters := range [][]negotiate.Cluster{
		nil, // none could be read
		{cluster("c3", widget(t, "v2", "a: {type: string}"))},
		{cluster("c4", widget(t, "v1", "a: {type: string}, b: {type: string}, c: {type: string}"))},
	} {
		next.Clusters = clusters
		out, _ = negotiated(t, next)
		require.Equal(t, published, out.Export.Object["spec"])
	}
	next.Clusters = []negotiate.Cluster{cluster("c3", widget(t, "v2", "a: {type: string}"))}
	out, _ = negotiated(t, next)
	require.Equal(t, "Incompatible v1: version v1 is published, the cluster serves v2", states(out)["c3"])
}

// kcp hides the objects of an API that is not published.
func TestAnAPIThatIsNoLongerToBePublishedStays(t *testing.T) {
	_, in := negotiated(t, negotiate.Input{Clusters: []negotiate.Cluster{cluster("c1", widget(t, "v1", "a: {type: string}"))}})
	in.APIs = nil
	out, err := negotiate.Negotiate(in)
	require.NoError(t, err)
	require.Equal(t, in.Export.Object["spec"], out.Export.Object["spec"])
	require.Contains(t, states(out)["c1"], "Removed v1: the setup no longer has the API.")
	require.Equal(t, metav1.ConditionTrue, negotiate.Condition(out.States["c1"]).Status)

	require.NoError(t, unstructured.SetNestedSlice(in.Export.Object, []any{}, "spec", "resources"))
	out, err = negotiate.Negotiate(in)
	require.NoError(t, err)
	require.Nil(t, out.Export, "one that a user has withdrawn does not come back")
}

func TestNarrowOnRequest(t *testing.T) {
	_, in := negotiated(t, negotiate.Input{Clusters: []negotiate.Cluster{cluster("c1", widget(t, "v1", "a: {type: string}, b: {type: string}"))}})
	in.Clusters = append(in.Clusters, cluster("c2", widget(t, "v1", "a: {type: string}, c: {type: string}")))
	in.Clusters = append(in.Clusters, cluster("c3", widget(t, "v1", "b: {type: string}")))
	out, in := negotiated(t, in)
	offer := offered(out, "c2")
	require.Equal(t, []string{"spec.b: the field is missing"}, offer.Lost)
	require.Regexp(t, `^widgets\.example\.com:[0-9a-z]{8}$`, offer.Value)
	require.Nil(t, offered(out, "c1"), "it serves the API")

	in.Accepted = map[string][]string{"c2": {offer.Value}}
	out, next := negotiated(t, in)
	require.Equal(t, []string{"a"}, specOf(t, next), "only the cluster of the request is accepted")
	require.Len(t, out.Schemas, 1)
	require.Contains(t, states(out)["c2"], "Compatible")
	require.Equal(t, []string{"spec.a: the field is missing"}, offered(out, "c3").Lost)

	again, _ := negotiated(t, next)
	require.Empty(t, again.Schemas, "a second request changes nothing")
	require.Equal(t, out.Export.Object["spec"], again.Export.Object["spec"])
}

// What a user has accepted is what the status has shown, and nothing else.
func TestOnlyWhatWasSeenIsAccepted(t *testing.T) {
	_, start := negotiated(t, negotiate.Input{Clusters: []negotiate.Cluster{
		cluster("c1", widget(t, "v1", "a: {type: string}, b: {type: string, maxLength: 9}, c: {type: string}"))}})
	with := func(fields string) negotiate.Input {
		in := start
		in.Clusters = append(start.Clusters[:1:1], cluster("c2", widget(t, "v1", fields)))
		return in
	}
	out, _ := negotiated(t, with("a: {type: string}, b: {type: string, maxLength: 5}, c: {type: string}"))
	seen := offered(out, "c2")
	require.Equal(t, []string{"spec.b: maxLength is narrower"}, seen.Lost)
	for name, tc := range map[string]struct{ fields, value string }{
		"another field":                     {"a: {type: string}, b: {type: string, maxLength: 5}", seen.Value},
		"the same field, another limit":     {"a: {type: string}, b: {type: string, maxLength: 4}, c: {type: string}", seen.Value},
		"only the name of the API":          {"a: {type: string}, b: {type: string, maxLength: 5}, c: {type: string}", "widgets.example.com"},
		"a type that has nothing in common": {"a: {type: integer}", seen.Value},
	} {
		t.Run(name, func(t *testing.T) {
			in := with(tc.fields)
			in.Accepted = map[string][]string{"c2": {tc.value}}
			out, _ := negotiated(t, in)
			require.Empty(t, out.Schemas)
			require.Contains(t, states(out)["c2"], "Incompatible")
		})
	}
	// The published schema has gained a field in the meantime: the same narrower schema loses more.
	in := start
	in.Clusters = []negotiate.Cluster{cluster("c1", widget(t, "v1", "a: {type: string}, b: {type: string, maxLength: 9}, c: {type: string}, d: {type: string}"))}
	in.Widen = []schema.GroupResource{widgets}
	_, in = negotiated(t, in)
	in.Clusters, in.Widen = with("a: {type: string}, b: {type: string, maxLength: 5}, c: {type: string}").Clusters, nil
	in.Accepted = map[string][]string{"c2": {seen.Value}}
	out, _ = negotiated(t, in)
	require.Empty(t, out.Schemas)
	require.Len(t, offered(out, "c2").Lost, 2)
}

// offered returns what a user can accept so that a cluster can serve widgets.
func offered(out *negotiate.Output, cluster string) *api.Acceptance {
	return out.States[cluster][0].Accept
}

func TestWidenOnRequest(t *testing.T) {
	_, in := negotiated(t, negotiate.Input{Clusters: []negotiate.Cluster{cluster("c1", widget(t, "v1", "a: {type: string}"))}})
	in.Clusters = []negotiate.Cluster{cluster("c2", widget(t, "v1", "a: {type: string}, b: {type: string}"))}
	in.Widen = []schema.GroupResource{widgets}
	out, next := negotiated(t, in)
	require.Equal(t, []string{"a", "b"}, specOf(t, next))
	require.Empty(t, out.NotWidened)

	next.Clusters = []negotiate.Cluster{cluster("c2", widget(t, "v1", "a: {type: string}, b: {type: string}")),
		cluster("c3", widget(t, "v1", "b: {type: string}, c: {type: string}"))}
	out, next = negotiated(t, next)
	require.Equal(t, []string{"a", "b"}, specOf(t, next))
	const narrower = "it would also become narrower: spec.a: the field is missing"
	require.Equal(t, narrower, out.NotWidened[widgets])
	require.Equal(t, "not widened: "+narrower, out.States["c2"][0].Message)
	require.Equal(t, "not widened: "+narrower+"; spec.a: the field is missing", out.States["c3"][0].Message)
}

// A schema that kcp refuses is not published: what is published is kept, and the states have the reason.
func TestRefusedSchemas(t *testing.T) {
	const because = "kcp refuses the schema that its clusters have in common: no"
	refused := func(in negotiate.Input) (*negotiate.Output, negotiate.Input) {
		out, _ := negotiated(t, in)
		require.Len(t, out.Schemas, 1)
		in.Refused = map[string]string{out.Schemas[0].GetName(): "no"}
		return negotiated(t, in)
	}
	first := negotiate.Input{Clusters: []negotiate.Cluster{cluster("c1", widget(t, "v1", "a: {type: string}")), cluster("c2")}}
	out, _ := refused(first)
	require.Nil(t, out.Export)
	require.Equal(t, "the API is not published: "+because, out.States["c1"][0].Message)
	require.Equal(t, "the cluster does not serve widgets.example.com", out.States["c2"][0].Message)

	_, in := negotiated(t, first)
	in.Clusters = []negotiate.Cluster{cluster("c1", widget(t, "v1", "a: {type: string}, b: {type: string}"))}
	in.Widen = []schema.GroupResource{widgets}
	out, next := refused(in)
	require.Equal(t, []string{"a"}, specOf(t, next))
	require.Equal(t, because, out.NotWidened[widgets])
	require.Equal(t, "not widened: "+because+"; not published: spec.b: the field is missing", out.States["c1"][0].Message)

	in.Clusters, in.Widen = []negotiate.Cluster{cluster("c1", widget(t, "v1", "b: {type: string}"))}, nil
	out, in = negotiated(t, in)
	in.Accepted = map[string][]string{"c1": {offered(out, "c1").Value}}
	out, next = refused(in)
	require.Equal(t, []string{"a"}, specOf(t, next))
	require.Equal(t, "not narrowed: "+because+"; spec.a: the field is missing", out.States["c1"][0].Message)
	require.NotNil(t, offered(out, "c1"), "the request stays")
}

// A cluster that was not read yet may lack what the others have.
func TestWideningWaitsForAllClusters(t *testing.T) {
	_, in := negotiated(t, negotiate.Input{Clusters: []negotiate.Cluster{cluster("c1", widget(t, "v1", "a: {type: string}"))}})
	in.Clusters = []negotiate.Cluster{cluster("c1", widget(t, "v1", "a: {type: string}, b: {type: string}")), {Name: "c2"}}
	in.Widen = []schema.GroupResource{widgets}
	in.Unread = map[schema.GroupResource][]string{widgets: {"c2"}}
	out, in := negotiated(t, in)
	require.Equal(t, []string{"a"}, specOf(t, in))
	require.Equal(t, "not widened: it is not known yet what these clusters serve: c2; not published: spec.b: the field is missing",
		out.States["c1"][0].Message)
	in.Unread = nil
	out, in = negotiated(t, in)
	require.Equal(t, []string{"a", "b"}, specOf(t, in))
	require.Empty(t, out.NotWidened)
	require.Empty(t, out.States["c1"][0].Message)
}

// Objects of an API that was published without defaults do not get them before a user requests it.
func TestDefaultsOnRequest(t *testing.T) {
	_, in := negotiated(t, negotiate.Input{Clusters: []negotiate.Cluster{cluster("c1", widget(t, "v1", "a: {type: integer}"))}})
	in.Clusters = []negotiate.Cluster{cluster("c1", widget(t, "v1", "a: {type: integer, default: 1}"))}
	out, in := negotiated(t, in)
	require.Empty(t, out.Schemas)
	require.NotContains(t, states(out)["c1"], "Incompatible")
	in.Widen = []schema.GroupResource{widgets}
	out, in = negotiated(t, in)
	require.Len(t, out.Schemas, 1)
	in.Clusters = []negotiate.Cluster{cluster("c2", widget(t, "v1", "a: {type: integer}"))}
	in.Widen = nil
	out, _ = negotiated(t, in)
	require.Empty(t, out.Schemas, "a cluster without the default does not take it away")
	require.NotContains(t, states(out)["c2"], "Incompatible")
}

// The offer has all fields that are lost, and there is none without a common schema.
func TestWhatCanBeAccepted(t *testing.T) {
	_, in := negotiated(t, negotiate.Input{Clusters: []negotiate.Cluster{
		cluster("c1", widget(t, "v1", "a: {type: string}, b: {type: string, maxLength: 9}, c: {type: string}")),
	}})
	noStatus := widget(t, "v1", "a: {type: string}")
	noStatus.Subresources.Status = nil
	for name, tc := range map[string]struct {
		api  negotiate.API
		want []string
	}{
		"more than three": {widget(t, "v1", "b: {type: string, maxLength: 5, minLength: 1}"), []string{
			"spec.a: the field is missing", "spec.b: minLength is narrower", "spec.b: maxLength is narrower", "spec.c: the field is missing"}},
		"no status": {noStatus, []string{
			"spec.b: the field is missing", "spec.c: the field is missing", "status: the API has no subresource status"}},
		"another type":    {widget(t, "v1", "a: {type: integer}"), nil},
		"another version": {widget(t, "v2", "a: {type: string}"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			in := in
			in.Clusters = []negotiate.Cluster{cluster("c2", tc.api)}
			out, _ := negotiated(t, in)
			require.Contains(t, states(out)["c2"], "Incompatible")
			if tc.want == nil {
				require.Nil(t, offered(out, "c2"))
				return
			}
			require.Equal(t, tc.want, offered(out, "c2").Lost)
			in.Accepted = map[string][]string{"c2": {offered(out, "c2").Value}}
			out, _ = negotiated(t, in)
			require.NotContains(t, states(out)["c2"], "Incompatible")
		})
	}
}

func TestTheHighestCommonVersionIsPublished(t *testing.T) {
	v1, v2, beta := widget(t, "v1", "a: {type: string}"), widget(t, "v2", "a: {type: string}"), widget(t, "v3beta1", "a: {type: string}")
	for name, tc := range map[string]struct {
		clusters []negotiate.Cluster
		want     string
	}{
		"one":            {[]negotiate.Cluster{cluster("c1", v1, beta, v2)}, "v2"},
		"common":         {[]negotiate.Cluster{cluster("c1", v1, beta, v2), cluster("c2", v1, beta)}, "v1"},
		"none in common": {[]negotiate.Cluster{cluster("c1", v1), cluster("c2", v2)}, "v1"},
		"not everywhere": {[]negotiate.Cluster{cluster("c1"), cluster("c2", v2)}, "v2"},
	} {
		t.Run(name, func(t *testing.T) {
			out, _ := negotiated(t, negotiate.Input{Clusters: tc.clusters})
			versions, _, _ := unstructured.NestedSlice(out.Schemas[0].Object, "spec", "versions")
			require.Equal(t, tc.want, versions[0].(map[string]any)["name"])
		})
	}
}

func TestDifferencesThatNoSchemaHas(t *testing.T) {
	scope, kind, status := widget(t, "v1", ""), widget(t, "v1", ""), widget(t, "v1", "")
	scope.Scope = apiextensionsv1.ClusterScoped
	kind.Names.Kind = "Gadget"
	status.Subresources.Status = nil
	_, in := negotiated(t, negotiate.Input{Clusters: []negotiate.Cluster{cluster("c1", widget(t, "v1", ""))}})
	in.Clusters = []negotiate.Cluster{cluster("c2", scope), cluster("c3", kind), cluster("c4", status)}
	out, _ := negotiated(t, in)
	require.Equal(t, map[string]string{
		"c2": "Incompatible v1: the scope is Namespaced, and Cluster in the cluster",
		"c3": "Incompatible v1: the kind is Widget, and Gadget in the cluster",
		"c4": "Incompatible v1: the API has no subresource status in the cluster",
	}, states(out))
}

func TestObjects(t *testing.T) {
	s := &apiextensionsv1.JSONSchemaProps{Type: "object"}
	names := func(plural, kind string) apiextensionsv1.CustomResourceDefinitionNames {
		return apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Kind: kind}
	}
	in := negotiate.Input{
		APIs: []schema.GroupResource{{Resource: "services"}, {Group: "networking.k8s.io", Resource: "ingresses"}},
		Clusters: []negotiate.Cluster{cluster("c1",
			negotiate.API{Version: "v1", Names: names("services", "Service"), Scope: "Namespaced", Schema: s},
			negotiate.API{Group: "networking.k8s.io", Version: "v1", Names: names("ingresses", "Ingress"), Scope: "Namespaced", Schema: s})},
	}
	out, err := negotiate.Negotiate(in)
	require.NoError(t, err)
	require.Len(t, out.Schemas, 2)
	require.Regexp(t, `^v[0-9a-z]{8}\.services\.core$`, out.Schemas[0].GetName())
	require.Empty(t, out.Schemas[0].GetAnnotations())
	require.Regexp(t, `^v[0-9a-z]{8}\.ingresses\.networking\.k8s\.io$`, out.Schemas[1].GetName())
	require.Contains(t, out.Schemas[1].GetAnnotations(), "api-approved.kubernetes.io")
	listKind, _, _ := unstructured.NestedString(out.Schemas[1].Object, "spec", "names", "listKind")
	require.Equal(t, "IngressList", listKind)

	in.Schemas, in.Export = out.Schemas, out.Export.DeepCopy()
	require.NoError(t, unstructured.SetNestedField(in.Export.Object, "hash", "status", "identityHash"))
	in.APIs = nil
	out, err = negotiate.Negotiate(in)
	require.NoError(t, err)
	require.Equal(t, in.Export.Object["spec"], out.Export.Object["spec"], "what is published stays")
	require.Equal(t, []schema.GroupResource{{Resource: "services"}, {Group: "networking.k8s.io", Resource: "ingresses"}}, negotiate.Exported(out.Export))
	require.Len(t, out.ClusterExports, 1)
	require.Equal(t, "cluster-c1", out.ClusterExports[0].GetName())
	claims, _, _ := unstructured.NestedSlice(out.ClusterExports[0].Object, "spec", "permissionClaims")
	got, err := json.Marshal(claims)
	require.NoError(t, err)
	rest := `"verbs":["get","list","watch","update","patch"]`
	selector := `"defaultSelector":{"matchLabels":{"workloads.kcp.dev/cluster":"c1"}}`
	require.JSONEq(t, `[{"group":"","resource":"services","identityHash":"hash",`+rest+`,`+selector+`},
		{"group":"networking.k8s.io","resource":"ingresses","identityHash":"hash",`+rest+`,`+selector+`},
		{"group":"","resource":"configmaps",`+rest+`,`+selector+`},{"group":"","resource":"secrets",`+rest+`,`+selector+`},
		{"group":"","resource":"serviceaccounts",`+rest+`,`+selector+`}]`, string(got))

	// The controller reads what workloads need in all clusters, and writes the leaves.
	claims, _, _ = unstructured.NestedSlice(out.Export.Object, "spec", "permissionClaims")
	got, err = json.Marshal(claims)
	require.NoError(t, err)
	all := `"verbs":["get","list","watch","update","patch","create","delete"]`
	require.JSONEq(t, `[{"group":"","resource":"configmaps",`+all+`},{"group":"","resource":"secrets",`+all+`},
		{"group":"","resource":"serviceaccounts",`+all+`},{"group":"apis.kcp.io","resource":"apibindings",`+all+`},{"group":"","resource":"namespaces","verbs":["get","list","watch"]},
		{"group":"core.kcp.io","resource":"logicalclusters","verbs":["get","list","watch"]}]`, string(got))
}

func TestObsoleteSchemas(t *testing.T) {
	_, in := negotiated(t, negotiate.Input{Clusters: []negotiate.Cluster{cluster("c1", widget(t, "v1", "a: {type: string}"))}})
	old, bound, foreign := in.Schemas[0].DeepCopy(), in.Schemas[0].DeepCopy(), in.Schemas[0].DeepCopy()
	old.SetName("vold.widgets.example.com")
	bound.SetName("vbound.widgets.example.com")
	foreign.SetName("vforeign.widgets.example.com")
	foreign.SetLabels(nil)
	in.Schemas = append(in.Schemas, old, bound, foreign)

	out, _ := negotiated(t, in)
	require.Empty(t, out.Obsolete, "nothing is deleted if the bindings are not known")
	in.Bound = map[string]bool{bound.GetName(): true}
	out, _ = negotiated(t, in)
	require.Equal(t, []string{old.GetName()}, out.Obsolete)
}

func TestASchemaThatDoesNotExist(t *testing.T) {
	_, in := negotiated(t, negotiate.Input{Clusters: []negotiate.Cluster{cluster("c1", widget(t, "v1", "a: {type: string}"))}})
	name := in.Schemas[0].GetName()
	in.Schemas = nil
	_, err := negotiate.Negotiate(in)
	require.EqualError(t, err, "APIExport kubernetes names the APIResourceSchema "+name+", which does not exist")
}
