// Package roots schedules root objects: it makes their leaves, moves them when clusters come and go, and writes their
// status. It reads and writes through the virtual workspaces of the APIExport with the published APIs.
package roots

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/kit/mergepatch"
	"github.com/kcpctl/kcpctl/internal/kit/poll"
	"github.com/kcpctl/kcpctl/internal/workload/placement/splitter"
	"github.com/kcpctl/kcpctl/internal/workload/sync/queue"
	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

const (
	// startInterval is the time until an object is tried again whose namespace is not known yet.
	startInterval = 200 * time.Millisecond
	// workers is how many roots are handled at a time: at most half of them are roots of one workspace.
	workers = 16
)

// separator is between the names of a root and its cluster in the name of a leaf (see api.LeafName).
const separator = "--"

// namespace returns the item of a namespace: the objects in it that are where workloads need them.
func namespace(k watch.Key) item {
	return item{Key: watch.Key{Cluster: k.Cluster, Namespace: k.Namespace}}
}

// Options are the settings of a Scheduler.
type Options struct {
	// KCP has the URL and the credentials of a front-proxy or a shard.
	KCP *rest.Config
	// Workspace is the path of the compute workspace.
	Workspace string
	// Setup identifies this installation in physical clusters.
	Setup string
	Now   func() time.Time
}

// item is a root, or what was one. One without a resource is a namespace, see namespace.
type item struct {
	schema.GroupVersionResource
	watch.Key
}

// Scheduler schedules roots.
type Scheduler struct {
	queue     workqueue.TypedRateLimitingInterface[item]
	view      *view
	decider   *decider
	writer    *writer
	followers *followers
	binder    *binder
}

// New returns a Scheduler, which Run starts.
func New(o Options) *Scheduler {
	fair := queue.New(workers, func(i item) string { return i.Cluster })
	v := &view{Options: o}
	s := &Scheduler{
		queue: fair, view: v, decider: newDecider(v), binder: newBinder(v),
		writer: &writer{view: v, dropped: splitter.NewDropped()},
	}
	s.followers = &followers{view: v, decisions: s.decider.decisions, writer: s.writer, again: fair.Add}
	return s
}

// Run schedules until the context ends.
func (s *Scheduler) Run(ctx context.Context) (err error) {
	v := s.view
	set, err := watch.New(ctx, watch.Options{
		Config: v.KCP, Path: watch.AllClusters, Now: v.Now, Changed: s.changed, Relisted: s.relisted,
		Class: v.classOf, State: watch.Logged(ctx),
	})
	if err != nil {
		return err
	}
	defer set.Stop()
	v.change(func(f *facts) { f.set = set })
	g, ctx := errgroup.WithContext(ctx)
	url := strings.TrimRight(v.KCP.Host, "/") + "/clusters/" + v.Workspace
	g.Go(func() error {
		return watch.Follow(ctx, watch.Options{Config: v.KCP, Now: v.Now}, url, api.ExportWorkloads,
			func(urls []string) {
				v.change(func(f *facts) { f.endpoints = urls })
				s.watch(ctx)
			})
	})
	log := klog.FromContext(ctx)
	queue.Run(ctx, g, workers, s.queue, s.handle,
		func(i item, err error, retries int) { failed(log, i, err, retries) })
	queue.Run(ctx, g, bindWorkers, s.binder.queue, s.binder.handle,
		func(b binding, err error, retries int) { failed(log, b.item(), err, retries) })
	s.watch(ctx)
	if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("schedule: %w", err)
	}
	return nil
}

// Update sets the state that decisions depend on. Roots that the difference affects are scheduled again.
func (s *Scheduler) Update(ctx context.Context, next State) {
	before, after := s.view.update(next)
	affected := s.decider.decisions.affected(after, s.view.Now())
	s.watch(ctx)
	if after.set == nil {
		return
	}
	if !reflect.DeepEqual(before.Exports, next.Exports) {
		s.binder.all()
	}
	scheduled := next.Published.scheduled()
	if slices.Equal(before.Published.scheduled(), scheduled) && before.Rebalance == next.Rebalance {
		for i := range affected {
			s.queue.Add(i)
		}
		return
	}
	for _, r := range scheduled {
		s.again(r, after.set.Keys(r, ""))
	}
}

func (s *Scheduler) again(r schema.GroupVersionResource, keys []watch.Key) {
	for _, k := range keys {
		s.queue.Add(item{r, k})
	}
}

func (s *Scheduler) watch(ctx context.Context) {
	f := s.view.facts()
	if f.set == nil || f.endpoints == nil || f.Published == nil || f.Published.nothing() {
		return
	}
	if err := f.set.Update(f.endpoints, f.watched()); err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Cannot watch the objects of workspaces")
	}
}

// changed schedules the root that has changed, or the root of a leaf.
func (s *Scheduler) changed(r schema.GroupVersionResource, k watch.Key) {
	switch r {
	case api.Namespaces(), kcpapi.LogicalCluster.GVR():
		s.queue.Add(item{r, k})
		return
	case kcpapi.APIBinding.GVR():
		s.binder.changed(k)
		return
	}
	set := s.view.set()
	on, exists := set.Class(r, k)
	if on != "" {
		s.binder.need(k.Cluster, on)
	}
	if splitter.CanFollow(r.GroupResource()) {
		s.queue.Add(namespace(k))
	}
	if !exists || on != "" {
		leaf := item{r, k}
		o, exists := set.Get(r, k)
		if !exists {
			s.writer.corrected.Delete(leaf)
		}
		k.Name = s.view.rootOf(leaf, o.Unstructured)
	}
	s.queue.Add(item{r, k})
}

