package puller_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/kcpctl/kcpctl/internal/workload/apis/puller"
)

// cluster answers requests by path.
func cluster(t *testing.T, documents map[string]string) *puller.Puller {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, ok := documents[r.URL.RequestURI()]
		if !ok {
			http.NotFound(w, r)
			return
		}
		raw, err := yaml.YAMLToJSON([]byte(text))
		if err != nil || text == "broken" {
			http.Error(w, "the disk is full", http.StatusInternalServerError)
			return
		}
		_, _ = w.Write(raw)
	}))
	t.Cleanup(s.Close)
	p, err := puller.New(&rest.Config{Host: s.URL})
	require.NoError(t, err)
	return p
}

const document = `
components:
  schemas:
    io.k8s.api.apps.v1.Widget:
      type: object
      description: A Widget.
      x-kubernetes-group-version-kind: [{group: apps, version: v1, kind: Widget}]
      properties:
        metadata: {allOf: [{$ref: "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}], default: {}}
        spec: {allOf: [{$ref: "#/components/schemas/Spec"}], default: {}, description: What is wanted.}
    Spec:
      type: object
      required: [name]
      properties:
        name: {type: string, default: ""}
        template: {$ref: "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}
        memory: {$ref: "#/components/schemas/io.k8s.apimachinery.pkg.api.resource.Quantity"}
        port: {$ref: "#/components/schemas/io.k8s.apimachinery.pkg.util.intstr.IntOrString"}
        since: {$ref: "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.Time"}
        again: {$ref: "#/components/schemas/Spec"}
        labels: {type: object, additionalProperties: {type: string, default: ""}}
        free: {type: object, additionalProperties: true}
        ports:
          type: array
          items: {allOf: [{$ref: "#/components/schemas/Port"}], default: {}}
          x-kubernetes-list-type: map
          x-kubernetes-list-map-keys: [port, protocol]
          x-kubernetes-patch-merge-key: port
          x-kubernetes-patch-strategy: merge
        old: {type: array, items: {$ref: "#/components/schemas/Port"}, x-kubernetes-patch-merge-key: port, x-kubernetes-patch-strategy: "merge,retainKeys"}
        names: {type: array, items: {type: string, default: ""}, x-kubernetes-patch-strategy: merge}
        args: {type: array, items: {type: string, default: ""}}
    Port:
      type: object
      properties:
        port: {type: integer, format: int32, default: 0}
        protocol: {type: string, default: TCP}
    io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta: {type: object, properties: {name: {type: string}}}
    io.k8s.apimachinery.pkg.api.resource.Quantity: {oneOf: [{type: string}, {type: number}]}
    io.k8s.apimachinery.pkg.util.intstr.IntOrString: {format: int-or-string, oneOf: [{type: integer}, {type: string}]}
    io.k8s.apimachinery.pkg.apis.meta.v1.Time: {type: string, format: date-time, description: A time.}
    io.k8s.api.apps.v1.Broken:
      type: object
      x-kubernetes-group-version-kind: [{group: apps, version: v1, kind: Broken}]
      properties: {spec: {$ref: "#/components/schemas/Missing"}}
`

// served is a cluster with a built-in Widget and a CustomResourceDefinition.
func served() map[string]string {
	return map[string]string{
		"/version":             `gitVersion: v1.36.3`,
		"/openapi/v3":          `paths: {apis/apps/v1: {serverRelativeURL: "/openapi/v3/apis/apps/v1?hash=1"}, api/v1: {serverRelativeURL: "/openapi/v3/api/v1?hash=2"}}`,
		"/apis":                `groups: [{name: apps, versions: [{version: v1}], preferredVersion: {version: v1}}, {name: example.com, versions: [{version: v2}, {version: v1}], preferredVersion: {version: v1}}]`,
		"/api/v1":              `resources: []`,
		"/apis/apps/v1":        `resources: [{name: widgets, singularName: widget, kind: Widget, namespaced: true, shortNames: [wd]}, {name: widgets/status, kind: Widget}, {name: widgets/scale, kind: Scale}, {name: brokens, kind: Broken}]`,
		"/apis/example.com/v1": `resources: [{name: gadgets, singularName: gadget, kind: Gadget}]`,
		"/apis/example.com/v2": `resources: [{name: gadgets, singularName: gadget, kind: Gadget}, {name: others, kind: Other}]`,
		"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gadgets.example.com": `
metadata: {name: gadgets.example.com}
spec:
  versions:
  - {name: v1, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object}}}}, additionalPrinterColumns: [{name: Size, type: string, jsonPath: .spec.size}]}
  - {name: v2, schema: {openAPIV3Schema: {type: object}}, subresources: {scale: {specReplicasPath: .spec.n, statusReplicasPath: .status.n}}}`,
		"/openapi/v3/apis/apps/v1?hash=1": document,
	}
}

