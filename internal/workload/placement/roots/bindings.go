package roots

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/kit/mergepatch"
	"github.com/kcpctl/kcpctl/internal/workload/placement/schedule"
	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

const (
	// The delays before the next request to kcp to apply the claims of a binding, and before the next attempt to write
	// a binding. Until the claims are applied, nothing that is scheduled to the cluster in the workspace goes there.
	firstBind = time.Second
	lastBind  = time.Minute
	// bindsPerSecond is how many bindings are written in a second, and bindBurst how many at once: kcp applies the
	// claims of each, in all objects of the workspace.
	bindsPerSecond = 50
	bindBurst      = 100
	bindWorkers    = 4
	// goneInterval is the time until a binding is looked at again whose cluster is gone, and whose leaves are not.
	goneInterval = time.Minute
)

// annotationRetried is the time when a binding was last changed so that kcp tries again.
const annotationRetried = api.Group + "/retried"

// bindings returns the item of the APIBindings of a logical cluster, for the log.
func bindings(cluster string) item { return item{kcpapi.APIBinding.GVR(), watch.Key{Cluster: cluster}} }

// needBinding makes sure that a workspace has bindings for clusters, and keeps them. It reports whether all of them
// show the objects to their syncers by now. It is cheap: the scheduler calls it with each decision.
func (s *Scheduler) needBinding(workspace string, clusters []string) (ready bool) {
	b := s.binder
	b.mu.Lock()
	ready = true
	add := false
	for _, c := range clusters {
		applied, exists := b.applied[workspace][c]
		ready = ready && applied
		if exists || b.needed[workspace][c] {
			continue
		}
		if b.needed[workspace] == nil {
			b.needed[workspace] = map[string]bool{}
		}
		b.needed[workspace][c] = true
		add = true
	}
	b.mu.Unlock()
	if add {
		b.queue.Add(workspace)
	}
	return ready
}

// bindAll looks at the bindings of all workspaces that use the published APIs.
func (s *Scheduler) bindAll() {
	for _, k := range s.set.Keys(kcpapi.APIBinding.GVR(), bindingClass+api.ExportWorkloads) {
		s.binder.queue.Add(k.Cluster)
	}
}

// bindWork handles the queue of bindings until it is shut down.
func (s *Scheduler) bindWork(ctx context.Context) {
	for {
		workspace, stop := s.binder.queue.Get()
		if stop {
			return
		}
		limited, cancel := context.WithTimeout(ctx, watch.RequestTimeout)
		again, err := s.bind(limited, workspace)
		cancel()
		switch {
		case err != nil && ctx.Err() == nil:
			if !expected(bindings(workspace), err, s.binder.queue.NumRequeues(workspace)) {
				klog.FromContext(ctx).Error(err, "Cannot bind the clusters, retrying", "workspace", workspace)
			}
			s.binder.queue.AddRateLimited(workspace)
		default:
			s.binder.queue.Forget(workspace)
			if again > 0 {
				s.binder.queue.AddAfter(workspace, again)
			}
		}
		s.binder.queue.Done(workspace)
	}
}

// bind binds the APIExports of clusters in a workspace that uses the published APIs: through it, the syncer of the
// cluster sees the objects with its label, and no others. It returns when to look again, or zero.
func (s *Scheduler) bind(ctx context.Context, workspace string) (again time.Duration, _ error) {
	s.mu.Lock()
	exports := s.exports
	s.mu.Unlock()
	all := s.set.In(kcpapi.APIBinding.GVR(), workspace, "")
	if len(all) == 0 {
		s.binder.forget(workspace)
	}
	if len(all) == 0 || exports == nil {
		return 0, nil
	}
	r, err := s.set.Resource(all[0].Endpoint, workspace, kcpapi.APIBinding.GVR())
	if err != nil {
		return 0, err
	}
	have := map[string]watch.Object{}
	for _, o := range all {
		path, name := exportOf(o.Unstructured)
		if path != s.Workspace {
			continue
		}
		have[name] = o
		wait, err := s.check(ctx, r, workspace, name, o, exports)
		if err != nil && !apierrors.IsNotFound(err) {
			return 0, fmt.Errorf("APIBinding %s of workspace %s: %w", o.GetName(), workspace, err)
		}
		again = sooner(again, wait)
	}
	if _, uses := have[api.ExportWorkloads]; !uses {
		return again, nil
	}
	for _, name := range s.wantedBindings(workspace, exports) {
		if _, exists := have[name]; exists {
			continue
		}
		if wait := s.binder.left(binding{workspace, name}, s.Now()); wait > 0 {
			again = sooner(again, wait) // it was written, and comes with the watch
			continue
		}
		want := bindingTo(s.Workspace, name, exports[name])
		if err := s.apply(ctx, r, binding{workspace, name}, want); err != nil {
			return 0, fmt.Errorf("bind APIExport %s in workspace %s: %w", name, workspace, err)
		}
		again = sooner(again, firstBind)
	}
	s.binder.record(workspace, have)
	return again, nil
}

