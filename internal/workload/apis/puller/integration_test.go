package puller_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kcpctl/kcpctl/internal/workload/apis/puller"
	"github.com/kcpctl/kcpctl/test/apiserver"
)

// kubeconfig is the one of an API server. It is empty with -short.
var kubeconfig string

func TestMain(m *testing.M) {
	os.Exit(apiserver.With(m, func(_ context.Context, s *apiserver.Server) (err error) {
		kubeconfig, err = s.Kubeconfig(apiserver.Admin)
		return err
	}))
}

// TestSchemasOfARealServer creates a CustomResourceDefinition of each pulled schema: the API server then reports
// whether the schema is structural, with the code that kcp uses for an APIResourceSchema.
func TestSchemasOfARealServer(t *testing.T) {
	apiserver.Need(t)
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	require.NoError(t, err)
	p, err := puller.New(cfg)
	require.NoError(t, err)
	client, err := dynamic.NewForConfig(cfg)
	require.NoError(t, err)
	crds := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})

	requested := []schema.GroupResource{
		{Group: "apps", Resource: "deployments"}, {Group: "apps", Resource: "statefulsets"}, {Group: "apps", Resource: "daemonsets"},
		{Resource: "services"}, {Resource: "persistentvolumeclaims"}, {Resource: "pods"}, {Resource: "configmaps"},
		{Group: "networking.k8s.io", Resource: "ingresses"}, {Group: "batch", Resource: "jobs"}, {Group: "batch", Resource: "cronjobs"},
		{Group: "autoscaling", Resource: "horizontalpodautoscalers"}, {Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"},
	}
	got, err := p.Pull(t.Context(), requested)
	require.NoError(t, err)
	require.Empty(t, got.Problems)
	require.NotEmpty(t, got.Version)
	found := map[schema.GroupResource]bool{}
	for _, api := range got.APIs {
		found[api.GVR().GroupResource()] = true
		t.Run(api.GVR().String(), func(t *testing.T) {
			crd := definition(api)
			raw, err := json.Marshal(crd)
			require.NoError(t, err)
			t.Logf("%d bytes", len(raw))
			u := &unstructured.Unstructured{}
			require.NoError(t, json.Unmarshal(raw, &u.Object))
			_, err = crds.Create(t.Context(), u, metav1.CreateOptions{FieldValidation: "Strict"})
			require.NoError(t, err)
			require.Eventually(t, func() bool {
				live, err := crds.Get(t.Context(), crd.Name, metav1.GetOptions{})
				require.NoError(t, err)
				conditions, _, _ := unstructured.NestedSlice(live.Object, "status", "conditions")
				established := false
				for _, c := range conditions {
					m := c.(map[string]any)
					require.NotEqual(t, "NonStructuralSchema", m["type"], m["message"])
					established = established || m["type"] == "Established" && m["status"] == "True"
				}
				return established
			}, time.Minute, 100*time.Millisecond)
		})
	}
	require.Len(t, found, len(requested))

	hash, err := p.Hash(t.Context())
	require.NoError(t, err)
	require.NotEqual(t, got.Hash, hash, "the CustomResourceDefinitions have changed it")
}

// definition returns a CustomResourceDefinition with a pulled schema, in another group.
func definition(api puller.API) *apiextensionsv1.CustomResourceDefinition {
	group := fmt.Sprintf("%s.pulled%s.example.com", api.Version, api.Group)
	names := api.Names
	names.ShortNames, names.Categories = nil, nil
	return &apiextensionsv1.CustomResourceDefinition{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: names.Plural + "." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Names: names, Scope: api.Scope,
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: api.Version, Served: true, Storage: true, Subresources: &api.Subresources, AdditionalPrinterColumns: api.Columns,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: api.Schema},
			}},
		},
	}
}
