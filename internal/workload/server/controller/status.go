package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/kit/mergepatch"
	"github.com/kcpctl/kcpctl/internal/workload/apis/negotiate"
	"github.com/kcpctl/kcpctl/internal/workload/placement/fleet"
	"github.com/kcpctl/kcpctl/internal/workload/placement/roots"
	"github.com/kcpctl/kcpctl/internal/workload/sync/heartbeat"
	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

// draft is a Cluster with its next status. The drafts of all clusters are made before the first one is written, because
// some conditions depend on other clusters.
type draft struct {
	*api.Cluster
	next    api.ClusterStatus
	verdict heartbeat.Verdict
	problem error
}

// changed reports whether the next status is another one.
func (d *draft) changed() bool { return !equality.Semantic.DeepEqual(d.next, d.Status) }

func (c *controller) evaluate(clusters []*api.Cluster) {
	now := c.Now()
	if slices.ContainsFunc(c.set.Failures(), func(f watch.Failure) bool { return f.Resource == heartbeat.Leases }) {
		c.judge.Blind(now)
	}
	c.verdicts = map[string]heartbeat.Verdict{}
	for _, cl := range clusters {
		c.verdicts[cl.Name] = c.judge.Evaluate(cl,
			c.object(heartbeat.Leases, api.NamespaceLeases, api.LeaseCluster(cl.Name)), now)
	}
}

// drafts returns the next status of each cluster, except for the condition Evicted.
func (c *controller) drafts(ctx context.Context, ids identities, now time.Time) (all []*draft) {
	count := now.Sub(c.counted) >= c.every(countInterval)
	if count {
		c.counted = now
	}
	for _, cl := range ids.clusters {
		d := &draft{Cluster: cl, next: cl.Status, verdict: c.verdicts[cl.Name]}
		d.next.Conditions = slices.Clone(cl.Status.Conditions)
		switch {
		case c.publisher.published == nil && d.next.Leaves != nil:
			d.next.Leaves = nil // without the published APIs, it is not known
		case count && c.leaves()[cl.Name].Complete:
			d.next.Leaves = new(int64(c.leaves()[cl.Name].Count))
		}
		c.record(ctx, d, ids)
		for _, condition := range c.conditions(d, ids) {
			d.set(condition, now)
		}
		copyReport(d)
		all = append(all, d)
	}
	return all
}

// evict sets the condition Evicted of each cluster. It returns when the next one is due.
func evict(drafts []*draft, now time.Time) (due time.Time) {
	var next []*api.Cluster
	for _, d := range drafts {
		cl := *d.Cluster
		cl.Status = d.next
		next = append(next, &cl)
	}
	conditions := fleet.Evicted(next, now)
	for _, d := range drafts {
		d.set(conditions[d.Name], now)
	}
	return fleet.Next(next, now)
}

func (d *draft) set(condition metav1.Condition, now time.Time) {
	condition.LastTransitionTime = metav1.NewTime(now)
	condition.Message = heartbeat.CutTo(condition.Message, maxMessage) // as it is written: else it would be another one
	if last := meta.FindStatusCondition(d.next.Conditions, condition.Type); last != nil &&
		condition.Type == api.ConditionReady {
		if last.Status == condition.Status && fleet.IsRefused(last.Reason) && !fleet.IsRefused(condition.Reason) {
			// It was known that the cluster can run what it has, and now it is not: the time until it is evicted
			// begins.
			meta.RemoveStatusCondition(&d.next.Conditions, condition.Type)
		}
	}
	meta.SetStatusCondition(&d.next.Conditions, condition)
}

// conditions returns the conditions of a cluster that do not depend on whether others are ready.
func (c *controller) conditions(d *draft, ids identities) []metav1.Condition {
	schedulable := c.schedulable(d.Cluster)
	schedulable.ObservedGeneration = d.Generation // it is about spec.unschedulable
	compatible := negotiate.Condition(d.next.APIs)
	if unreadable := c.unreadable(d); unreadable != nil {
		compatible = *unreadable
	}
	all := append(slices.Clone(d.verdict.Conditions), compatible, schedulable)
	if message := c.unread(d); message != "" {
		for i := range all {
			if t := all[i].Type; t == api.ConditionReady && all[i].Status == metav1.ConditionTrue {
				all[i] = api.Not(t, api.ReasonSchemasUnreadable, message)
			}
		}
	}
	if reason, message := c.unusable(d.Cluster, ids); reason != "" {
		for i := range all {
			if t := all[i].Type; t == api.ConditionReady || t == api.ConditionReachable {
				all[i] = api.Not(t, reason, message)
			}
		}
	}
	return all
}

