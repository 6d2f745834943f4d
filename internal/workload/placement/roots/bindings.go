package roots

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"

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

// binding is the binding to an APIExport in a logical cluster. Without an APIExport, it stands for all of them.
type binding struct{ workspace, export string }

func (b binding) item() item {
	return item{kcpapi.APIBinding.GVR(), watch.Key{Cluster: b.workspace, Name: b.export}}
}

// binder binds the APIExports of clusters in workspaces that use the published APIs: through a binding, the syncer of
// the cluster sees the objects with its label, and no others. It has its own queue, so that workloads do not wait for
// bindings.
type binder struct {
	*view
	queue  workqueue.TypedRateLimitingInterface[binding]
	writes flowcontrol.RateLimiter
}

func newBinder(v *view) *binder {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[binding](firstBind, lastBind)
	return &binder{view: v, queue: workqueue.NewTypedRateLimitingQueue(limiter),
		writes: flowcontrol.NewTokenBucketRateLimiter(bindsPerSecond, bindBurst)}
}

// need makes sure that a workspace has a binding for a cluster to which one of its objects is scheduled.
func (b *binder) need(workspace, cluster string) {
	at := binding{workspace, api.ExportCluster(cluster)}
	if !b.set().Has(kcpapi.APIBinding.GVR(), watch.Key{Cluster: workspace, Name: at.export}) {
		b.queue.Add(at)
	}
}

// changed looks at a binding that has changed. Of one that is gone, only the workspace is known.
func (b *binder) changed(k watch.Key) {
	class, exists := b.set().Class(kcpapi.APIBinding.GVR(), k)
	export := strings.TrimPrefix(class, bindingClass)
	if !exists || export == api.ExportWorkloads {
		b.queue.Add(binding{workspace: k.Cluster})
	} else if export != "" {
		b.queue.Add(binding{k.Cluster, export})
	}
}

func (b *binder) all() {
	for _, k := range b.set().Keys(kcpapi.APIBinding.GVR(), bindingClass+api.ExportWorkloads) {
		b.queue.Add(binding{workspace: k.Cluster})
	}
}

func (b *binder) find(at binding) (watch.Object, bool) {
	set, r := b.set(), kcpapi.APIBinding.GVR()
	for _, k := range set.KeysIn(r, at.workspace, "", bindingClass+at.export) {
		if o, ok := set.Get(r, k); ok {
			return o, true
		}
	}
	return watch.Object{}, false
}

// handle makes a binding what it should be. It returns when to look again, or zero.
func (b *binder) handle(ctx context.Context, at binding) (again time.Duration, _ error) {
	exports := b.facts().Exports
	if exports == nil {
		return 0, nil
	}
	if at.export == "" {
		for name := range b.set().ClassesIn(at.workspace) {
			if export, ok := strings.CutPrefix(name, bindingClass); ok && export != "" {
				b.queue.Add(binding{at.workspace, export})
			}
		}
		for _, export := range b.wanted(at.workspace, exports) {
			b.queue.Add(binding{at.workspace, export})
		}
		return 0, nil
	}
	o, exists := b.find(at)
	if !exists {
		return b.bind(ctx, at, exports)
	}
	r, err := b.set().Resource(o.Endpoint, at.workspace, "", kcpapi.APIBinding.GVR())
	if err != nil {
		return 0, err
	}
	if again, err = b.check(ctx, r, at, o, exports); err != nil && !apierrors.IsNotFound(err) {
		return 0, fmt.Errorf("APIBinding %s of workspace %s: %w", o.GetName(), at.workspace, err)
	}
	return again, nil
}

// bind writes a binding that is missing, if the workspace uses the published APIs and needs it.
func (b *binder) bind(ctx context.Context, at binding, exports map[string][]any) (time.Duration, error) {
	uses, ok := b.find(binding{at.workspace, api.ExportWorkloads})
	if !ok || !slices.Contains(b.wanted(at.workspace, exports), at.export) {
		return 0, nil
	}
	r, err := b.set().Resource(uses.Endpoint, at.workspace, "", kcpapi.APIBinding.GVR())
	if err != nil {
		return 0, err
	}
	if err := b.apply(ctx, r, b.to(at.export, exports[at.export])); err != nil {
		return 0, fmt.Errorf("bind APIExport %s in workspace %s: %w", at.export, at.workspace, err)
	}
	return firstBind, nil
}

// check corrects a binding, unbinds it, or requests from kcp to apply its claims.
func (b *binder) check(ctx context.Context, r dynamic.ResourceInterface, at binding, o watch.Object,
	exports map[string][]any) (time.Duration, error) {
	claims, exists := exports[at.export]
	switch {
	case at.export == api.ExportWorkloads:
		return b.retry(ctx, r, o.Unstructured)
	case !strings.HasPrefix(at.export, api.ExportCluster("")):
		return 0, nil
	case !exists:
		return b.unbind(ctx, r, at, o)
	}
	want := b.to(at.export, claims)
	want.SetName(o.GetName())
	if claimsOf(o.Unstructured) != claimsOf(want) {
		return firstBind, b.apply(ctx, r, want)
	}
	return b.retry(ctx, r, o.Unstructured)
}

