package integration

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/workload/apis/negotiate"
	"github.com/kcpctl/kcpctl/internal/workload/apis/puller"
	"github.com/kcpctl/kcpctl/test/apiserver"
)

// TestSchemasOfARealServer creates a CustomResourceDefinition of each pulled schema: the API server then reports
// whether the schema is structural, with the code that kcp uses for an APIResourceSchema. The defaults of a schema are those
// of the server.
func TestSchemasOfARealServer(t *testing.T) {
	apiserver.Need(t)
	m := newMember(t)
	p, err := puller.New(m.cfg)
	require.NoError(t, err)
	crds := m.Resource(kind.CustomResourceDefinition.GVR())

	requested := []schema.GroupResource{
		{Group: "apps", Resource: "deployments"}, {Group: "apps", Resource: "statefulsets"}, {Group: "apps", Resource: "daemonsets"},
		{Resource: "services"}, {Resource: "persistentvolumeclaims"}, {Resource: "pods"}, {Resource: "configmaps"},
		{Group: "networking.k8s.io", Resource: "ingresses"}, {Group: "batch", Resource: "jobs"}, {Group: "batch", Resource: "cronjobs"},
		{Group: "apps", Resource: "replicasets"}, {Group: "networking.k8s.io", Resource: "networkpolicies"},
		{Group: "autoscaling", Resource: "horizontalpodautoscalers"}, {Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"},
	}
	got, err := p.Pull(t.Context(), requested)
	require.NoError(t, err)
	require.Empty(t, got.Problems)
	require.NotEmpty(t, got.Version)
	group := server.Unique("pulled")
	found := map[schema.GroupResource]bool{}
	for _, api := range got.APIs { // all at once: the server takes seconds to serve one, and not much longer for more
		found[api.GroupResource()] = true
		crd := definition(api, group)
		raw, err := json.Marshal(crd)
		require.NoError(t, err)
		t.Logf("%s: %d bytes", crd.Name, len(raw))
		u := &unstructured.Unstructured{}
		require.NoError(t, json.Unmarshal(raw, &u.Object))
		_, err = crds.Create(t.Context(), u, metav1.CreateOptions{FieldValidation: "Strict"})
		require.NoError(t, err)
	}
	for _, api := range got.APIs {
		gvr := api.GroupResource().WithVersion(api.Version)
		t.Run(gvr.String(), func(t *testing.T) {
			crd := definition(api, group)
			requireStructural(t, crds, crd.Name)
			if sample, ok := samples()[api.Names.Kind]; ok {
				sameAsOfTheServer(t, m, crd, gvr, sample)
			}
		})
	}
	require.Len(t, found, len(requested))

	hash, err := p.Hash(t.Context())
	require.NoError(t, err)
	require.NotEqual(t, got.Hash, hash, "the CustomResourceDefinitions have changed it")
}

// requireStructural waits until a CustomResourceDefinition is established, and requires that its schema is structural.
func requireStructural(t *testing.T, crds dynamic.ResourceInterface, name string) {
	t.Helper()
	types := map[any]any{}
	require.Eventually(t, func() bool {
		live, err := crds.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return false
		}
		conditions, _, _ := unstructured.NestedSlice(live.Object, "status", "conditions")
		clear(types)
		for _, c := range conditions {
			types[c.(map[string]any)["type"]] = c
		}
		established, ok := types["Established"].(map[string]any)
		return types["NonStructuralSchema"] != nil || ok && established["status"] == "True"
	}, time.Minute, 100*time.Millisecond)
	require.NotContains(t, types, "NonStructuralSchema")
}

