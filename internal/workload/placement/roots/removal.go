package roots

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/kit/mergepatch"
	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

// Leaves are the objects in workspaces that are scheduled to a cluster.
type Leaves struct {
	// Count is the number of leaves, and Removed the number of leaves whose API the setup no longer has.
	Count, Removed int
	// Complete reports whether all of them are known.
	Complete bool
}

// LeavesByCluster counts the objects in workspaces that are scheduled to each cluster that there is, or that an object
// is scheduled to. The set has the numbers, so it does not matter how many there are.
func (s *Scheduler) LeavesByCluster() map[string]Leaves {
	f := s.view.facts()
	out := map[string]Leaves{}
	known := f.set != nil && (f.Published.nothing() || f.endpoints != nil && f.Published != nil && f.set.Complete() &&
		f.set.CompleteFor(f.endpoints, f.Published.watched()))
	for _, c := range f.Clusters {
		out[c.Name] = Leaves{Complete: known}
	}
	for name := range f.givenUp {
		out[name] = Leaves{Complete: known}
	}
	if f.set == nil || f.endpoints == nil || f.Published.nothing() {
		return out
	}
	for _, r := range f.Published.leaves() {
		for cluster, count := range f.set.Classes(r) {
			n := out[cluster]
			n.Complete = known
			n.Count += count
			if f.Published.removed(r) {
				n.Removed += count
			}
			out[cluster] = n
		}
	}
	delete(out, "") // the class of roots
	return out
}

func (p *Published) leaves() []schema.GroupVersionResource {
	return slices.DeleteFunc(p.watched(),
		func(r schema.GroupVersionResource) bool { return r == kcpapi.APIBinding.GVR() })
}

// bindingClass is the beginning of the class of an APIBinding. Names of clusters have no spaces.
const bindingClass = "binds "

// usedOf returns the clusters that decisions are about, and the names of those that are given up: Abandon alone writes
// their leaves. A leaf that the scheduler deletes takes its object in the cluster with it, and one that it writes would
// have to be given up again.
func usedOf(all []*api.Cluster) (used []*api.Cluster, givenUp map[string]bool) {
	givenUp = map[string]bool{}
	for _, c := range all {
		if c.GivenUp() {
			givenUp[c.Name] = true
		} else {
			used = append(used, c)
		}
	}
	return used, givenUp
}

// Abandon gives up the objects that are scheduled to a cluster: it deletes them in workspaces without waiting for the
// syncer. They are kept in the cluster.
func (s *Scheduler) Abandon(ctx context.Context, cluster string) error {
	f := s.view.facts()
	var errs []error
	for _, r := range f.Published.leaves() {
		for _, k := range f.set.Keys(r, cluster) {
			o, ok := f.set.Get(r, k)
			if !ok || o.GetLabels()[api.LabelCluster] != cluster {
				continue
			}
			if err := abandon(ctx, f.set, r, o); err != nil && !apierrors.IsNotFound(err) {
				errs = append(errs, fmt.Errorf("give up %s %s: %w", r.GroupResource(), k, err))
			}
		}
	}
	return errors.Join(errs...)
}

func abandon(ctx context.Context, set *watch.Set, r schema.GroupVersionResource, o watch.Object) error {
	client, err := set.Resource(o.Endpoint, watch.KeyOf(o.Unstructured).Cluster, r)
	if err != nil {
		return err
	}
	in := client.Namespace(o.GetNamespace())
	rest := slices.DeleteFunc(slices.Clone(o.GetFinalizers()), func(f string) bool { return f == api.FinalizerSyncer })
	live, err := mergepatch.Send(ctx, in, api.ManagerController, o.GetName(), o.GetUID(),
		map[string]any{"metadata": map[string]any{"finalizers": rest}})
	if err != nil || o.GetDeletionTimestamp() != nil {
		return err
	}
	// The finalizer goes first: a syncer that still runs must not see a deletion, because it would remove the object in
	// the cluster, with its data. If the syncer has added the finalizer again meanwhile, the version differs, and the
	// next pass repeats both.
	uid, version := live.GetUID(), live.GetResourceVersion()
	return in.Delete(ctx, o.GetName(),
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}})
}

// Load returns the number of objects that wait to be scheduled and of bindings that wait, and the number of resources
// of shards that cannot be listed or watched.
func (s *Scheduler) Load() (waiting, failing int) {
	if set := s.view.set(); set != nil {
		failing = len(set.Failures())
	}
	return s.queue.Len() + s.binder.queue.Len(), failing
}

// Bound returns the names of the APIResourceSchemas that any workspace uses, or nil if some could not be listed.
func (s *Scheduler) Bound() map[string]bool {
	set := s.view.set()
	if set == nil || !set.Complete() {
		return nil
	}
	out := map[string]bool{}
	bindings := kcpapi.APIBinding.GVR()
	for _, k := range set.Keys(bindings, bindingClass+api.ExportWorkloads) {
		o, ok := set.Get(bindings, k)
		if !ok {
			continue // it is gone by now
		}
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