// wanted returns the APIExports that a workspace needs: of the clusters of its leaves, and of the clusters that it
// prefers, so that its first workload there does not wait until kcp has applied the claims, which takes seconds.
// Bindings of all clusters in all workspaces would be too many.
func (b *binder) wanted(workspace string, exports map[string][]any) []string {
	leaves := b.set().ClassesIn(workspace)
	refusing := b.refusing(workspace) // not even for an object to which a user has given its label
	var usable []string
	wanted := map[string]bool{}
	for name := range exports {
		cluster := strings.TrimPrefix(name, api.ExportCluster(""))
		if refusing[cluster] {
			continue
		}
		usable = append(usable, cluster)
		if leaves[cluster] > 0 {
			wanted[name] = true
		}
	}
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

func exportOf(b *unstructured.Unstructured) (path, name string) {
	path, _, _ = unstructured.NestedString(b.Object, "spec", "reference", "export", "path")
	name, _, _ = unstructured.NestedString(b.Object, "spec", "reference", "export", "name")
	return path, name
}

func (b *binder) apply(ctx context.Context, r dynamic.ResourceInterface, want *unstructured.Unstructured) error {
	if err := b.writes.Wait(ctx); err != nil {
		return err
	}
	_, err := r.Apply(ctx, want.GetName(), want, metav1.ApplyOptions{FieldManager: api.ManagerController, Force: true})
	return err
}

// unbind deletes the binding to the APIExport of a cluster that was removed: its APIExport does not exist, and nothing
// in the workspace is scheduled to the cluster. A binding is kept if its APIExport is missing only in the state of the
// controller: without it, objects of the workspace would no longer reach the cluster.
func (b *binder) unbind(ctx context.Context, r dynamic.ResourceInterface, at binding,
	o watch.Object) (again time.Duration, _ error) {
	if o.GetLabels()[api.LabelManagedBy] != api.ManagerController {
		return 0, nil
	}
	cluster := strings.TrimPrefix(at.export, api.ExportCluster(""))
	if f := b.facts(); !f.set.Complete() || f.set.ClassesIn(at.workspace)[cluster] > 0 ||
		!f.set.CompleteFor([]string{o.Endpoint}, f.Published.watched()) {
		return goneInterval, nil
	}
	exports, err := b.set().Resource(strings.TrimRight(b.KCP.Host, "/"), b.Workspace, "", kcpapi.APIExport.GVR())
	if err != nil {
		return 0, err
	}
	switch _, err := exports.Get(ctx, at.export, metav1.GetOptions{}); {
	case err == nil:
		return goneInterval, nil
	case !apierrors.IsNotFound(err):
		return 0, fmt.Errorf("APIExport %s: %w", at.export, err)
	}
	if err := b.writes.Wait(ctx); err != nil {
		return 0, err
	}
	uid := o.GetUID()
	return 0, r.Delete(ctx, o.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
}

// annotationRetried is the time when a binding was last written so that kcp applies its claims, and how often that was,
// such as 2026-11-20T12:00:00.5Z=3.
const annotationRetried = api.Group + "/retried"

// due returns the time until the next request to kcp to apply the claims of a binding, and the number of requests.
func due(o *unstructured.Unstructured, now time.Time) (wait time.Duration, n int) {
	at, times, _ := strings.Cut(o.GetAnnotations()[annotationRetried], "=")
	last, err := time.Parse(time.RFC3339, at)
	if n, _ = strconv.Atoi(times); err != nil || n < 0 || now.Sub(last) > 2*lastBind {
		n, last = 0, o.GetCreationTimestamp().Time // a user has made it, or the last request was long ago
	}
	delay := min(lastBind, firstBind<<min(n, 6))
	return min(delay, last.Add(delay).Sub(now)), n
}

// retry changes a binding whose claims kcp has not applied, so that kcp tries again: later and later. On a shard that
// has not served an API before, kcp does not find its informer at first, and waits longer and longer: several minutes
// have been seen (kcp: pkg/reconciler/apis/permissionclaimlabel). It returns when to look again, or zero.
func (b *binder) retry(ctx context.Context, r dynamic.ResourceInterface,
	o *unstructured.Unstructured) (time.Duration, error) {
	if api.ClaimsApplied(o) {
		return 0, nil
	}
	now := b.Now()
	wait, n := due(o, now)
	if wait > 0 {
		return wait, nil
	}
	if err := b.writes.Wait(ctx); err != nil {
		return 0, err
	}
	annotations := map[string]any{annotationRetried: retried(now, n+1)}
	_, err := mergepatch.Send(ctx, r, api.ManagerController, o.GetName(), o.GetUID(),
		map[string]any{"metadata": map[string]any{"annotations": annotations}})
	return firstBind, err // the next look returns the time that is left
}

func retried(now time.Time, n int) string {
	return now.UTC().Format(time.RFC3339Nano) + "=" + strconv.Itoa(n)
}

// to returns the binding to the APIExport of a cluster, which accepts its claims for the objects with the label of the
// cluster.
func (b *binder) to(export string, claims []any) *unstructured.Unstructured {
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
		"reference":        map[string]any{"export": map[string]any{"path": b.Workspace, "name": export}},
		"permissionClaims": accepted,
	}
	u.SetLabels(map[string]string{api.LabelManagedBy: api.ManagerController})
	u.SetAnnotations(map[string]string{annotationRetried: retried(b.Now(), 0)})
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