// samples are objects by kind, with as little as the server accepts in every part that has defaults.
func samples() map[string]string {
	const template = `{metadata: {labels: {app: x}}, spec: {
      containers: [{name: c, image: "x:1", ports: [{containerPort: 80}], env: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.name}}}],
        livenessProbe: {httpGet: {port: 80}}, readinessProbe: {tcpSocket: {port: 80}}, lifecycle: {preStop: {httpGet: {port: 80}}}}],
      initContainers: [{name: i, image: "x:1"}],
      volumes: [{name: a, configMap: {name: a}}, {name: b, secret: {secretName: b}}, {name: c, downwardAPI: {items: []}}, {name: e, emptyDir: {}},
        {name: p, projected: {sources: [{serviceAccountToken: {path: t}}]}},
        {name: v, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}]`
	return map[string]string{
		"Deployment": `{spec: {selector: {matchLabels: {app: x}}, template: ` + template + `}}}}`,
		"DaemonSet":  `{spec: {selector: {matchLabels: {app: x}}, template: ` + template + `}}}}`,
		"StatefulSet": `{spec: {serviceName: x, selector: {matchLabels: {app: x}}, volumeClaimTemplates: [{metadata: {name: d},
          spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}], template: ` + template + `}}}}`,
		"Job":                     `{spec: {template: ` + template + `, restartPolicy: Never}}}}`,
		"CronJob":                 `{spec: {schedule: "* * * * *", jobTemplate: {spec: {template: ` + template + `, restartPolicy: Never}}}}}}`,
		"Service":                 `{spec: {selector: {app: x}, ports: [{port: 80}]}}`,
		"PersistentVolumeClaim":   `{spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}`,
		"HorizontalPodAutoscaler": `{spec: {maxReplicas: 3, scaleTargetRef: {kind: Deployment, name: x, apiVersion: apps/v1}}}`,
		"NetworkPolicy":           `{spec: {podSelector: {}, ingress: [{ports: [{port: 80}]}]}}`,
		"ReplicaSet":              `{spec: {selector: {matchLabels: {app: x}}, template: ` + template + `}}}}`,
	}
}

// sameAsOfTheServer compares what a cluster makes of an object of a user, and of the same object with the defaults of
// the pulled schema: if these differed from those of the cluster, the pods of workloads would restart when they get them.
func sameAsOfTheServer(t *testing.T, client dynamic.Interface, crd *apiextensionsv1.CustomResourceDefinition,
	gvr schema.GroupVersionResource, sample string) {
	create := func(r schema.GroupVersionResource, spec any) map[string]any {
		u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
		u.SetGroupVersionKind(r.GroupVersion().WithKind(crd.Spec.Names.Kind))
		u.SetName("x")
		out, err := client.Resource(r).Namespace("default").Create(t.Context(), u, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		require.NoError(t, err)
		for _, path := range []string{"clusterIP", "clusterIPs", "selector", "template/metadata/labels", "updateStrategy/rollingUpdate"} {
			unstructured.RemoveNestedField(out.Object, append([]string{"spec"}, strings.Split(path, "/")...)...)
		}
		return out.Object["spec"].(map[string]any)
	}
	object := map[string]any{}
	require.NoError(t, yaml.Unmarshal([]byte(sample), &object))
	var stored *unstructured.Unstructured
	var err error
	require.Eventually(t, func() bool { // it is served a moment after it is established
		u := &unstructured.Unstructured{Object: map[string]any{"spec": object["spec"]}}
		u.SetGroupVersionKind(schema.GroupVersionKind{Group: crd.Spec.Group, Version: gvr.Version, Kind: crd.Spec.Names.Kind})
		u.SetName("x")
		r := schema.GroupVersionResource{Group: crd.Spec.Group, Version: gvr.Version, Resource: crd.Spec.Names.Plural}
		stored, err = client.Resource(r).Namespace("default").Create(t.Context(), u, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return !apierrors.IsNotFound(err)
	}, time.Minute, 100*time.Millisecond)
	require.NoError(t, err)
	pulled := stored.Object["spec"].(map[string]any)
	require.NotEqual(t, object["spec"], pulled, "it has defaults")
	require.Equal(t, create(gvr, object["spec"]), create(gvr, pulled))
}

// definition returns a CustomResourceDefinition with a pulled schema, in another group.
func definition(api negotiate.API, group string) *apiextensionsv1.CustomResourceDefinition {
	group = fmt.Sprintf("%s.%s%s.example.com", api.Version, group, api.Group)
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
