package roots

import (
	"context"
	"errors"
	"fmt"
	"maps"
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

// Leaves counts the objects in workspaces that are scheduled to a cluster.
func (s *Scheduler) Leaves(cluster string) Leaves { return s.counted([]string{cluster})[cluster] }

// LeavesByCluster counts them for each cluster that there is, or that an object is scheduled to.
func (s *Scheduler) LeavesByCluster() map[string]Leaves {
	s.mu.Lock()
	set := s.set
	published := s.published
	names := map[string]bool{}
	for _, c := range s.clusters {
		names[c.Name] = true
	}
	maps.Copy(names, s.givenUp)
	s.mu.Unlock()
	if set != nil {
		for _, r := range published.leaves() {
			for class := range set.Classes(r) {
				names[class] = true
			}
		}
	}
	delete(names, "") // the class of roots
	return s.counted(slices.Collect(maps.Keys(names)))
}

// counted counts the leaves of clusters. The set has the numbers, so it does not matter how many there are.
func (s *Scheduler) counted(clusters []string) map[string]Leaves {
	s.mu.Lock()
	set := s.set
	published := s.published
	watching := s.endpoints != nil
	endpoints := s.endpoints
	s.mu.Unlock()
	known := set != nil && (published.nothing() || watching && published != nil && set.Complete() &&
		set.CompleteFor(endpoints, published.watched()))
	out := map[string]Leaves{}
	for _, cluster := range clusters {
		n := Leaves{Complete: known}
		if set != nil && watching && !published.nothing() {
			for _, r := range published.leaves() {
				count := set.ClassCount(r, cluster)
				n.Count += count
				if published.removed(r) {
					n.Removed += count
				}
			}
		}
		out[cluster] = n
	}
	return out
}

// leaves returns the resources that leaves are of.
func (p *Published) leaves() []schema.GroupVersionResource {
	return slices.DeleteFunc(p.watched(),
		func(r schema.GroupVersionResource) bool { return r == kcpapi.APIBinding.GVR() })
}

// bindingClass is the beginning of the class of an APIBinding. Names of clusters have no spaces.
const bindingClass = "binds "

// classOf returns the class of an object for the set: the cluster that it is scheduled to, "" for a root, and the
// APIExport of a binding that is one of the compute workspace.
func (s *Scheduler) classOf(u *unstructured.Unstructured) string {
	if u.GetKind() == kcpapi.APIBinding.Kind {
		if path, name := exportOf(u); path == s.Workspace {
			return bindingClass + name
		}
		return bindingClass
	}
	on, _, _ := unstructured.NestedString(u.Object, "metadata", "labels",
		api.LabelCluster) // GetLabels would copy all of them
	return on
}

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
	s.mu.Lock()
	resources := s.published.leaves()
	s.mu.Unlock()
	var errs []error
	for _, r := range resources {
		for _, k := range s.set.Keys(r, cluster) {
			o, ok := s.set.Get(r, k)
			if !ok || o.GetLabels()[api.LabelCluster] != cluster {
				continue
			}
			if err := s.abandon(ctx, r, o); err != nil && !apierrors.IsNotFound(err) {
				errs = append(errs, fmt.Errorf("give up %s %s: %w", r.GroupResource(), k, err))
			}
		}
	}
	return errors.Join(errs...)
}

func (s *Scheduler) abandon(ctx context.Context, r schema.GroupVersionResource, o watch.Object) error {
	client, err := s.set.Resource(o.Endpoint, watch.KeyOf(o.Unstructured).Cluster, r)
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

// Load returns the number of objects that wait to be scheduled and of workspaces that wait for bindings, and the number
// of resources of shards that cannot be listed or watched.
func (s *Scheduler) Load() (waiting, failing int) {
	s.mu.Lock()
	set := s.set
	s.mu.Unlock()
	if set != nil {
		failing = len(set.Failures())
	}
	return s.queue.Len() + s.binder.queue.Len(), failing
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
