//go:build e2e && long

package e2e

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
)

// revoked deletes the account of a syncer in its cluster, so that its token is not valid any longer. The cluster is not
// ready, with the reason, until the next up creates the account again. The process of the syncer goes on.
func (w *workloads) revoked(name, process string, on *workloads) {
	w.Helper()
	process = w.setup.name + process
	before := w.ids(w.T)[process]
	require.NotEmpty(w, before)
	require.NoError(w, on.physical.Resource(accountGVR).Namespace(api.NamespaceSyncer).DeleteCollection(
		w.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "kcpctl.dev/setup"}))
	began := time.Now()
	w.eventually(func() error {
		if c := w.readiness(name); c.Status != metav1.ConditionFalse || c.Reason != api.ReasonUnauthorized {
			return fmt.Errorf("the cluster is %s: %s", c.Reason, c.Message)
		}
		return nil
	})
	w.Logf("%s is not ready %s after its token was revoked", name, time.Since(began).Round(time.Second))
	require.Contains(w, w.readiness(name).Message, "run kcpctl up")
	w.up(w.T)
	w.eventually(func() error {
		if c := w.readiness(name); c.Status != metav1.ConditionTrue {
			return fmt.Errorf("the cluster is %s: %s", c.Reason, c.Message)
		}
		return nil
	})
	w.Logf("%s is ready again after %s", name, time.Since(began).Round(time.Second))
	w.syncs(name, on)
	require.Equal(w, before, w.ids(w.T)[process], "it was not restarted")
}

// syncs requires that a cluster gets a new object.
func (w *workloads) syncs(name string, on *workloads) {
	w.Helper()
	object := "web-" + fmt.Sprint(time.Now().UnixNano())
	w.apply("root:team", configMapGVR, fmt.Sprintf(configMap, object, name, "b"))
	below := func() (found bool) {
		list, err := on.physical.Resource(configMapGVR).List(w.Context(), metav1.ListOptions{LabelSelector: api.LabelSetup})
		require.NoError(w, err)
		for _, o := range list.Items {
			found = found || o.GetName() == object
		}
		return found
	}
	w.eventually(func() error {
		if !below() {
			return fmt.Errorf("ConfigMap %s is not on %s", object, name)
		}
		return nil
	})
	require.NoError(w, w.in("root:team").Resource(configMapGVR).Namespace("default").Delete(w.Context(), object, metav1.DeleteOptions{}))
	w.eventually(func() error {
		if below() {
			return fmt.Errorf("ConfigMap %s is on %s", object, name)
		}
		return nil
	})
}

// readiness returns the condition Ready of a Cluster.
func (w *workloads) readiness(cluster string) metav1.Condition {
	w.Helper()
	o, err := w.get("root:compute", clusterGVR, "", cluster)
	require.NoError(w, err)
	c, err := api.ClusterOf(o)
	require.NoError(w, err)
	ready := meta.FindStatusCondition(c.Status.Conditions, api.ConditionReady)
	require.NotNil(w, ready)
	return *ready
}
