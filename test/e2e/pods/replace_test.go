package pods_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/client/ready"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// podsNow are the pods of a component by name.
func (c *realCluster) podsNow(comp *topology.Component) map[string]*corev1.Pod {
	c.t.Helper()
	pods, err := c.client.Pods(c.t.Context(), labels.SelectorFromSet(comp.Selector()).String())
	require.NoError(c.t, err)
	out := map[string]*corev1.Pod{}
	for _, p := range pods {
		out[p.Name] = p
	}
	return out
}

// fewestReady watches how many pods of a component are ready until ctx ends, and returns the lowest number. Every state
// of every pod counts, because the API server reports each.
func (c *realCluster) fewestReady(ctx context.Context, comp *topology.Component) <-chan int {
	c.t.Helper()
	options := metav1.ListOptions{LabelSelector: labels.SelectorFromSet(comp.Selector()).String()}
	pods := c.client.Resource(kind.Pods)
	all, err := pods.List(ctx, options)
	require.NoError(c.t, err)
	isReady := map[string]bool{}
	for i := range all.Items {
		isReady[all.Items[i].GetName()] = podReady(c.t, &all.Items[i])
	}
	options.ResourceVersion = all.GetResourceVersion()
	events, err := pods.Watch(ctx, options)
	require.NoError(c.t, err)
	result := make(chan int, 1)
	go func() {
		fewest := count(isReady)
		for e := range events.ResultChan() {
			o, ok := e.Object.(*unstructured.Unstructured)
			if !ok || e.Type == watch.Error {
				assert.Error(c.t, ctx.Err(), "the watch has ended: %+v", e.Object)
				continue
			}
			isReady[o.GetName()] = e.Type != watch.Deleted && podReady(c.t, o)
			fewest = min(fewest, count(isReady))
		}
		assert.Error(c.t, ctx.Err(), "the watch has ended before the test")
		result <- fewest
	}()
	return result
}

func podReady(t *testing.T, o *unstructured.Unstructured) bool {
	pod := &corev1.Pod{}
	return assert.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, pod)) && ready.PodReady(pod)
}

func count(isReady map[string]bool) (n int) {
	for _, is := range isReady {
		if is {
			n++
		}
	}
	return n
}

// Pods are replaced one at a time. A pod takes its time to end, so that two would be seen to end together.
func TestPodsAreReplacedOneAfterAnother(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "kcpctl-replace", "twice")
	c.topology.Components[0].Replicas = 2
	comp := c.etcd(0, func(pod map[string]any) {
		pod["terminationGracePeriodSeconds"] = int64(30)
		container(pod)["lifecycle"] = map[string]any{"preStop": map[string]any{"sleep": map[string]any{"seconds": int64(5)}}}
	})
	c.until(comp, isStateReady)
	previous := c.podsNow(comp)
	require.Len(t, previous, 2)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	fewest := c.fewestReady(ctx, comp)
	require.NoError(t, c.Replace(t.Context(), comp))
	cancel()
	require.Positive(t, <-fewest, "the other one keeps serving")
	for name, p := range c.podsNow(comp) {
		require.Equal(t, previous[name] != nil, p.DeletionTimestamp != nil, "%s: the previous pods are deleted, and no other", name)
	}
	c.until(comp, func(s ready.State) bool { return s.Ready && len(s.Pods) == 2 })
}
