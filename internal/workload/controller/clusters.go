package controller

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/kcpctl/kcpctl/internal/workload/api"
	"github.com/kcpctl/kcpctl/internal/workload/heartbeat"
	"github.com/kcpctl/kcpctl/internal/workload/negotiate"
	"github.com/kcpctl/kcpctl/internal/workload/watch"
)

// errKubeconfig means that the kubeconfig of a cluster cannot be used.
var errKubeconfig = errors.New("the kubeconfig cannot be used")

// updateMembers starts and stops the clusters in push mode.
func (c *controller) updateMembers(ctx context.Context, clusters []*api.Cluster) {
	wanted := map[string]bool{}
	for _, cl := range clusters {
		if cl.Mode() != api.SyncModePush {
			continue
		}
		cfg, version, err := c.connect(cl)
		if err != nil {
			continue // writeStatus reports it. A syncer that runs is stopped: its credentials were taken away.
		}
		wanted[cl.Name] = true
		if m := c.members[cl.Name]; m != nil && m.secret == version {
			continue
		}
		c.stopMember(cl.Name)
		c.members[cl.Name] = c.startMember(ctx, cl, cfg, version)
	}
	for _, name := range slices.Collect(maps.Keys(c.members)) {
		if !wanted[name] {
			c.stopMember(name)
		}
	}
	for _, cl := range clusters {
		m := c.members[cl.Name]
		if m == nil {
			continue
		}
		if _, uid, _ := m.state(); uid != "" && c.sameAs(cl, clusters) == "" {
			m.clear()
		}
	}
}

// connect returns how to reach a cluster, and the version of its kubeconfig.
func (c *controller) connect(cl *api.Cluster) (*rest.Config, string, error) {
	ref := cl.Spec.KubeconfigSecretRef
	if ref == nil {
		return nil, "", fmt.Errorf("%w: spec.kubeconfigSecretRef is not set", errKubeconfig)
	}
	secret := c.object(secrets, ref.Namespace, ref.Name)
	if secret == nil {
		return nil, "", fmt.Errorf("%w: there is no Secret %s/%s in workspace %s", errKubeconfig, ref.Namespace, ref.Name, c.Workspace)
	}
	text, _, _ := unstructured.NestedString(secret.Object, "data", api.KeyKubeconfig)
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(raw) == 0 {
		return nil, "", fmt.Errorf("%w: Secret %s/%s has no key %s", errKubeconfig, ref.Namespace, ref.Name, api.KeyKubeconfig)
	}
	cfg, err := c.Connect(raw)
	if err != nil {
		// Not the error itself: it can quote what it does not understand.
		return nil, "", fmt.Errorf("%w: the content of Secret %s/%s is not a kubeconfig with a current context", errKubeconfig, ref.Namespace, ref.Name)
	}
	return cfg, secret.GetResourceVersion(), nil
}

// sameAs returns the name of an older Cluster that is the same physical cluster.
func (c *controller) sameAs(cl *api.Cluster, clusters []*api.Cluster) string {
	uid := c.uid(cl.Name)
	for _, older := range clusters {
		if older.Name == cl.Name || uid == "" {
			return ""
		}
		if c.uid(older.Name) == uid {
			return older.Name
		}
	}
	return ""
}

// uid returns what identifies a physical cluster, or nothing if it was not read yet. A syncer reports that of its cluster. It cannot claim
// another cluster that it does not know, because UIDs are random.
func (c *controller) uid(cluster string) types.UID {
	if m := c.members[cluster]; m != nil {
		_, uid, _ := m.state()
		return uid
	}
	if r := c.reports[cluster]; r != nil {
		return r.uid
	}
	return ""
}

// object returns an object of the compute workspace that is watched, or nil.
func (c *controller) object(r schema.GroupVersionResource, namespace, name string) *unstructured.Unstructured {
	if o, ok := c.set.Get(r, watch.Key{Cluster: c.setup, Namespace: namespace, Name: name}); ok {
		return o.Unstructured
	}
	return nil
}

// lease returns the Lease of a cluster, or nil.
func (c *controller) lease(cluster string) *unstructured.Unstructured {
	return c.object(heartbeat.Leases, api.NamespaceLeases, api.LeaseCluster(cluster))
}

// unusable returns why a cluster cannot be used, which its heartbeats do not tell.
func (c *controller) unusable(cl *api.Cluster, clusters []*api.Cluster) (reason, message string) {
	if cl.Mode() == api.SyncModePush {
		if _, _, err := c.connect(cl); err != nil {
			return api.ReasonKubeconfigInvalid, err.Error()
		}
	}
	if same := c.sameAs(cl, clusters); same != "" {
		return api.ReasonDuplicateCluster, fmt.Sprintf("Cluster %s is the same physical cluster: delete one of them", same)
	}
	m := c.members[cl.Name]
	if m == nil {
		return "", ""
	}
	result, _, problem := m.state()
	switch {
	case result != nil || problem == nil:
		return "", ""
	case apierrors.IsUnauthorized(problem):
		return api.ReasonUnauthorized, problem.Error()
	case apierrors.IsForbidden(problem):
		return api.ReasonForbidden, problem.Error()
	}
	return api.ReasonUnreachable, problem.Error()
}