// relisted schedules the roots of a resource that was listed again: a leaf can have come and gone unseen.
func (s *Scheduler) relisted(src watch.Source) {
	for _, k := range s.view.set().KeysAt(src, "") {
		s.changed(src.Resource, k)
	}
}

func failed(log klog.Logger, i item, err error, retries int) {
	if reported(i, err, retries) {
		log.Error(err, "Cannot schedule, retrying", "resource", i.GroupResource(), "object", i.Key)
	}
}

// reported reports whether an error is logged. kcp denies access to the content of a workspace until it is initialized
// (kcp: pkg/authorization/workspace_content_authorizer.go), but shows its bindings before. If that lasts, it is logged
// once.
func reported(i item, err error, retries int) bool {
	return i.GroupVersionResource != kcpapi.APIBinding.GVR() || !apierrors.IsForbidden(err) ||
		retries == queue.QuietRetries
}

func (s *Scheduler) rescheduleIn(cluster, namespace string) {
	f := s.view.facts()
	for _, r := range f.Published.scheduled() {
		s.again(r, f.set.KeysIn(r, cluster, namespace, ""))
	}
}

// handle handles an item. It returns when to look again, or zero.
func (s *Scheduler) handle(ctx context.Context, i item) (time.Duration, error) {
	f := s.view.facts()
	switch {
	case i.Resource == "":
		return s.followers.follow(ctx, i)
	case i.GroupVersionResource == api.Namespaces():
		s.rescheduleIn(i.Cluster, i.Name)     // its annotations are hints for all workloads in it
		s.followers.followSelected(i.Cluster) // its labels are selected
		return 0, nil
	case i.GroupVersionResource == kcpapi.LogicalCluster.GVR():
		for _, ns := range f.set.In(api.Namespaces(), i.Cluster, "") {
			s.rescheduleIn(i.Cluster, ns.GetName()) // its path says which clusters the workspace may use
		}
		s.binder.queue.Add(binding{workspace: i.Cluster})
		return 0, nil
	case f.Published.removed(i.GroupVersionResource):
		return 0, nil // what was decided stays: what it needs stays with it
	}
	return s.schedule(ctx, i)
}

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
	in, err := set.Resource(o.Endpoint, watch.KeyOf(o.Unstructured).Cluster, o.GetNamespace(), r)
	if err != nil {
		return err
	}
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

const previewInterval = 20 * time.Millisecond

// Move is the change that a request to rebalance would make to a root.
type Move struct {
	schema.GroupVersionResource
	// Cluster is the logical cluster of its workspace.
	Cluster, Namespace, Name string
	// From has its replicas by cluster, and To its replicas in the end.
	From, To map[string]int64
}

// Preview returns the roots that a request to rebalance would move, in the order of their APIs and names. It decides as
// a Scheduler does, from the objects at the endpoints of the published APIs, and writes nothing. It fails if not all
// objects could be read within the timeout; zero means no limit.
func Preview(ctx context.Context, o Options, state State, endpoints []string, timeout time.Duration) ([]Move, error) {
	if state.Published == nil || state.Published.nothing() {
		return nil, nil
	}
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	set, err := watch.New(ctx, watch.Options{Config: o.KCP, Path: watch.AllClusters, Now: o.Now})
	if err != nil {
		return nil, err
	}
	defer set.Stop()
	d := newDecider(&view{Options: o, last: facts{set: set}})
	_, f := d.update(state)
	if err := set.Update(endpoints, f.watched()); err != nil {
		return nil, err
	}
	if err := complete(ctx, set); err != nil {
		return nil, err
	}
	var out []Move
	for _, r := range state.Published.Scheduled {
		for _, root := range set.List(r) {
			if m := d.moveOf(item{r, watch.KeyOf(root.Unstructured)}, root); m != nil {
				out = append(out, *m)
			}
		}
	}
	return out, nil
}

func complete(ctx context.Context, set *watch.Set) error {
	for !set.Complete() {
		if err := poll.Pause(ctx, previewInterval); err != nil {
			if failures := set.Failures(); len(failures) > 0 {
				err = failures[0]
			}
			return fmt.Errorf("not all objects of the workspaces could be read in time: %w", err)
		}
	}
	return nil
}

// moveOf returns what a request to rebalance would change of a root, or nil if that is nothing.
func (d *decider) moveOf(i item, root watch.Object) *Move {
	if root.GetDeletionTimestamp() != nil || !splitter.IsRoot(root.Unstructured) ||
		splitter.Follows(i.GroupResource(), root.Unstructured) {
		return nil
	}
	sub := d.subject(i, root)
	if sub.mistakes != nil {
		return nil
	}
	sub.workload.Rebalance = true
	from := map[string]int64{}
	for name, share := range sub.staying() {
		add(from, name, share.Replicas)
	}
	decision, _ := d.decide(sub)
	to := map[string]int64{}
	for name, n := range decision.Goal {
		add(to, name, n)
	}
	for name, share := range decision.Next {
		if share.Lost {
			add(to, name, share.Replicas) // it stays as it is
		}
	}
	if maps.Equal(from, to) {
		return nil
	}
	return &Move{
		GroupVersionResource: i.GroupVersionResource, Cluster: i.Cluster, Namespace: i.Namespace, Name: i.Name,
		From: from, To: to,
	}
}

func add(to map[string]int64, cluster string, n int64) {
	if n > 0 {
		to[cluster] = n
	}
}
