package syncer

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

func parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	raw, err := yaml.YAMLToJSON([]byte(text))
	require.NoError(t, err)
	require.NoError(t, u.UnmarshalJSON(raw))
	return u
}

func TestTransform(t *testing.T) {
	s := &syncer{view: &view{Options: Options{Cluster: "c1", Setup: "demo-x"}}}
	const meta = `
metadata:
  name: web--c1
  namespace: shop
  uid: "1234"
  generation: 3
  resourceVersion: "17"
  creationTimestamp: "2026-01-01T00:00:00Z"
  finalizers: [workloads.kcp.dev/syncer]
  ownerReferences: [{kind: Deployment, name: web}]
  labels: {app: web, internal.example.com/team: shop, workloads.kcp.dev/cluster: c1, claimed.internal.apis.kcp.io/abc: xyz}
  annotations:
    note: hello
    kubernetes.io/service-account.name: web
    kcp.io/cluster: 2a
    internal.tenancy.kcp.io/shard: alpha
    workloads.kcp.dev/name: web
    kubectl.kubernetes.io/last-applied-configuration: "{}"
`
	for name, tc := range map[string]struct{ leaf, want string }{
		"deployment": {`
apiVersion: apps/v1
kind: Deployment
spec: {replicas: 2, template: {spec: {serviceAccountName: web}}}
status: {replicas: 1}`, `
apiVersion: apps/v1
kind: Deployment
spec: {replicas: 2, template: {spec: {serviceAccountName: web}}}`},
		"service": {`
apiVersion: v1
kind: Service
spec: {clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1], ipFamilies: [IPv4], healthCheckNodePort: 30001, ports: [{port: 80, nodePort: 30000}, {port: 81}]}`, `
apiVersion: v1
kind: Service
spec: {ports: [{port: 80}, {port: 81}]}`},
		"headless service": {`
apiVersion: v1
kind: Service
spec: {clusterIP: None, clusterIPs: [None]}`, `
apiVersion: v1
kind: Service
spec: {clusterIP: None}`},
		"volume claim": {`
apiVersion: v1
kind: PersistentVolumeClaim
spec: {volumeName: pv-1, storageClassName: fast}`, `
apiVersion: v1
kind: PersistentVolumeClaim
spec: {storageClassName: fast}`},
		"job": {`
apiVersion: batch/v1
kind: Job
spec: {ttlSecondsAfterFinished: 60, parallelism: 1}`, `
apiVersion: batch/v1
kind: Job
spec: {parallelism: 1}`},
		"config map": {`
apiVersion: v1
kind: ConfigMap
data: {spec: value}`, `
apiVersion: v1
kind: ConfigMap
data: {spec: value}`},
		"token": {`
apiVersion: v1
kind: Secret
type: workloads.kcp.dev/service-account-token
data: {token: eA==}`, `
apiVersion: v1
kind: Secret
type: kubernetes.io/service-account-token`},
		"token of a user's leaf": {`
apiVersion: v1
kind: Secret
type: kubernetes.io/service-account-token
data: {token: eA==}
stringData: {ca.crt: x}`, `
apiVersion: v1
kind: Secret
type: kubernetes.io/service-account-token`},
		"service account": {`
apiVersion: v1
kind: ServiceAccount
secrets: [{name: web-token}]
imagePullSecrets: [{name: registry}]`, `
apiVersion: v1
kind: ServiceAccount
imagePullSecrets: [{name: registry}]`},
	} {
		t.Run(name, func(t *testing.T) {
			leaf := parse(t, tc.leaf+meta)
			before := leaf.DeepCopy()
			want := parse(t, tc.want)
			want.SetName("web")
			want.SetNamespace(api.DownstreamNamespace("demo-x", "2a", "shop"))
			want.SetLabels(map[string]string{"app": "web", "internal.example.com/team": "shop", api.LabelSetup: "demo-x", api.LabelCluster: "c1"})
			want.SetAnnotations(map[string]string{
				"note": "hello", "kubernetes.io/service-account.name": "web", annotationLeaf: "2a|shop/web--c1", annotationGeneration: "3", annotationUID: "1234", annotationCreated: "2026-01-01T00:00:00Z",
			})
			require.Equal(t, want.Object, s.transform(leaf).Object)
			require.Equal(t, before, leaf, "the leaf belongs to the watch")
		})
	}
}

func TestParseLeaf(t *testing.T) {
	k := watch.Key{Cluster: "2a", Namespace: "shop", Name: "web"}
	got, ok := parseLeaf(k.String())
	require.True(t, ok)
	require.Equal(t, k, got)
	for _, text := range []string{"", "web", "2a|web", "shop/web"} {
		_, ok := parseLeaf(text)
		require.False(t, ok, text)
	}
}

func TestStatusOf(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	const old = "2026-01-01T00:00:00Z"
	condition := func(status, reason, message, since string) map[string]any {
		return map[string]any{"type": "Synced", "status": status, "reason": reason, "message": message, "lastTransitionTime": since}
	}
	leaf := func(generation int64, status map[string]any) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: map[string]any{"status": status}}
		u.SetGeneration(generation)
		return u
	}
	object := func(of string, generation int64, status map[string]any) *unstructured.Unstructured {
		u := leaf(generation, status)
		u.SetAnnotations(map[string]string{annotationGeneration: of})
		return u
	}
	for name, tc := range map[string]struct {
		leaf, object *unstructured.Unstructured
		outcome      outcome
		want         map[string]any
	}{
		"the first status": {
			leaf(1, nil), object("1", 7, map[string]any{"replicas": int64(2), "observedGeneration": int64(7)}), synced(),
			map[string]any{"replicas": int64(2), "observedGeneration": int64(1), "conditions": []any{condition("True", "Synced", "", "2026-01-02T03:04:05Z")}},
		},
		"the cluster has not acted on the spec": {
			leaf(2, map[string]any{"observedGeneration": int64(1)}), object("2", 8, map[string]any{"observedGeneration": int64(7)}), synced(),
			map[string]any{"observedGeneration": int64(1), "conditions": []any{condition("True", "Synced", "", "2026-01-02T03:04:05Z")}},
		},
		"the cluster does not have the spec yet": {
			leaf(3, map[string]any{"observedGeneration": int64(2)}), object("2", 8, map[string]any{"observedGeneration": int64(8)}), synced(),
			map[string]any{"observedGeneration": int64(2), "conditions": []any{condition("True", "Synced", "", "2026-01-02T03:04:05Z")}},
		},
		"the cluster has not acted on any spec": {
			leaf(1, nil), object("1", 1, map[string]any{"observedGeneration": int64(0)}), synced(),
			map[string]any{"conditions": []any{condition("True", "Synced", "", "2026-01-02T03:04:05Z")}},
		},
		"refused, with the conditions that were": {
			leaf(1, map[string]any{"replicas": int64(1), "conditions": []any{map[string]any{"type": "Available"}, condition("False", "Pending", "", old)}}), nil,
			outcome{"Denied", "no privileged pods"},
			map[string]any{"replicas": int64(1), "conditions": []any{map[string]any{"type": "Available"}, condition("False", "Denied", "no privileged pods", old)}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.want, statusOf(tc.leaf, tc.object, tc.outcome, now, true))
		})
	}
}
