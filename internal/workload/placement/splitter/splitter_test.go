package splitter_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/placement/splitter"
)

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	data, err := yaml.YAMLToJSON([]byte(text))
	require.NoError(t, err)
	require.NoError(t, u.UnmarshalJSON(data))
	return u
}

const web = `
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: shop
  uid: "1"
  resourceVersion: "5"
  generation: 3
  labels: {app: web, workloads.kcp.dev/x: z}
  annotations:
    user: kept
    kcp.io/cluster: abc
    internal.kcp.io/x: z
    kubectl.kubernetes.io/last-applied-configuration: "{}"
    workloads.kcp.dev/weights: c1=1
spec:
  replicas: 5
  template: {spec: {containers: [{name: web}]}}
status: {replicas: 1}
`

func shares(replicas map[string]int64) map[string]splitter.Share {
	all := map[string]splitter.Share{}
	for name, n := range replicas {
		all[name] = splitter.Share{Replicas: &n}
	}
	return all
}

func TestLeaves(t *testing.T) {
	root := object(t, web)
	leaves, err := splitter.Leaves(root, shares(map[string]int64{"c1": 3, "c2": 2}))
	require.NoError(t, err)
	require.Equal(t, object(t, web), root, "the root is not modified")
	require.Len(t, leaves, 2)
	require.NotEmpty(t, leaves[0].GetAnnotations()[api.AnnotationSpecHash])
	annotations := leaves[0].GetAnnotations()
	delete(annotations, api.AnnotationSpecHash)
	leaves[0].SetAnnotations(annotations)
	require.Equal(t, object(t, `
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web--c1
  namespace: shop
  labels: {app: web, workloads.kcp.dev/cluster: c1}
  annotations: {user: kept, workloads.kcp.dev/name: web, workloads.kcp.dev/root-generation: "3"}
  finalizers: [workloads.kcp.dev/syncer]
  ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: web, uid: "1", controller: true, blockOwnerDeletion: true}]
spec:
  replicas: 3
  template: {spec: {containers: [{name: web}]}}
`), leaves[0])
	replicas, _, _ := unstructured.NestedInt64(leaves[1].Object, "spec", "replicas")
	require.Equal(t, int64(2), replicas)
	require.True(t, splitter.IsRoot(root))
	require.False(t, splitter.IsRoot(leaves[0]))
	require.True(t, splitter.IsLeafOf(leaves[0], root))
	require.False(t, splitter.IsLeafOf(leaves[0], object(t, "{apiVersion: v1, kind: Pod, metadata: {uid: '2'}}")))
}

// As in Kubernetes, a root adopts a leaf that was left without an owner, and no leaf of another owner.
func TestTheLeafOfAnEarlierRoot(t *testing.T) {
	root := object(t, web)
	leaves, err := splitter.Leaves(root, shares(map[string]int64{"c1": 3}))
	require.NoError(t, err)
	next := root.DeepCopy()
	next.SetUID("2")
	require.False(t, splitter.IsLeafOf(leaves[0], next))
	require.True(t, splitter.IsEnding(leaves[0], next), "kcp deletes it soon")
	require.False(t, splitter.IsEnding(leaves[0], root))
	orphan := leaves[0].DeepCopy()
	orphan.SetOwnerReferences(nil)
	for _, owner := range []*unstructured.Unstructured{root, next} {
		require.True(t, splitter.IsLeafOf(orphan, owner), "it is adopted")
		require.Equal(t, leaves, splitter.Compare(owner, leaves, []*unstructured.Unstructured{orphan}).Apply)
	}
	orphan.SetAnnotations(nil)
	require.False(t, splitter.IsLeafOf(orphan, root), "a user has created it")
}

func TestObjectsThatAreNotDivided(t *testing.T) {
	root := object(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: cfg, namespace: shop, uid: '1'}, data: {a: b}}")
	leaves, err := splitter.Leaves(root, map[string]splitter.Share{"c1": {NeededBy: []string{"deployments.apps/web", "deployments.apps/api"}}})
	require.NoError(t, err)
	require.Equal(t, "deployments.apps/api,deployments.apps/web", leaves[0].GetAnnotations()[api.AnnotationNeededBy])
	require.NotContains(t, leaves[0].GetAnnotations(), api.AnnotationRootGeneration, "ConfigMaps have no generation")
	require.Equal(t, map[string]any{"a": "b"}, leaves[0].Object["data"])
	require.NotContains(t, leaves[0].Object, "spec")
}

