// Package roots schedules root objects: it makes their leaves, moves them when clusters come and go, and writes their
// status. It reads and writes through the virtual workspaces of the APIExport with the published APIs.
package roots

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
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