// unread returns why nothing can be scheduled to a new cluster: none of its APIs is known yet. It is empty otherwise.
func (c *controller) unread(d *draft) string {
	known := func(a api.APIStatus) bool { return a.Message != unreported }
	if len(c.APIs) == 0 || slices.ContainsFunc(d.Status.APIs, known) {
		return ""
	}
	return cmp.Or(c.reports.unreadable(d.Cluster, d.verdict.Report), unreported)
}

// unusable returns why a cluster cannot be used, which its heartbeats do not tell.
func (c *controller) unusable(cl *api.Cluster, ids identities) (reason, message string) {
	if cl.Mode() == v1alpha1.SyncModePush {
		if _, _, err := c.members.connect(cl); err != nil {
			return api.ReasonKubeconfigInvalid, err.Error()
		}
	}
	if same := ids.sameAs(cl); same != "" {
		return api.ReasonDuplicateCluster, fmt.Sprintf("Cluster %s is the same physical cluster: delete one of them",
			same)
	}
	if message := ids.replaced(cl); message != "" {
		return api.ReasonClusterReplaced, message
	}
	return "", ""
}

func copyReport(d *draft) {
	v := d.verdict
	next := &d.next
	if v.Report.ClusterVersion != "" {
		next.Version = v.Report.ClusterVersion
	}
	if v.Report.Capacity != nil && !equality.Semantic.DeepEqual(v.Report.Capacity, next.Capacity) {
		next.Capacity = v.Report.Capacity
	}
	if v.Report.Mode != "" {
		next.Syncer = &api.SyncerStatus{Mode: v.Report.Mode, Version: v.Report.Version, Holder: v.Holder}
	}
	// Heartbeats alone do not change the object: a thousand clusters would be a hundred writes in a second.
	if !v.LastHeartbeat.IsZero() && (d.changed() || next.LastHeartbeatTime == nil ||
		v.LastHeartbeat.Sub(next.LastHeartbeatTime.Time) > 5*time.Minute) {
		t := metav1.NewTime(v.LastHeartbeat)
		next.LastHeartbeatTime = &t
	}
}

// writeStatus writes the next status of a Cluster, if it is another one.
func (c *controller) writeStatus(ctx context.Context, d *draft) error {
	if d.changed() {
		if err := c.patchStatus(ctx, d.Cluster, d.next); err != nil {
			return errors.Join(d.problem, err)
		}
	}
	return d.problem
}

func (c *controller) schedulable(cl *api.Cluster) metav1.Condition {
	not := func(reason, message string) metav1.Condition {
		return api.Not(api.ConditionSchedulable, reason, message)
	}
	switch {
	case cl.DeletionTimestamp != nil:
		return not(api.ReasonRemoving, c.removing(cl))
	case cl.Draining():
		return not(c.draining(cl))
	case cl.Spec.Unschedulable:
		return not(api.ReasonCordoned, "spec.unschedulable is set")
	}
	return metav1.Condition{Type: api.ConditionSchedulable, Status: metav1.ConditionTrue, Reason: api.ReasonReady}
}

