package workloads_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"pgregory.net/rapid"
	kjson "sigs.k8s.io/json"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
)

func crd(t *testing.T) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	u, err := api.CRD()
	require.NoError(t, err)
	data, err := json.Marshal(u)
	require.NoError(t, err)
	crd := &apiextensionsv1.CustomResourceDefinition{}
	strict, err := kjson.UnmarshalStrict(data, crd)
	require.NoError(t, err)
	require.Empty(t, strict)
	return crd
}

func TestCRDHasTheNamesOfTheTypes(t *testing.T) {
	c := crd(t)
	require.Equal(t, api.ClusterGVR().GroupResource().String(), c.Name)
	require.Equal(t, api.Group, c.Spec.Group)
	require.Equal(t, api.KindCluster, c.Spec.Names.Kind)
	require.Equal(t, api.Version, c.Spec.Versions[0].Name)
	require.NotNil(t, c.Spec.Versions[0].Subresources.Status)
}

// A field that is missing in the CRD is dropped by the API server, and one that is missing in the types by the
// controller.
func TestCRDHasTheFieldsOfTheTypes(t *testing.T) {
	properties := crd(t).Spec.Versions[0].Schema.OpenAPIV3Schema.Properties
	inSetup := []string{".tenancy.pods.priorityClasses", ".tenancy.pods.tolerationKeys"} // the policy of the cluster has them
	spec := slices.DeleteFunc(fields(reflect.TypeFor[api.ClusterSpec](), ""), func(path string) bool { return slices.Contains(inSetup, path) })
	require.Equal(t, spec, paths(properties["spec"], ""))
	require.Equal(t, fields(reflect.TypeFor[api.ClusterStatus](), ""), paths(properties["status"], ""))
}

// fields returns the paths of the JSON fields of a struct.
func fields(t reflect.Type, prefix string) []string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || t == reflect.TypeFor[metav1.Time]() || t == reflect.TypeFor[metav1.Duration]() {
		return []string{prefix}
	}
	var all []string
	for i := range t.NumField() {
		path := prefix
		if name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); name != "" {
			path += "." + name
		}
		all = append(all, fields(t.Field(i).Type, path)...)
	}
	slices.Sort(all)
	return all
}

// paths returns the paths of the properties of a schema.
func paths(s apiextensionsv1.JSONSchemaProps, prefix string) []string {
	if s.Items != nil {
		s = *s.Items.Schema
	}
	if len(s.Properties) == 0 {
		return []string{prefix}
	}
	var all []string
	for name, p := range s.Properties {
		all = append(all, paths(p, prefix+"."+name)...)
	}
	slices.Sort(all)
	return all
}

func TestClusterRoundTrip(t *testing.T) {
	c := &api.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c1", Labels: map[string]string{"region": "eu"}}}
	c.Spec = api.ClusterSpec{
		SyncMode: v1alpha1.SyncModePush, KubeconfigSecretRef: &api.SecretReference{Namespace: "default", Name: "cluster-c1"},
		ClusterSettings: v1alpha1.ClusterSettings{EvictAfter: &metav1.Duration{Duration: 90 * time.Second}},
	}
	c.Status.APIs = []api.APIStatus{{Group: "apps", Resource: "deployments", Version: "v1", State: api.APIPublished}}
	c.Status.Capacity = &api.Capacity{Allocatable: map[corev1.ResourceName]resource.Quantity{"cpu": resource.MustParse("1500m")}}
	u, err := c.Unstructured()
	require.NoError(t, err)
	require.Equal(t, api.ClusterGVK(), u.GroupVersionKind())
	evictAfter, _, _ := unstructured.NestedString(u.Object, "spec", "evictAfter")
	require.Equal(t, "1m30s", evictAfter)

	back, err := api.ClusterOf(u)
	require.NoError(t, err)
	require.Equal(t, c.Spec, back.Spec)
	require.True(t, back.Status.Capacity.Allocatable.Cpu().Equal(resource.MustParse("1.5")))
	require.Equal(t, 90*time.Second, back.EvictAfter())
	require.True(t, back.API(schema.GroupResource{Group: "apps", Resource: "deployments"}).State.Serves())
	require.Equal(t, api.APIIgnored, back.API(schema.GroupResource{Resource: "services"}).State)
}

func TestClusterDefaults(t *testing.T) {
	c := &api.Cluster{}
	require.Equal(t, time.Minute, c.EvictAfter())
	require.Equal(t, v1alpha1.SyncModePull, c.Mode())
	c.Spec.EvictAfter = &metav1.Duration{}
	require.Zero(t, c.EvictAfter(), "0s means never")
}

