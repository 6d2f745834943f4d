package framework

import (
	"fmt"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

// Killed kills up at several moments after it has begun to write the objects of the agent.
func (a *Agents) Killed(t *testing.T) {
	for _, after := range []time.Duration{0, 150 * time.Millisecond, 400 * time.Millisecond, time.Second} {
		r := a.Command("up", "--output", "json", "--skip-canary").During(t, 1, Running("agent/widgets"), func(up *exec.Cmd) {
			time.Sleep(after)
			require.NoError(t, up.Process.Kill())
		})
		if after > 0 && r.Code == 0 { // what earlier runs have started was ready at once
			t.Logf("up was done before %s", after)
			continue
		}
		require.Equal(t, -1, r.Code, r.Stderr)
	}
}

// Latency logs the time from the creation of an object in a workspace on beta until its copy is on the service cluster.
// The clients of the agent allow themselves five requests a second for a kind in a workspace, so it is measured at a
// slow rate, and without pauses. The machine must do nothing else: run.sh -run
// 'TestClusterAgentChanges$/^(up_without|the_next|the_time|deleted_objects|down_leaves)'.
func (a *Agents) Latency(t *testing.T) {
	client, below, namespace := a.Of(a.In(t, Consumer), "default"), a.Below(t), a.Namespace(t, Consumer)
	copies, err := a.Of(below, namespace).Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	defer copies.Stop()
	const n = 200
	for _, pause := range []time.Duration{time.Second, 0} {
		var took []time.Duration
		for i := range n {
			time.Sleep(pause)
			name := fmt.Sprintf("timed-%d-%03d", pause.Milliseconds(), i)
			began := time.Now()
			_, err := client.Create(t.Context(), a.Widget(name), metav1.CreateOptions{})
			require.NoError(t, err)
			require.True(t, added(copies, name), "the watch has ended")
			took = append(took, time.Since(began))
		}
		slices.Sort(took)
		t.Logf("from create to the object in the service cluster: P50 %s, P99 %s, of %d with pauses of %s", took[n/2-1].Round(time.Millisecond),
			took[n*99/100-1].Round(time.Millisecond), n, pause)
	}
	a.Empties(t, metav1.ListOptions{FieldSelector: "metadata.name!=first"})
}

// added waits until an object is created.
func added(w watch.Interface, name string) bool {
	for event := range w.ResultChan() {
		if o, ok := event.Object.(*unstructured.Unstructured); ok && event.Type == watch.Added && o.GetName() == name {
			return true
		}
	}
	return false
}

// Empties deletes Widgets of the consumer, and waits until they and their copies are gone.
func (a *Agents) Empties(t *testing.T, which metav1.ListOptions) {
	t.Helper()
	client, copies := a.Of(a.In(t, Consumer), "default"), a.Of(a.Below(t), a.Namespace(t, Consumer))
	require.NoError(t, client.DeleteCollection(t.Context(), metav1.DeleteOptions{}, which))
	for _, in := range []dynamic.ResourceInterface{client, copies} {
		Eventually(t.Context(), t, func() error {
			list, err := in.List(t.Context(), which)
			if err == nil && len(list.Items) > 0 {
				err = fmt.Errorf("%d Widgets are still there", len(list.Items))
			}
			return err
		})
	}
}
