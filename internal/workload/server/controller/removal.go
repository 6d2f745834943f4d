package controller

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/kit/mergepatch"
	"github.com/kcpctl/kcpctl/internal/workload/placement/roots"
	"github.com/kcpctl/kcpctl/internal/workload/sync/heartbeat"
)

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