func TestPullBuiltIn(t *testing.T) {
	got, err := cluster(t, served()).Pull(t.Context(), []schema.GroupResource{{Group: "apps", Resource: "widgets"}})
	require.NoError(t, err)
	require.Empty(t, got.Problems)
	require.Equal(t, "v1.36.3", got.Version)
	require.Len(t, got.APIs, 1)
	api := got.APIs[0]
	require.Equal(t, schema.GroupResource{Group: "apps", Resource: "widgets"}, api.GroupResource())
	require.Equal(t, "v1", api.Version)
	require.Equal(t, apiextensionsv1.NamespaceScoped, api.Scope)
	require.Equal(t, []string{"wd"}, api.Names.ShortNames)
	require.NotNil(t, api.Subresources.Status)
	require.Equal(t, ".spec.replicas", api.Subresources.Scale.SpecReplicasPath)

	want := `
type: object
description: A Widget.
properties:
  metadata: {type: object}
  spec:
    type: object
    description: What is wanted.
    required: [name]
    properties:
      name: {type: string}
      template: {type: object, x-kubernetes-preserve-unknown-fields: true}
      memory: {x-kubernetes-int-or-string: true, anyOf: [{type: integer}, {type: string}], pattern: '^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$'}
      port: {x-kubernetes-int-or-string: true, anyOf: [{type: integer}, {type: string}]}
      since: {type: string, format: date-time}
      again: {type: object, x-kubernetes-preserve-unknown-fields: true}
      labels: {type: object, additionalProperties: {type: string}}
      free: {type: object, x-kubernetes-preserve-unknown-fields: true}
      ports:
        type: array
        x-kubernetes-list-type: map
        x-kubernetes-list-map-keys: [port, protocol]
        items:
          type: object
          required: [port]
          properties: {port: {type: integer, format: int32}, protocol: {type: string, default: TCP}}
      old:
        type: array
        x-kubernetes-list-type: map
        x-kubernetes-list-map-keys: [port]
        items:
          type: object
          required: [port]
          properties: {port: {type: integer, format: int32}, protocol: {type: string, default: TCP}}
      names: {type: array, x-kubernetes-list-type: set, items: {type: string}}
      args: {type: array, x-kubernetes-list-type: atomic, items: {type: string}}
`
	raw, err := json.Marshal(api.Schema)
	require.NoError(t, err)
	require.YAMLEq(t, want, string(raw))
}

// The document of the server comes first. The table adds what it does not have, where the server has the field.
func TestPullDefaults(t *testing.T) {
	documents := served()
	documents["/apis/apps/v1"] = `resources: [{name: deployments, kind: Deployment}]`
	documents["/openapi/v3/apis/apps/v1?hash=1"] = `
components:
  schemas:
    io.k8s.api.apps.v1.Deployment:
      type: object
      x-kubernetes-group-version-kind: [{group: apps, version: v1, kind: Deployment}]
      properties: {spec: {$ref: "#/components/schemas/io.k8s.api.apps.v1.DeploymentSpec"}}
    io.k8s.api.apps.v1.DeploymentSpec:
      type: object
      properties:
        replicas: {type: integer}
        revisionHistoryLimit: {type: integer, default: 5}
        strategy: {allOf: [{$ref: "#/components/schemas/io.k8s.api.apps.v1.DeploymentStrategy"}], default: {}}
    io.k8s.api.apps.v1.DeploymentStrategy: {type: object, properties: {type: {type: string}}}
`
	got, err := cluster(t, documents).Pull(t.Context(), []schema.GroupResource{{Group: "apps", Resource: "deployments"}})
	require.NoError(t, err)
	raw, err := json.Marshal(got.APIs[0].Schema.Properties["spec"])
	require.NoError(t, err)
	require.YAMLEq(t, `
type: object
properties:
  replicas: {type: integer, default: 1}
  revisionHistoryLimit: {type: integer, default: 5}
  strategy: {type: object, default: {type: RollingUpdate}, properties: {type: {type: string, default: RollingUpdate}}}
`, string(raw))
}

