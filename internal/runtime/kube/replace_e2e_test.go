//go:build e2e

package kube

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kcpctl/kcpctl/internal/client/ready"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// podsNow are the pods of a component by name.
func (c *realCluster) podsNow(comp *topology.Component) map[string]*corev1.Pod {
	c.t.Helper()
	pods, err := c.workloads.Pods(c.t.Context(), c.clusters.home, comp)
	require.NoError(c.t, err)
	out := map[string]*corev1.Pod{}
	for _, p := range pods {
		out[p.Name] = p
	}
	return out
}

// fewestReady watches how many pods of a component are ready until ctx ends, and returns the lowest number.
func (c *realCluster) fewestReady(ctx context.Context, comp *topology.Component) <-chan int {
	result := make(chan int, 1)
	go func() {
		fewest := int(comp.Replicas)
		for ctx.Err() == nil {
			pods, err := c.workloads.Pods(context.WithoutCancel(ctx), c.clusters.home, comp)
			n := 0
			for _, p := range pods {
				if err == nil && ready.PodReady(p) {
					n++
				}
			}
			fewest = min(fewest, n)
			time.Sleep(10 * time.Millisecond)
		}
		result <- fewest
	}()
	return result
}

// Pods are replaced one at a time.
func TestPodsAreReplacedOneAfterAnother(t *testing.T) {
	c := newCluster(t, "kcpctl-replace", "twice")
	c.topology.Components[0].Replicas = 2
	comp := c.etcd(0, func(pod map[string]any) {
		pod["terminationGracePeriodSeconds"] = int64(30)
		container(pod)["lifecycle"] = map[string]any{"preStop": map[string]any{"sleep": map[string]any{"seconds": int64(20)}}}
	})
	c.until(comp, isStateReady)
	previous := c.podsNow(comp)
	require.Len(t, previous, 2)

	ctx, cancel := context.WithCancel(t.Context())
	fewest := c.fewestReady(ctx, comp)
	require.NoError(t, c.Replace(t.Context(), comp))
	cancel()
	require.Equal(t, 1, <-fewest, "the other one keeps serving")
	for name, p := range c.podsNow(comp) {
		require.Equal(t, previous[name] != nil, p.DeletionTimestamp != nil, "%s: the previous pods are deleted, and no other", name)
	}
	c.until(comp, func(s ready.State) bool { return s.Ready && len(s.Pods) == 2 })
}