// writeStatus writes the status of a Cluster, if it changes. With count, it also counts what is scheduled to the cluster.
func (c *controller) writeStatus(ctx context.Context, cl *api.Cluster, clusters []*api.Cluster, v heartbeat.Verdict, count bool) error {
	next := cl.Status
	next.Conditions = slices.Clone(cl.Status.Conditions)
	changed := false
	if count {
		if n := c.roots.Leaves(cl.Name); n.Complete && (next.Leaves == nil || *next.Leaves != int64(n.Count)) {
			next.Leaves, changed = new(int64(n.Count)), true
		}
	}
	schedulable := c.schedulable(cl)
	schedulable.ObservedGeneration = cl.Generation // it is about spec.unschedulable
	compatible := negotiate.Condition(next.APIs)
	if unreadable := c.unreadable(cl, v.Report); unreadable != nil {
		compatible = *unreadable
	}
	conditions := append(slices.Clone(v.Conditions), compatible, schedulable)
	if reason, message := c.unusable(cl, clusters); reason != "" {
		for i := range conditions {
			if t := conditions[i].Type; t == api.ConditionReady || t == api.ConditionReachable {
				conditions[i].Status, conditions[i].Reason, conditions[i].Message = metav1.ConditionFalse, reason, message
			}
		}
	}
	for _, condition := range conditions {
		condition.LastTransitionTime = metav1.NewTime(c.Now())
		changed = meta.SetStatusCondition(&next.Conditions, condition) || changed
	}
	if v.Report.ClusterVersion != "" {
		next.Version = v.Report.ClusterVersion
	}
	if v.Report.Capacity != nil && !equality.Semantic.DeepEqual(v.Report.Capacity, next.Capacity) {
		next.Capacity, changed = v.Report.Capacity, true
	}
	var problem error
	if v.Report.Mode != "" {
		problem = c.forgetReports(ctx, cl, v.Report.Mode)
	}
	if v.Report.Mode != "" && problem == nil {
		next.Syncer = &api.SyncerStatus{Mode: v.Report.Mode, Version: v.Report.Version, Holder: v.Holder}
	}
	changed = changed || next.Version != cl.Status.Version || !reflect.DeepEqual(next.Syncer, cl.Status.Syncer)
	// Heartbeats alone do not change the object: a thousand clusters would be a hundred writes in a second.
	if !v.LastHeartbeat.IsZero() && (changed || next.LastHeartbeatTime == nil || v.LastHeartbeat.Sub(next.LastHeartbeatTime.Time) > 5*time.Minute) {
		t := metav1.NewTime(v.LastHeartbeat)
		next.LastHeartbeatTime, changed = &t, true
	}
	if changed {
		problem = errors.Join(problem, c.patchStatus(ctx, cl, next))
	}
	return problem
}

// schedulable returns the condition Schedulable.
func (c *controller) schedulable(cl *api.Cluster) metav1.Condition {
	if cl.DeletionTimestamp != nil {
		return metav1.Condition{
			Type: api.ConditionSchedulable, Status: metav1.ConditionFalse, Reason: api.ReasonRemoving, Message: c.removing(cl),
		}
	}
	if cl.Draining() {
		reason, message := c.draining(cl)
		return metav1.Condition{Type: api.ConditionSchedulable, Status: metav1.ConditionFalse, Reason: reason, Message: message}
	}
	if cl.Spec.Unschedulable {
		return metav1.Condition{
			Type: api.ConditionSchedulable, Status: metav1.ConditionFalse, Reason: api.ReasonCordoned, Message: "spec.unschedulable is set",
		}
	}
	return metav1.Condition{Type: api.ConditionSchedulable, Status: metav1.ConditionTrue, Reason: api.ReasonReady}
}

// patchStatus writes a status. The watch brings it back.
func (c *controller) patchStatus(ctx context.Context, cl *api.Cluster, status api.ClusterStatus) error {
	raw, err := statusPatch(status)
	if err != nil {
		return fmt.Errorf("status of Cluster %s: %w", cl.Name, err)
	}
	_, err = c.client.Resource(api.ClusterGVR()).Patch(ctx, cl.Name, types.MergePatchType, raw, metav1.PatchOptions{FieldManager: api.ManagerController}, "status")
	if err != nil {
		return fmt.Errorf("status of Cluster %s: %w", cl.Name, err)
	}
	cl.Status = status
	return nil
}
