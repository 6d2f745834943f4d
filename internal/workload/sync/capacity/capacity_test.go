package capacity_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kcpctl/kcpctl/internal/testutil/fakeapi"
	"github.com/kcpctl/kcpctl/internal/workload/sync/capacity"
)

func TestRead(t *testing.T) {
	s := fakeapi.New(t)
	client, err := dynamic.NewForConfig(&rest.Config{Host: s.URL})
	require.NoError(t, err)
	c, err := capacity.Read(t.Context(), client)
	require.NoError(t, err)
	require.True(t, c.Allocatable.Pods().IsZero(), "a cluster without nodes has no room")
	require.Contains(t, c.Allocatable, corev1.ResourcePods)
}

func TestReadNodesAndPods(t *testing.T) {
	s := fakeapi.New(t)
	for _, node := range []string{
		`{kind: Node, metadata: {name: a}, status: {allocatable: {cpu: "4", memory: 8Gi, pods: "110"}, conditions: [{type: Ready, status: "True"}]}}`,
		`{kind: Node, metadata: {name: b}, status: {allocatable: {cpu: "4", memory: 8Gi, pods: "110"}, conditions: [{type: Ready, status: "True"}]}}`,
		`{kind: Node, metadata: {name: cordoned}, spec: {unschedulable: true}, status: {allocatable: {cpu: "4"}, conditions: [{type: Ready, status: "True"}]}}`,
		`{kind: Node, metadata: {name: broken}, status: {allocatable: {cpu: "4"}, conditions: [{type: Ready, status: "False"}]}}`,
	} {
		s.Apply(t, "", "api/v1/nodes", node)
	}
	for _, pod := range []string{
		`{kind: Pod, metadata: {name: one, namespace: n}, spec: {nodeName: a, containers: [{resources: {requests: {cpu: 500m, memory: 1Gi}}}, {resources: {requests: {cpu: 250m}}}]}}`,
		`{kind: Pod, metadata: {name: init, namespace: n}, spec: {nodeName: b, overhead: {cpu: 10m}, containers: [{resources: {requests: {cpu: 100m}}}],
			initContainers: [{restartPolicy: Always, resources: {requests: {cpu: 50m}}}, {resources: {requests: {cpu: "1"}}}]}}`,
		`{kind: Pod, metadata: {name: waits, namespace: n}, spec: {containers: [{resources: {requests: {cpu: 40m}}}]}}`,
		`{kind: Pod, metadata: {name: elsewhere, namespace: n}, spec: {nodeName: broken, containers: [{resources: {requests: {cpu: "3"}}}]}}`,
	} {
		s.Apply(t, "", "api/v1/pods", pod)
	}
	client, err := dynamic.NewForConfig(&rest.Config{Host: s.URL})
	require.NoError(t, err)
	c, err := capacity.Read(t.Context(), client)
	require.NoError(t, err)
	require.Equal(t, "8", c.Allocatable.Cpu().String())
	require.Equal(t, "220", c.Allocatable.Pods().String())
	require.Equal(t, "1850m", c.Requested.Cpu().String(), "750m, the init containers' 1050m and 10m, 40m")
	require.Equal(t, "3", c.Requested.Pods().String())
	require.Equal(t, "1Gi", c.Requested.Memory().String())

	s.Refuse(func(r *http.Request) (int, string) { return http.StatusForbidden, "no" })
	_, err = capacity.Read(t.Context(), client)
	require.ErrorContains(t, err, "list the nodes of the cluster")
}

// Tenants and clusters write quantities that would take all memory. They do not count, and names that look like one do.
func TestReadHugeQuantities(t *testing.T) {
	s := fakeapi.New(t)
	s.Apply(t, "", "api/v1/nodes", `{kind: Node, metadata: {name: "12e45678"}, status: {allocatable: {cpu: "4", memory: "1e1000000000"}, conditions: [{type: Ready, status: "True"}]}}`)
	s.Apply(t, "", "api/v1/pods", `{kind: Pod, metadata: {name: one, namespace: n}, spec: {nodeName: "12e45678", overhead: {cpu: "1e999999999"}, containers: [{resources: {requests: {cpu: 500m, memory: "1e1000000000"}}}]}}`)
	s.Apply(t, "", "api/v1/pods", `{kind: Pod, metadata: {name: two, namespace: n}, spec: {nodeName: "34e56789", containers: [{resources: {requests: {cpu: 500m}}}]}}`)
	client, err := dynamic.NewForConfig(&rest.Config{Host: s.URL})
	require.NoError(t, err)
	c, err := capacity.Read(t.Context(), client)
	require.NoError(t, err)
	require.Equal(t, "4", c.Allocatable.Cpu().String())
	require.NotContains(t, c.Allocatable, corev1.ResourceMemory)
	require.Equal(t, "500m", c.Requested.Cpu().String())
	require.Equal(t, "1", c.Requested.Pods().String(), "the other one is on a node that does not count")
}