// check makes a binding what it should be. It returns when to look again, or zero.
func (s *Scheduler) check(
	ctx context.Context, r dynamic.ResourceInterface, workspace, export string, o watch.Object,
	exports map[string][]any,
) (time.Duration, error) {
	at := binding{workspace, export}
	claims, exists := exports[export]
	switch {
	case export == api.ExportWorkloads:
		return s.ask(ctx, r, at, o.Unstructured)
	case !strings.HasPrefix(export, api.ExportCluster("")):
		return 0, nil
	case !exists:
		return s.unbind(ctx, r, at, o)
	}
	want := bindingTo(s.Workspace, export, claims)
	want.SetName(o.GetName())
	if claimsOf(o.Unstructured) != claimsOf(want) {
		s.binder.settled(at)
		return firstBind, s.apply(ctx, r, at, want)
	}
	return s.ask(ctx, r, at, o.Unstructured)
}

// wantedBindings returns the APIExports that a workspace needs: of the clusters of its leaves and of decisions, and of
// the clusters that it prefers, so that its first workload there does not wait until kcp has applied the claims, which
// takes seconds. Bindings of all clusters in all workspaces would be too many.
func (s *Scheduler) wantedBindings(workspace string, exports map[string][]any) []string {
	b := s.binder
	leaves := s.set.ClassesIn(workspace)
	refused := map[string]bool{} // found before the binder is locked: the scheduler locks itself first, and then the binder
	for name := range exports {
		cluster := strings.TrimPrefix(name, api.ExportCluster(""))
		refused[cluster] = b.usable != nil && !b.usable(workspace, cluster)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var usable []string
	wanted := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(exports)) {
		cluster := strings.TrimPrefix(name, api.ExportCluster(""))
		if refused[cluster] {
			continue // not even for an object to which a user has given its label
		}
		usable = append(usable, cluster)
		if leaves[cluster] > 0 || b.needed[workspace][cluster] {
			wanted[name] = true
		}
	}
	maps.DeleteFunc(b.needed[workspace], func(cluster string, _ bool) bool { // users can write any name into the label
		_, exists := exports[api.ExportCluster(cluster)]
		return !exists
	})
	for _, cluster := range schedule.Near(workspace, usable) {
		wanted[api.ExportCluster(cluster)] = true
	}
	return slices.Sorted(maps.Keys(wanted))
}

// sooner returns the shorter one of two intervals that are not zero.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// exportOf returns the APIExport of a binding.
func exportOf(b *unstructured.Unstructured) (path, name string) {
	path, _, _ = unstructured.NestedString(b.Object, "spec", "reference", "export", "path")
	name, _, _ = unstructured.NestedString(b.Object, "spec", "reference", "export", "name")
	return path, name
}

// apply writes a binding.
func (s *Scheduler) apply(ctx context.Context, r dynamic.ResourceInterface, at binding,
	want *unstructured.Unstructured) error {
	if err := s.binder.writes.Wait(ctx); err != nil {
		return err
	}
	s.binder.due(at, s.Now())
	_, err := r.Apply(ctx, want.GetName(), want, metav1.ApplyOptions{FieldManager: api.ManagerController, Force: true})
	return err
}