func TestClusterOfOtherObjects(t *testing.T) {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "x"}}}
	_, err := api.ClusterOf(u)
	require.ErrorContains(t, err, "/v1, Kind=Secret x is not a workloads.kcp.dev/v1alpha1, Kind=Cluster")
	u.SetGroupVersionKind(api.ClusterGVK())
	u.Object["spec"] = map[string]any{"syncMode": int64(1)}
	_, err = api.ClusterOf(u)
	require.ErrorContains(t, err, "read Cluster x")
}

func TestValidateClusterName(t *testing.T) {
	for name, problem := range map[string]string{
		"c1": "", "a-b": "", strings.Repeat("c", 40): "",
		"": "RFC 1123", "C1": "RFC 1123", "a.b": "must not contain dots", "a--b": "contains --", strings.Repeat("c", 41): "more than 40",
	} {
		err := api.ValidateClusterName(name)
		if problem == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, problem)
		}
	}
}

func TestNames(t *testing.T) {
	long := strings.Repeat("n", 70)
	for _, tc := range []struct{ got, want string }{
		{api.LeafName("web", "c1"), "web--c1"},
		{api.LeafName(strings.Repeat("n", 59), "c1"), strings.Repeat("n", 59) + "--c1"},
		{api.LeafName(strings.Repeat("n", 60), "c1"), strings.Repeat("n", 48) + "-cuwit5dp5d--c1"},
		{api.DownstreamNamespace("demo-x7k2m9qd", "2b1xkq", "default"), "default-ys1gqq0bhr"},
		{api.DownstreamNamespace("demo-x7k2m9qd", "2b1xkq", long[:63]), long[:52] + "-jhm9d002fy"},
	} {
		require.Equal(t, tc.want, tc.got, "names must not change: they are in clusters")
		require.LessOrEqual(t, len(tc.got), 63)
	}
}

func TestNamesOfLeavesAreValidAndDifferent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		root := rapid.StringMatching(`[a-z0-9]([a-z0-9.-]{0,70}[a-z0-9])?`)
		cluster := rapid.StringMatching(`[a-z0-9](-?[a-z0-9]){0,19}`)
		r1, r2, c1, c2 := root.Draw(t, "r1"), root.Draw(t, "r2"), cluster.Draw(t, "c1"), cluster.Draw(t, "c2")
		require.NoError(t, api.ValidateClusterName(c1))
		n1, n2 := api.LeafName(r1, c1), api.LeafName(r2, c2)
		require.Equal(t, r1 == r2 && c1 == c2, n1 == n2, "%s %s", n1, n2)
		require.LessOrEqual(t, len(n1), 63)
		if len(validation.IsDNS1123Subdomain(r1)) == 0 {
			require.Empty(t, validation.IsDNS1123Subdomain(n1), n1)
		}
	})
}

func TestALongNameOfAClusterIsPossible(t *testing.T) {
	for n := range 80 {
		cluster := strings.Repeat("c", n)
		require.True(t, strings.HasSuffix(api.LeafName("web", cluster), "--"+cluster))
		require.True(t, strings.HasSuffix(api.LeafName(strings.Repeat("n", 70), cluster), "--"+cluster))
	}
}

func TestNamespacesOfWorkspacesDiffer(t *testing.T) {
	seen := map[string]string{}
	for _, setup := range []string{"a", "b"} {
		for _, ws := range []string{"1", "11", "2"} {
			for _, ns := range []string{"1", "default", "1-default"} {
				key := setup + "/" + ws + "/" + ns
				name := api.DownstreamNamespace(setup, ws, ns)
				require.Empty(t, seen[name], "%s is also the namespace of %s", name, key)
				require.Empty(t, validation.IsDNS1123Label(name))
				seen[name] = key
			}
		}
	}
}

func TestMergePatch(t *testing.T) {
	from := map[string]any{"same": "a", "changed": int64(1), "removed": true, "list": []any{int64(1)}, "map": map[string]any{"x": "y", "z": "1"}}
	to := map[string]any{"same": "a", "changed": int64(2), "added": "b", "list": []any{int64(2)}, "map": map[string]any{"x": "y"}}
	require.Equal(t, map[string]any{
		"changed": int64(2), "removed": nil, "added": "b", "list": []any{int64(2)}, "map": map[string]any{"z": nil},
	}, api.MergePatch(from, to))
	require.Empty(t, api.MergePatch(to, to))
}