func TestCompare(t *testing.T) {
	root := object(t, web)
	want, err := splitter.Leaves(root, shares(map[string]int64{"c1": 3, "c2": 2, "c3": 1}))
	require.NoError(t, err)
	names := func(all []*unstructured.Unstructured) []string {
		var out []string
		for _, u := range all {
			out = append(out, u.GetName())
		}
		return out
	}
	same, changed, other := want[0].DeepCopy(), want[1].DeepCopy(), want[2].DeepCopy()
	changed.SetAnnotations(map[string]string{api.AnnotationSpecHash: "old"})
	other.SetLabels(nil)
	left, going := want[0].DeepCopy(), want[0].DeepCopy()
	left.SetName("web--c4")
	going.SetName("web--c5")
	going.SetDeletionTimestamp(&metav1.Time{Time: time.Unix(1, 0)})

	c := splitter.Compare(root, want, []*unstructured.Unstructured{root, same, changed, other, left, going})
	require.Equal(t, []string{"web--c2"}, names(c.Apply))
	require.Equal(t, []string{"web--c3"}, names(c.Collisions))
	require.Equal(t, []string{"web--c4"}, names(c.Delete))
	require.Empty(t, c.Correct)

	c = splitter.Compare(root, want, nil)
	require.Equal(t, []string{"web--c1", "web--c2", "web--c3"}, names(c.Apply))
	deleted := want[0].DeepCopy()
	deleted.SetDeletionTimestamp(&metav1.Time{Time: time.Unix(1, 0)})
	require.Empty(t, splitter.Compare(root, want[:1], []*unstructured.Unstructured{deleted}))
	deleted.SetOwnerReferences([]metav1.OwnerReference{{UID: "of-an-earlier-root"}})
	require.Empty(t, splitter.Compare(root, want[:1], []*unstructured.Unstructured{deleted}))
}

const pod = `
serviceAccountName: sa
imagePullSecrets: [{name: pull}]
volumes:
- {name: a, configMap: {name: cm-volume}}
- {name: b, secret: {secretName: s-volume, optional: true}}
- {name: c, persistentVolumeClaim: {claimName: data}}
- {name: d, projected: {sources: [{configMap: {name: kube-root-ca.crt}}, {secret: {name: s-projected}}, {serviceAccountToken: {path: x}}]}}
- {name: e, csi: {driver: x, nodePublishSecretRef: {name: s-csi}}}
- {name: f, emptyDir: {}}
initContainers:
- {name: i, envFrom: [{configMapRef: {name: cm-from, optional: true}}, {secretRef: {name: s-from}}]}
containers:
- name: c
  env:
  - {name: A, value: x}
  - {name: B, valueFrom: {configMapKeyRef: {name: cm-key, key: k}}}
  - {name: C, valueFrom: {secretKeyRef: {name: s-key, key: k}}}
  - {name: D, valueFrom: {secretKeyRef: {name: s-volume, key: k}}}
  - {name: E, valueFrom: {fieldRef: {fieldPath: x}}}
`

func TestDependenciesOfPods(t *testing.T) {
	want := []string{
		"configmaps/cm-from optional", "configmaps/cm-key", "configmaps/cm-volume", "persistentvolumeclaims/data", "secrets/pull optional",
		"secrets/s-csi", "secrets/s-from", "secrets/s-key", "secrets/s-projected", "secrets/s-volume", "serviceaccounts/sa",
	}
	spec := map[string]any{}
	require.NoError(t, yaml.Unmarshal([]byte(pod), &spec))
	template := map[string]any{"spec": spec}
	for _, tc := range []struct {
		apiVersion, kind string
		spec             map[string]any
	}{
		{"v1", "Pod", spec},
		{"apps/v1", "Deployment", map[string]any{"template": template}},
		{"apps/v1", "StatefulSet", map[string]any{"template": template}},
		{"apps/v1", "DaemonSet", map[string]any{"template": template}},
		{"batch/v1", "Job", map[string]any{"template": template}},
		{"batch/v1", "CronJob", map[string]any{"jobTemplate": map[string]any{"spec": map[string]any{"template": template}}}},
	} {
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": tc.apiVersion, "kind": tc.kind, "spec": tc.spec}}
		require.Equal(t, want, texts(splitter.Dependencies(u)), tc.kind)
	}
	require.Empty(t, splitter.Dependencies(object(t, "{apiVersion: example.com/v1, kind: Widget, spec: {template: {spec: {serviceAccountName: x}}}}")))
	for _, text := range []string{"{serviceAccountName: default, volumes: [x, {configMap: y}]}", "{containers: []}"} {
		u := object(t, "{apiVersion: v1, kind: Pod, spec: "+text+"}")
		require.Equal(t, []string{"serviceaccounts/default optional"}, texts(splitter.Dependencies(u)), text)
	}
}