// guardRemoval keeps a Cluster until nothing runs there: what is scheduled to it moves, its syncer removes it, and then
// its APIExport and its Lease go. Objects that a user has given the label of the cluster do not move: they have to be
// deleted.
func (c *controller) guardRemoval(ctx context.Context, cl *api.Cluster) error {
	has := slices.Contains(cl.Finalizers, api.FinalizerCluster)
	if cl.DeletionTimestamp == nil {
		if has && cl.Annotations[api.AnnotationSetup] == c.Setup {
			return nil
		}
		all := slices.DeleteFunc(slices.Clone(cl.Finalizers), func(f string) bool { return f == api.FinalizerCluster })
		return c.mark(ctx, cl, append(all, api.FinalizerCluster))
	}
	if !has {
		return nil
	}
	leaves := c.leaves()[cl.Name]
	if cl.GivenUp() && leaves.Count > 0 {
		return c.roots.Abandon(ctx, cl.Name) // the next pass sees that they are gone
	}
	if leaves.Count > 0 || !leaves.Complete {
		return nil
	}
	// The watch may still show a Cluster that is gone, and another one can have its name.
	live, err := c.client.Resource(api.ClusterGVR()).Get(ctx, cl.Name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("remove Cluster %s: %w", cl.Name, err)
	}
	if err != nil || live.GetUID() != cl.UID {
		return nil
	}
	export := c.client.Resource(exports).Delete(ctx, api.ExportCluster(cl.Name), metav1.DeleteOptions{})
	lease := c.client.Resource(heartbeat.Leases).Namespace(api.NamespaceLeases).Delete(ctx, api.LeaseCluster(cl.Name),
		metav1.DeleteOptions{})
	for _, err := range []error{export, lease} {
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("remove Cluster %s: %w", cl.Name, err)
		}
	}
	c.judge.Forget(cl.Name)
	return c.mark(ctx, cl, slices.DeleteFunc(slices.Clone(cl.Finalizers),
		func(f string) bool { return f == api.FinalizerCluster }))
}

// mark sets the finalizers of a Cluster, and the ID of the setup, with which its syncer works.
func (c *controller) mark(ctx context.Context, cl *api.Cluster, finalizers []string) error {
	_, err := mergepatch.Send(ctx, c.client.Resource(api.ClusterGVR()), api.ManagerController, cl.Name, cl.UID,
		map[string]any{"metadata": map[string]any{
			"finalizers": finalizers, "annotations": map[string]any{api.AnnotationSetup: c.Setup},
			"resourceVersion": cl.ResourceVersion,
		}})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // it has changed: the watch brings it back
	}
	if err != nil {
		return fmt.Errorf("finalizers of Cluster %s: %w", cl.Name, err)
	}
	return nil
}

// draining returns the reason and the message of the condition Schedulable of a Cluster that is drained.
func (c *controller) draining(cl *api.Cluster) (reason, message string) {
	leaves := c.leaves()[cl.Name]
	if leaves.Complete && leaves.Count == 0 {
		return api.ReasonDrained, "nothing is scheduled to the cluster"
	}
	message = c.stillIn(leaves)
	if leaves.Complete {
		message += fmt.Sprintf(". Volumes, workloads that use them, and objects that users gave the label %s do not "+
			"move: delete them", api.LabelCluster)
	}
	return api.ReasonDraining, message
}

// stillIn says what is still scheduled to a cluster that waits for it.
func (c *controller) stillIn(leaves roots.Leaves) string {
	if c.publisher.published == nil {
		return fmt.Sprintf("waits until it is known which APIs are published, because objects there may still run in "+
			"the cluster: APIExport %s is missing or cannot be read", api.ExportWorkloads)
	}
	if !leaves.Complete {
		return "waits until all shards answer, because objects there may still run in the cluster"
	}
	message := fmt.Sprintf("objects in workspaces that are still in it: %d. They move if another cluster can run "+
		"them, and if its syncer runs", leaves.Count)
	if leaves.Removed > 0 {
		message += fmt.Sprintf(". %d of them cannot: the setup no longer has their API. Add it to "+
			"spec.workloads.apis again", leaves.Removed)
	}
	return message
}

// drained reports whether the status of a Cluster says that it is drained.
func drained(cl *api.Cluster) bool {
	s := meta.FindStatusCondition(cl.Status.Conditions, api.ConditionSchedulable)
	return s != nil && s.Reason == api.ReasonDrained
}

// removing returns the message about a Cluster that is deleted.
func (c *controller) removing(cl *api.Cluster) string {
	leaves := c.leaves()[cl.Name]
	message := "the Cluster is deleted; " + c.stillIn(leaves)
	if leaves.Complete {
		message += fmt.Sprintf(". kubectl annotate cluster %s %s=true gives them up, without removing them from "+
			"the cluster", cl.Name, api.AnnotationForceRemoval)
	}
	return message
}
