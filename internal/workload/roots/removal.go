package roots

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kcpctl/kcpctl/internal/kcpapi"
	"github.com/kcpctl/kcpctl/internal/workload/api"
	"github.com/kcpctl/kcpctl/internal/workload/watch"
)

// Leaves are the objects in workspaces that are scheduled to a cluster.
type Leaves struct {
	// Count is the number of all, and Removed that of those whose API the setup no longer has.
	Count, Removed int
	// Complete reports whether all of them are known.
	Complete bool
}

// Leaves counts the objects in workspaces that are scheduled to a cluster.
func (s *Scheduler) Leaves(cluster string) Leaves {
	s.mu.Lock()
	set, published, watching := s.set, s.published, s.endpoints != nil
	s.mu.Unlock()
	switch {
	case set == nil:
		return Leaves{}
	case published.nothing():
		return Leaves{Complete: true}
	case !watching:
		return Leaves{}
	}
	out := Leaves{Complete: published != nil && set.Complete()}
	for _, r := range published.watched() {
		n := set.Count(r, func(o *unstructured.Unstructured) bool {
			on, _, _ := unstructured.NestedString(o.Object, "metadata", "labels", api.LabelCluster) // GetLabels would copy all of them
			return on == cluster
		})
		out.Count += n
		if published.removed(r) {
			out.Removed += n
		}
	}
	return out
}

// Abandon gives up the objects that are scheduled to a cluster: it deletes them in workspaces without waiting for the syncer. They
// stay in the cluster.
func (s *Scheduler) Abandon(ctx context.Context, cluster string) error {
	s.mu.Lock()
	resources := s.published.watched()
	s.mu.Unlock()
	for _, r := range resources {
		for _, o := range s.set.List(r) {
			if o.GetLabels()[api.LabelCluster] != cluster {
				continue
			}
			if err := s.abandon(ctx, r, o); err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("give up %s %s: %w", r.GroupResource(), watch.KeyOf(o.Unstructured), err)
			}
		}
	}
	return nil
}

func (s *Scheduler) abandon(ctx context.Context, r schema.GroupVersionResource, o watch.Object) error {
	client, err := s.set.Resource(o.Endpoint, watch.KeyOf(o.Unstructured).Cluster, r)
	if err != nil {
		return err
	}
	uid := o.GetUID()
	in := client.Namespace(o.GetNamespace())
	if o.GetDeletionTimestamp() == nil {
		if err := in.Delete(ctx, o.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}); err != nil {
			return err
		}
	}
	rest := slices.DeleteFunc(slices.Clone(o.GetFinalizers()), func(f string) bool { return f == api.FinalizerSyncer })
	raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"finalizers": rest, "uid": string(uid)}})
	if err != nil {
		return err
	}
	_, err = in.Patch(ctx, o.GetName(), types.MergePatchType, raw, metav1.PatchOptions{FieldManager: api.ManagerController})
	return err
}

// Load returns the number of objects that wait to be scheduled, and of the resources of shards that cannot be listed or watched.
func (s *Scheduler) Load() (waiting, failing int) {
	s.mu.Lock()
	set := s.set
	s.mu.Unlock()
	if set != nil {
		failing = len(set.Failures())
	}
	return s.queue.Len(), failing
}

// Bound returns the names of the APIResourceSchemas that any workspace uses, or nil if some could not be listed.
func (s *Scheduler) Bound() map[string]bool {
	s.mu.Lock()
	set := s.set
	s.mu.Unlock()
	if set == nil || !set.Complete() {
		return nil
	}
	out := map[string]bool{}
	for _, o := range set.List(kcpapi.APIBinding.GVR()) {
		resources, _, _ := unstructured.NestedSlice(o.Object, "status", "boundResources")
		for _, b := range resources {
			fields, _ := b.(map[string]any)
			if name, _, _ := unstructured.NestedString(fields, "schema", "name"); name != "" {
				out[name] = true
			}
		}
	}
	return out
}