func texts(all []splitter.Dependency) []string {
	var out []string
	for _, d := range all {
		text := d.String()
		if d.Optional {
			text += " optional"
		}
		out = append(out, text)
	}
	return out
}

func TestSelects(t *testing.T) {
	workload := object(t, "{apiVersion: apps/v1, kind: Deployment, spec: {template: {metadata: {labels: {app: web, tier: front}}}}}")
	for text, want := range map[string]bool{
		"{selector: {app: web}}": true, "{selector: {app: web, tier: front}}": true, "{selector: {app: db}}": false, "{selector: {}}": false, "{}": false,
	} {
		require.Equal(t, want, splitter.Selects(object(t, "{apiVersion: v1, kind: Service, spec: "+text+"}"), workload), text)
	}
}

// A workload needs a ServiceAccount with a pull secret, and is exposed by a Service with an Ingress with a certificate.
func TestFindNeeds(t *testing.T) {
	workload := object(t, `
apiVersion: apps/v1
kind: Deployment
spec:
  template:
    metadata: {labels: {app: web}}
    spec:
      serviceAccountName: sa
      containers: [{name: c, envFrom: [{configMapRef: {name: absent}}, {configMapRef: {name: may-be-absent, optional: true}}]}]
`)
	ref := func(group, resource, name string) splitter.Ref {
		return splitter.Ref{GroupResource: schema.GroupResource{Group: group, Resource: resource}, Name: name}
	}
	all := map[splitter.Ref]*unstructured.Unstructured{
		ref("", "serviceaccounts", "sa"): object(t, "{apiVersion: v1, kind: ServiceAccount, imagePullSecrets: [{name: pull}]}"),
		ref("", "secrets", "pull"):       object(t, "{apiVersion: v1, kind: Secret}"),
		ref("", "secrets", "tls"):        object(t, "{apiVersion: v1, kind: Secret}"),
		ref("", "secrets", "unused"):     object(t, "{apiVersion: v1, kind: Secret}"),
		ref("", "services", "web"):       object(t, "{apiVersion: v1, kind: Service, spec: {selector: {app: web}}}"),
		ref("", "services", "manual"):    object(t, "{apiVersion: v1, kind: Service, spec: {type: ExternalName}}"),
		ref("", "services", "other"):     object(t, "{apiVersion: v1, kind: Service, spec: {selector: {app: other}}}"),
		ref("networking.k8s.io", "ingresses", "in"): object(t, `{apiVersion: networking.k8s.io/v1, kind: Ingress, spec: {tls: [{secretName: tls}],
			defaultBackend: {service: {name: other}}, rules: [{http: {paths: [{backend: {service: {name: web}}}]}}]}}`),
	}
	web, api := ref("apps", "deployments", "web"), ref("apps", "deployments", "api")
	n := splitter.FindNeeds([]splitter.Placed{
		{Ref: web, Object: workload, Clusters: []string{"c1", "c2"}}, {Ref: api, Object: workload, Clusters: []string{"c2"}},
	}, all)
	both := map[string][]string{"c1": {"deployments.apps/web"}, "c2": {"deployments.apps/api", "deployments.apps/web"}}
	require.Equal(t, splitter.Needs{
		ref("", "serviceaccounts", "sa"): both, ref("", "secrets", "pull"): both, ref("", "services", "web"): both,
		ref("networking.k8s.io", "ingresses", "in"): both, ref("", "secrets", "tls"): both,
		ref("", "services", "manual"): both,
	}, n)
}

