package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kcpctl/kcpctl/internal/workload/api"
	"github.com/kcpctl/kcpctl/internal/workload/heartbeat"
)

// guardRemoval keeps a Cluster until nothing runs there: what is scheduled to it moves, its syncer removes it, and then its APIExport and
// its Lease go. Objects that a user has given the label of the cluster do not move: they have to be deleted.
func (c *controller) guardRemoval(ctx context.Context, cl *api.Cluster) error {
	has := slices.Contains(cl.Finalizers, api.FinalizerCluster)
	if cl.DeletionTimestamp == nil {
		if has {
			return nil
		}
		return c.setFinalizers(ctx, cl, append(slices.Clone(cl.Finalizers), api.FinalizerCluster))
	}
	if !has {
		return nil
	}
	leaves, complete := c.roots.Leaves(cl.Name)
	if _, force := cl.Annotations[api.AnnotationForceRemoval]; force && leaves > 0 {
		return c.roots.Abandon(ctx, cl.Name) // the next pass sees that they are gone
	}
	if leaves > 0 || !complete {
		return nil
	}
	for _, gone := range []func() error{
		func() error {
			return c.client.Resource(exports).Delete(ctx, api.ExportCluster(cl.Name), metav1.DeleteOptions{})
		},
		func() error {
			return c.client.Resource(heartbeat.Leases).Namespace(api.NamespaceLeases).Delete(ctx, api.LeaseCluster(cl.Name), metav1.DeleteOptions{})
		},
	} {
		if err := gone(); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("remove Cluster %s: %w", cl.Name, err)
		}
	}
	c.judge.Forget(cl.Name)
	return c.setFinalizers(ctx, cl, slices.DeleteFunc(slices.Clone(cl.Finalizers), func(f string) bool { return f == api.FinalizerCluster }))
}

func (c *controller) setFinalizers(ctx context.Context, cl *api.Cluster, all []string) error {
	raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"finalizers": all, "resourceVersion": cl.ResourceVersion, "uid": string(cl.UID)}})
	if err != nil {
		return fmt.Errorf("finalizers of Cluster %s: %w", cl.Name, err)
	}
	_, err = c.client.Resource(api.ClusterGVR()).Patch(ctx, cl.Name, types.MergePatchType, raw, metav1.PatchOptions{FieldManager: api.ManagerController})
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
	switch leaves, complete := c.roots.Leaves(cl.Name); {
	case !complete:
		return api.ReasonDraining, "waits until all shards answer, because objects there may still run in the cluster"
	case leaves == 0:
		return api.ReasonDrained, "nothing is scheduled to the cluster"
	default:
		return api.ReasonDraining, fmt.Sprintf("objects in workspaces that are still in it: %d. They move if another cluster can run them, and if its syncer "+
			"runs. Volumes, workloads that use them, and objects that users gave the label %s do not move: delete them", leaves, api.LabelCluster)
	}
}

// drained reports whether the status of a Cluster says that it is drained.
func drained(cl *api.Cluster) bool {
	s := meta.FindStatusCondition(cl.Status.Conditions, api.ConditionSchedulable)
	return s != nil && s.Reason == api.ReasonDrained
}

// removing returns the message about a Cluster that is deleted.
func (c *controller) removing(cl *api.Cluster) string {
	leaves, complete := c.roots.Leaves(cl.Name)
	if !complete {
		return "the Cluster is deleted: waits until all shards answer, because objects there may still run in the cluster"
	}
	return fmt.Sprintf("the Cluster is deleted; objects in workspaces that are still in it: %d. They move if another cluster can run them, and if its "+
		"syncer runs. kubectl annotate cluster %s %s=true gives them up, without removing them from the cluster", leaves, cl.Name, api.AnnotationForceRemoval)
}