// unbind deletes the binding to the APIExport of a cluster that was removed: its APIExport does not exist, and nothing
// in the workspace is scheduled to the cluster. A binding is kept if its APIExport is missing only in the state of the
// controller: without it, objects of the workspace would no longer reach the cluster.
func (s *Scheduler) unbind(ctx context.Context, r dynamic.ResourceInterface, at binding,
	o watch.Object) (again time.Duration, _ error) {
	if o.GetLabels()[api.LabelManagedBy] != api.ManagerController {
		return 0, nil
	}
	cluster := strings.TrimPrefix(at.export, api.ExportCluster(""))
	if !s.set.Complete() || !s.completeAt(o.Endpoint) || s.set.ClassesIn(at.workspace)[cluster] > 0 {
		return goneInterval, nil
	}
	if gone, err := s.exportGone(ctx, at.export); err != nil || !gone {
		return goneInterval, err
	}
	if err := s.binder.writes.Wait(ctx); err != nil {
		return 0, err
	}
	s.binder.settled(at)
	uid := o.GetUID()
	return 0, r.Delete(ctx, o.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
}

// exportGone reports whether kcp says that an APIExport does not exist.
func (s *Scheduler) exportGone(ctx context.Context, name string) (bool, error) {
	b := s.binder
	b.mu.Lock()
	gone := b.gone[name]
	b.mu.Unlock()
	if gone {
		return true, nil
	}
	exports, err := s.set.Resource(strings.TrimRight(s.KCP.Host, "/"), s.Workspace, kcpapi.APIExport.GVR())
	if err != nil {
		return false, err
	}
	_, err = exports.Get(ctx, name, metav1.GetOptions{})
	switch {
	case err == nil:
		return false, nil
	case !apierrors.IsNotFound(err):
		return false, fmt.Errorf("APIExport %s: %w", name, err)
	}
	b.mu.Lock()
	b.gone[name] = true // until there is one: see rebound
	b.mu.Unlock()
	return true, nil
}

// ask changes a binding whose claims kcp has not applied, so that kcp tries again: later and later. On a shard that has
// not served an API before, kcp does not find its informer at first, and waits longer and longer: several minutes have
// been seen (kcp: pkg/reconciler/apis/permissionclaimlabel). It returns when to look again, or zero.
func (s *Scheduler) ask(ctx context.Context, r dynamic.ResourceInterface, at binding,
	b *unstructured.Unstructured) (time.Duration, error) {
	if api.ClaimsApplied(b) {
		s.binder.settled(at)
		return 0, nil
	}
	now := s.Now()
	if wait := s.binder.due(at, now); wait > 0 {
		return wait, nil
	}
	if err := s.binder.writes.Wait(ctx); err != nil {
		return 0, err
	}
	annotations := map[string]any{annotationRetried: now.UTC().Format(time.RFC3339)}
	_, err := mergepatch.Send(ctx, r, api.ManagerController, b.GetName(), b.GetUID(),
		map[string]any{"metadata": map[string]any{"annotations": annotations}})
	return firstBind, err // the next look returns the time that is left
}

// bindingTo returns the binding to the APIExport of a cluster, which accepts its claims for the objects with the label
// of the cluster.
func bindingTo(workspace, export string, claims []any) *unstructured.Unstructured {
	var accepted []any
	for _, c := range claims {
		claim, _ := c.(map[string]any)
		next := maps.Clone(claim)
		next["selector"], next["state"] = claim["defaultSelector"], "Accepted"
		delete(next, "defaultSelector")
		accepted = append(accepted, next)
	}
	u := kcpapi.APIBinding.New(export)
	u.Object["spec"] = map[string]any{
		"reference":        map[string]any{"export": map[string]any{"path": workspace, "name": export}},
		"permissionClaims": accepted,
	}
	u.SetLabels(map[string]string{api.LabelManagedBy: api.ManagerController})
	return u
}

// claimsOf returns the claims of a binding as a text that can be compared.
func claimsOf(b *unstructured.Unstructured) string {
	list, _, _ := unstructured.NestedSlice(b.Object, "spec", "permissionClaims")
	var out []string
	for _, c := range list {
		m, _ := c.(map[string]any)
		identity, _ := m["identityHash"].(string)
		out = append(out, fmt.Sprint(m["group"], " ", m["resource"], " ", identity, " ", m["verbs"], " ", m["state"],
			" ", m["selector"]))
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}