// Another client can change a leaf after it was applied. Defaults, and what is added to lists of maps, are no changes.
func TestCompareFindsWhatAnotherClientHasChanged(t *testing.T) {
	const containers = "spec: {replicas: 2, template: {metadata: {creationTimestamp: null}, spec: {containers: [{name: web, image: web, args: [a, b]}]}}}"
	root := object(t, "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop, uid: u}, "+containers+"}")
	want, err := splitter.Leaves(root, shares(map[string]int64{"c1": 2}))
	require.NoError(t, err)
	for change, corrected := range map[string]bool{
		"spec: {paused: false}":  false,
		"status: {replicas: 7}":  false,
		"spec: {replicas: 3}":    true,
		"spec: {template: null}": true,
		"spec: {template: {metadata: {labels: {a: b}}, spec: {containers: [{name: web, image: web, args: [a, b], ports: []}]}}}":         false,
		"spec: {template: {metadata: {}, spec: {containers: [{name: proxy}, {name: web, image: web, args: [a, b]}]}}}":                   true,
		"spec: {template: {metadata: {}, spec: {containers: [{name: web, image: web, args: [a, b], env: [{name: A, value: b}]}]}}}":      true,
		"spec: {template: {metadata: {}, spec: {containers: [{name: web, image: web, args: [a, b]}], volumes: [{name: v}]}}}":            true,
		"spec: {template: {metadata: {}, spec: {containers: [{name: web, image: web, args: [a, b]}], initContainers: [{name: i}]}}}":     true,
		"spec: {template: {metadata: {}, spec: {containers: [{name: web, image: web, args: [a, b]}], tolerations: [{key: k}]}}}":         false,
		"spec: {template: {metadata: {}, spec: {containers: [{name: web, image: web, args: [a, b]}], volumes: [], initContainers: []}}}": false,
		"spec: {template: {metadata: {}, spec: {containers: [{name: web, image: other, args: [a, b]}]}}}":                                true,
		"spec: {template: {metadata: {}, spec: {containers: [{name: web, image: web, args: [a, b, c]}]}}}":                               true,
	} {
		is := want[0].DeepCopy()
		patch := object(t, "{apiVersion: apps/v1, kind: Deployment, "+change+"}")
		for _, field := range []string{"spec", "status"} {
			for key, value := range mapOf(patch.Object[field]) {
				require.NoError(t, unstructured.SetNestedField(is.Object, value, field, key))
			}
		}
		c := splitter.Compare(root, want, []*unstructured.Unstructured{is})
		require.Empty(t, c.Apply)
		require.Equal(t, corrected, len(c.Correct) == 1, change)
	}
}

func mapOf(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

// A token is for one server: that of kcp is not in a leaf, where the syncer of a cluster could read it.
func TestTokensStayWhereTheyAre(t *testing.T) {
	root := object(t, `{apiVersion: v1, kind: Secret, type: kubernetes.io/service-account-token, data: {token: eA==},
		metadata: {name: t, uid: u, annotations: {kubernetes.io/service-account.name: web, kubernetes.io/service-account.uid: "1"}}}`)
	want, err := splitter.Leaves(root, map[string]splitter.Share{"c1": {}})
	require.NoError(t, err)
	require.Equal(t, api.SecretTypeToken, want[0].Object["type"])
	require.NotContains(t, want[0].Object, "data")
	require.NotContains(t, want[0].GetAnnotations(), "kubernetes.io/service-account.uid")
	require.Equal(t, []string{"serviceaccounts/web"}, texts(splitter.Dependencies(root)))
	require.Equal(t, "web", splitter.TokenOf(want[0]))

	filled := root.DeepCopy()
	require.NoError(t, unstructured.SetNestedField(filled.Object, "eQ==", "data", "token"))
	again, err := splitter.Leaves(filled, map[string]splitter.Share{"c1": {}})
	require.NoError(t, err)
	require.Equal(t, want, again, "what kcp fills in changes no leaf")

	previous := want[0].DeepCopy()
	previous.Object["type"] = "kubernetes.io/service-account-token"
	c := splitter.Compare(root, want, []*unstructured.Unstructured{previous})
	require.Empty(t, c.Apply, "the type of a Secret cannot change")
	require.Len(t, c.Delete, 1)
	widget := object(t, "{apiVersion: example.com/v1, kind: Secret, type: a, metadata: {name: t, uid: u}}")
	was, err := splitter.Leaves(widget, map[string]splitter.Share{"c1": {}})
	require.NoError(t, err)
	widget.Object["type"] = "b"
	is, err := splitter.Leaves(widget, map[string]splitter.Share{"c1": {}})
	require.NoError(t, err)
	require.Empty(t, splitter.Compare(widget, is, was).Delete, "the type of another kind can change")
	other := object(t, `{apiVersion: v1, kind: Secret, type: Opaque, data: {token: eA==}, metadata: {name: t, uid: u}}`)
	want, err = splitter.Leaves(other, map[string]splitter.Share{"c1": {}})
	require.NoError(t, err)
	require.Equal(t, other.Object["data"], want[0].Object["data"])
}
