//go:build e2e && long

package e2e

import (
	"fmt"
	"slices"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

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
		c, err := w.tryReadiness(name)
		if err == nil && (c.Status != metav1.ConditionFalse || c.Reason != api.ReasonUnauthorized) {
			err = fmt.Errorf("the cluster is %s: %s", c.Reason, c.Message)
		}
		return err
	})
	w.Logf("%s is not ready %s after its token was revoked", name, time.Since(began).Round(time.Second))
	require.Contains(w, w.readiness(name).Message, "run kcpctl up")
	w.up(w.T)
	w.eventually(func() error {
		c, err := w.tryReadiness(name)
		if err == nil && c.Status != metav1.ConditionTrue {
			err = fmt.Errorf("the cluster is %s: %s", c.Reason, c.Message)
		}
		return err
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
	below := func(want bool) error {
		list, err := on.physical.Resource(configMapGVR).List(w.Context(), metav1.ListOptions{LabelSelector: api.LabelSetup})
		if err != nil {
			return err
		}
		found := slices.ContainsFunc(list.Items, func(o unstructured.Unstructured) bool { return o.GetName() == object })
		if found != want {
			return fmt.Errorf("ConfigMap %s is on %s: %t", object, name, found)
		}
		return nil
	}
	w.eventually(func() error { return below(true) })
	require.NoError(w, w.in("root:team").Resource(configMapGVR).Namespace("default").Delete(w.Context(), object, metav1.DeleteOptions{}))
	w.eventually(func() error { return below(false) })
}

// readiness returns the condition Ready of a Cluster.
func (w *workloads) readiness(cluster string) metav1.Condition {
	w.Helper()
	ready, err := w.tryReadiness(cluster)
	require.NoError(w, err)
	return ready
}

func (w *workloads) tryReadiness(cluster string) (ready metav1.Condition, err error) {
	o, err := w.get("root:compute", clusterGVR, "", cluster)
	if err != nil {
		return ready, err
	}
	c, err := api.ClusterOf(o)
	if err != nil {
		return ready, err
	}
	found := meta.FindStatusCondition(c.Status.Conditions, api.ConditionReady)
	if found == nil {
		return ready, fmt.Errorf("Cluster %s has no condition %s", cluster, api.ConditionReady)
	}
	return *found, nil
}
