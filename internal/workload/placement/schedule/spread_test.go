package schedule_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/workload/placement/schedule"
)

func TestDefaultSpread(t *testing.T) {
	for _, tc := range []struct {
		name  string
		data  bool
		want  schedule.Spread
		known bool
	}{
		{"deployments.apps", false, schedule.Divide, true},
		{"deployments.apps", true, schedule.Single, true},
		{"statefulsets.apps", false, schedule.Single, true}, // two clusters would both have a web-0
		{"statefulsets.apps", true, schedule.Single, true},
		{"daemonsets.apps", false, schedule.Duplicate, true},
		{"jobs.batch", false, schedule.Single, true},
		{"services", false, schedule.Duplicate, true},
		{"networkpolicies.networking.k8s.io", false, schedule.Duplicate, true},
		{"persistentvolumeclaims", false, schedule.Single, true},
		{"widgets.example.com", false, "", false},
		{"deployments.example.com", true, "", false},
	} {
		got, known := schedule.DefaultSpread(schema.ParseGroupResource(tc.name), tc.data)
		require.Equal(t, tc.want, got, tc.name)
		require.Equal(t, tc.known, known, tc.name)
	}
}

// Nothing is spread by a guess.
func TestCheckSpread(t *testing.T) {
	for _, tc := range []struct {
		name   string
		spread schedule.Spread
		data   bool
		want   string
	}{
		{"deployments.apps", schedule.Divide, false, ""},
		{"deployments.apps", schedule.Divide, true, "objects of this kind cannot be divided"},
		{"statefulsets.apps", schedule.Divide, false, ""},
		{"statefulsets.apps", schedule.Divide, true, "objects of this kind cannot be divided"},
		{"daemonsets.apps", schedule.Divide, false, "objects of this kind cannot be divided"},
		{"services", schedule.Single, false, ""},
		{"widgets.example.com", schedule.Single, false, ""},
		{"widgets.example.com", schedule.Divide, false, "objects of this kind cannot be divided"},
		{"widgets.example.com", "", false, "kcpctl does not know widgets.example.com: annotate the object or its namespace with " +
			"workloads.kcp.dev/spread=Single (on one cluster) or workloads.kcp.dev/spread=Duplicate (on each cluster)"},
	} {
		err := schedule.CheckSpread(schedule.Hints{Spread: tc.spread}, schema.ParseGroupResource(tc.name), tc.data)
		if tc.want == "" {
			require.NoError(t, err, tc.name)
			continue
		}
		require.ErrorContains(t, err, tc.want, tc.name)
	}
}

// A pod can have requests for all of its containers together.
func TestRequestsOfAPod(t *testing.T) {
	requests := func(cpu string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}}
	}
	pod := requests("3")
	containers := []corev1.Container{{Resources: requests("1")}, {Resources: requests("500m")}}
	for name, tc := range map[string]struct {
		spec corev1.PodSpec
		cpu  string
	}{
		"the sum of containers":   {corev1.PodSpec{Containers: containers}, "1500m"},
		"a larger init container": {corev1.PodSpec{Containers: containers, InitContainers: []corev1.Container{{Resources: requests("2")}}}, "2"},
		"of the pod":              {corev1.PodSpec{Containers: containers, Resources: &pod}, "3"},
	} {
		got := schedule.Requests(&tc.spec)
		cpu, pods := got[corev1.ResourceCPU], got[corev1.ResourcePods]
		require.Equal(t, []string{tc.cpu, "1"}, []string{cpu.String(), pods.String()}, name)
	}
}