func TestPullCustomResourceDefinition(t *testing.T) {
	got, err := cluster(t, served()).Pull(t.Context(), []schema.GroupResource{{Group: "example.com", Resource: "gadgets"}})
	require.NoError(t, err)
	require.Len(t, got.APIs, 2)
	require.Equal(t, "v1", got.APIs[0].Version, "the preferred version is first")
	require.Contains(t, got.APIs[0].Schema.Properties, "spec")
	require.Equal(t, "Size", got.APIs[0].Columns[0].Name)
	require.Equal(t, ".spec.n", got.APIs[1].Subresources.Scale.SpecReplicasPath)
	require.Equal(t, apiextensionsv1.ClusterScoped, got.APIs[1].Scope)
}

func TestPullReportsWhatCannotBeUsed(t *testing.T) {
	documents := served()
	documents["/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gadgets.example.com"] = `
metadata: {name: gadgets.example.com}
status: {conditions: [{type: NonStructuralSchema, status: "True", message: "spec.validation: Required value"}]}`
	got, err := cluster(t, documents).Pull(t.Context(), []schema.GroupResource{
		{Group: "apps", Resource: "nothing"}, {Group: "unknown.io", Resource: "things"}, {Group: "apps", Resource: "brokens"},
		{Group: "example.com", Resource: "gadgets"}, {Group: "example.com", Resource: "others"}, {Group: "apps", Resource: "widgets"},
	})
	require.NoError(t, err)
	require.Len(t, got.APIs, 1, "one API that cannot be used does not affect the others")
	require.Equal(t, map[schema.GroupResource]string{
		{Group: "apps", Resource: "nothing"}:        "the cluster does not serve nothing.apps",
		{Group: "unknown.io", Resource: "things"}:   "the cluster does not serve things.unknown.io",
		{Group: "apps", Resource: "brokens"}:        "schema of apps/v1, Kind=Broken: io.k8s.api.apps.v1.Broken refers to Missing, which does not exist",
		{Group: "example.com", Resource: "gadgets"}: "the schema of CustomResourceDefinition gadgets.example.com is not structural: spec.validation: Required value",
		{Group: "example.com", Resource: "others"}:  "the cluster has no OpenAPI v3 document for example.com/v2",
	}, got.Problems)
}

func TestPullFailsIfTheServerCannotBeRead(t *testing.T) {
	for _, path := range []string{"/version", "/openapi/v3", "/apis", "/apis/apps/v1", "/openapi/v3/apis/apps/v1?hash=1", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gadgets.example.com"} {
		t.Run(path, func(t *testing.T) {
			documents := served()
			documents[path] = "broken"
			_, err := cluster(t, documents).Pull(t.Context(), []schema.GroupResource{
				{Group: "apps", Resource: "widgets"}, {Group: "example.com", Resource: "gadgets"},
			})
			require.ErrorContains(t, err, path+": an error on the server (\"the disk is full\")")
		})
	}
}

func TestHashChangesWithDocuments(t *testing.T) {
	documents := served()
	p := cluster(t, documents)
	first, err := p.Hash(t.Context())
	require.NoError(t, err)
	got, err := p.Pull(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, first, got.Hash)
	documents["/openapi/v3"] = `paths: {apis/apps/v1: {serverRelativeURL: "/openapi/v3/apis/apps/v1?hash=9"}}`
	second, err := p.Hash(t.Context())
	require.NoError(t, err)
	require.NotEqual(t, first, second)
}
