package framework

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

// Revoked deletes the account of a syncer in its cluster, so that its token is not valid any longer. The cluster is not
// ready, with the reason, until the next up creates the account again. The process of the syncer goes on.
func (w *Workloads) Revoked(name, process string, on *Workloads) {
	w.Helper()
	process = w.Setup.Name + process
	before := w.IDs(w.T)[process]
	require.NotEmpty(w, before)
	require.NoError(w, on.Physical.Resource(AccountGVR).Namespace(api.NamespaceSyncer).DeleteCollection(
		w.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "kcpctl.dev/setup"}))
	began := time.Now()
	w.Eventually(func() error {
		c, err := w.tryReadiness(name)
		if err == nil && (c.Status != metav1.ConditionFalse || c.Reason != api.ReasonUnauthorized) {
			err = fmt.Errorf("the cluster is %s: %s", c.Reason, c.Message)
		}
		return err
	})
	w.Logf("%s is not ready %s after its token was revoked", name, time.Since(began).Round(time.Second))
	require.Contains(w, w.Readiness(name).Message, "run kcpctl up")
	w.Up(w.T)
	w.Eventually(func() error {
		c, err := w.tryReadiness(name)
		if err == nil && c.Status != metav1.ConditionTrue {
			err = fmt.Errorf("the cluster is %s: %s", c.Reason, c.Message)
		}
		return err
	})
	w.Logf("%s is ready again after %s", name, time.Since(began).Round(time.Second))
	w.Syncs(name, on)
	require.Equal(w, before, w.IDs(w.T)[process], "it was not restarted")
}

// Syncs requires that a cluster gets a new object.
func (w *Workloads) Syncs(name string, on *Workloads) {
	w.Helper()
	object := "web-" + fmt.Sprint(time.Now().UnixNano())
	w.Apply("root:team", ConfigMapGVR, fmt.Sprintf(ConfigMap, object, name, "b"))
	below := func(want bool) error {
		list, err := on.Physical.Resource(ConfigMapGVR).List(w.Context(), metav1.ListOptions{LabelSelector: api.LabelSetup})
		if err != nil {
			return err
		}
		found := slices.ContainsFunc(list.Items, func(o unstructured.Unstructured) bool { return o.GetName() == object })
		if found != want {
			return fmt.Errorf("ConfigMap %s is on %s: %t", object, name, found)
		}
		return nil
	}
	w.Eventually(func() error { return below(true) })
	require.NoError(w, w.In("root:team").Resource(ConfigMapGVR).Namespace("default").Delete(w.Context(), object, metav1.DeleteOptions{}))
	w.Eventually(func() error { return below(false) })
}

// Readiness returns the condition Ready of a Cluster.
func (w *Workloads) Readiness(cluster string) metav1.Condition {
	w.Helper()
	ready, err := w.tryReadiness(cluster)
	require.NoError(w, err)
	return ready
}

func (w *Workloads) tryReadiness(cluster string) (ready metav1.Condition, err error) {
	o, err := w.Get("root:compute", ClusterGVR, "", cluster)
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
