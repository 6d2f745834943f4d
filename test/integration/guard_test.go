package integration

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/kcpctl/kcpctl/internal/workload/apis/guard"
	"github.com/kcpctl/kcpctl/test/apiserver"
)

// An API server evaluates the policies: patches of kubectl that change no list whose items kcp drops are permitted.
func TestPatchesOfKubectl(t *testing.T) {
	apiserver.Need(t)
	m := newMember(t)
	deployments := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	cronJobs := schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "cronjobs"}
	services := schema.GroupVersionResource{Version: "v1", Resource: "services"}
	budgets := schema.GroupVersionResource{Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"}
	exported := []schema.GroupResource{deployments.GroupResource(), cronJobs.GroupResource(), services.GroupResource(), budgets.GroupResource()}
	namespace := m.space("demo-x", "c1")
	for r, text := range map[schema.GroupVersionResource]string{
		deployments: "{apiVersion: apps/v1, kind: Deployment, metadata: {name: x}, spec: {selector: {matchLabels: {a: b}}, template: " +
			"{metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}}",
		cronJobs: "{apiVersion: batch/v1, kind: CronJob, metadata: {name: x}, spec: {schedule: '* * * * *', jobTemplate: {spec: {template: " +
			"{spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}}}",
		services: "{apiVersion: v1, kind: Service, metadata: {name: x}, spec: {selector: {a: b}, ports: [{port: 80}]}}",
		budgets:  "{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: x}, spec: {selector: {matchLabels: {a: b}}, maxUnavailable: 1}}",
	} {
		_, err := m.Resource(r).Namespace(namespace).Create(t.Context(), parse(t, text), metav1.CreateOptions{})
		require.NoError(t, err)
	}
	for _, o := range guard.Objects(exported) {
		m.create(guard.Resource(o), o)
	}
	patch := func(r schema.GroupVersionResource, kind types.PatchType, manager, text string) error {
		raw, err := yaml.YAMLToJSON([]byte(text))
		require.NoError(t, err)
		_, err = m.Resource(r).Namespace(namespace).Patch(t.Context(), "x", kind, raw,
			metav1.PatchOptions{FieldManager: manager, DryRun: []string{metav1.DryRunAll}})
		return err
	}
	const image = "{spec: {template: {spec: {containers: [{name: c, image: j}]}}}}"
	require.Eventually(t, func() bool {
		return patch(deployments, types.StrategicMergePatchType, "kubectl-set", image) != nil
	}, time.Minute, 100*time.Millisecond, "the policies are in force after a moment")
	for _, tc := range []struct {
		r             schema.GroupVersionResource
		manager, text string
		refused       bool
	}{
		{deployments, "kubectl-patch", image, true},
		{deployments, "kubectl-client-side-apply", image, true},
		{deployments, "another", image, false},
		{deployments, "kubectl-patch", "{metadata: {finalizers: [example.com/x]}}", true},
		{deployments, "kubectl-patch", "{spec: {replicas: 3}}", false},
		{deployments, "kubectl-patch", "{metadata: {labels: {a: c}}}", false},
		{deployments, "kubectl-rollout", "{spec: {template: {metadata: {annotations: {kubectl.kubernetes.io/restartedAt: now}}}}}", false},
		{cronJobs, "kubectl-patch", "{spec: {suspend: true}}", false},
		{cronJobs, "kubectl-patch", "{spec: {jobTemplate: {spec: {template: {spec: {containers: [{name: c, image: j}]}}}}}}", true},
		{services, "kubectl-patch", "{spec: {type: NodePort}}", true}, // the API server adds a port to the list
		{services, "kubectl-patch", "{spec: {selector: {a: c}}}", false},
		{services, "kubectl-edit", "{spec: {ports: [{port: 80, name: http}]}}", true},
		{budgets, "kubectl-patch", "{spec: {maxUnavailable: 2}}", true},
		{budgets, "kubectl-patch", "{metadata: {labels: {a: c}}}", false},
	} {
		err := patch(tc.r, types.StrategicMergePatchType, tc.manager, tc.text)
		if !tc.refused {
			require.NoError(t, err, "%s %s", tc.manager, tc.text)
			continue
		}
		require.ErrorContains(t, err, "use kubectl apply --server-side, or kubectl patch with --type=merge", tc.text)
	}
}
