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
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
	// The delays before an object is tried again.
	firstRetry = 100 * time.Millisecond
	lastRetry  = 30 * time.Second
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
	// Limits are what one workspace may have.
	Limits Limits
}

// item is a root, or what was one. One without a resource is a namespace, see namespace.
type item struct {
	schema.GroupVersionResource
	watch.Key
}

// Scheduler schedules roots.
type Scheduler struct {
	Options
	set *watch.Set
	// dropped are the fields of the status of roots that kcp drops.
	dropped splitter.Dropped
	queue   workqueue.TypedRateLimitingInterface[item]
	binder  *binder

	mu       sync.Mutex
	clusters []*api.Cluster
	// givenUp are the names of the other ones, see usedOf.
	givenUp   map[string]bool
	endpoints []string
	// published are the published APIs. Nil: they are not known.
	published *Published
	// exports have the claims of the APIExports of the clusters, by name. Nil: they are not known.
	exports map[string][]any
	// rebalance is the last request to rebalance all roots.
	rebalance string
	// fingerprints are the states that the last decisions depended on, by cluster, and scheduled the APIs.
	fingerprints map[string]fingerprint
	// serving is the time at which the clusters began to serve APIs.
	serving   serving
	scheduled []schema.GroupVersionResource
	// decided are the clusters of the last decision about each workload. on has the workloads by cluster, waiting those
	// that another cluster or more room can change, and everywhere those that go to each cluster.
	decided             map[item]decided
	on                  map[string]map[item]bool
	waiting, everywhere map[item]bool
	// refusedIn has the roots of workspaces that may not have leaves, see Limits.
	refusedIn map[string]map[item]bool
	// selecting has the namespaces of workspaces in which something selects namespaces.
	selecting map[string]map[string]bool
	// longNames has the root's name of leaves whose names do not contain it.
	longNames map[item]string
	// corrected has leaves that another client had changed, as they were after their correction.
	corrected map[item]watch.Version

	// deciding is held for a decision, so that each one knows what others take.
	deciding sync.Mutex
	reserved reservations
}

// New returns a Scheduler, which Run starts.
func New(o Options) *Scheduler {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[item](firstRetry, lastRetry)
	fair := queue.New(workers, func(i item) string { return i.Cluster }, limiter)
	s := &Scheduler{
		Options: o, binder: newBinder(), queue: fair, reserved: reservations{}, decided: map[item]decided{},
		on: map[string]map[item]bool{}, waiting: map[item]bool{}, everywhere: map[item]bool{},
		longNames: map[item]string{}, corrected: map[item]watch.Version{},
		refusedIn: map[string]map[item]bool{}, selecting: map[string]map[string]bool{},
	}
	s.binder.usable = s.usable
	return s
}

// Run schedules until the context ends.
func (s *Scheduler) Run(ctx context.Context) (err error) {
	set, err := watch.New(ctx, watch.Options{
		Config: s.KCP, Path: watch.AllClusters, Now: s.Now, Changed: s.changed, Relisted: s.relisted,
		Packed: true, Class: s.classOf,
		State: func(src watch.Source, err error) {
			if err != nil {
				klog.FromContext(ctx).Error(err, "Cannot watch, retrying", "resource", src.Resource.GroupResource(),
					"endpoint", src.Endpoint)
			}
		},
	})
	if err != nil {
		return err
	}
	defer set.Stop()
	s.mu.Lock()
	s.set = set
	s.mu.Unlock()
	g, ctx := errgroup.WithContext(ctx)
	url := strings.TrimRight(s.KCP.Host, "/") + "/clusters/" + s.Workspace
	g.Go(func() error {
		return watch.Follow(ctx, watch.Options{Config: s.KCP, Now: s.Now}, url, api.ExportWorkloads,
			func(urls []string) {
				s.mu.Lock()
				s.endpoints = urls
				s.mu.Unlock()
				s.watch(ctx)
			})
	})
	g.Go(func() error { <-ctx.Done(); s.queue.ShutDown(); s.binder.queue.ShutDown(); return context.Cause(ctx) })
	for range workers {
		g.Go(func() error { s.work(ctx); return nil })
	}
	for range bindWorkers {
		g.Go(func() error { s.bindWork(ctx); return nil })
	}
	s.watch(ctx)
	if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("schedule: %w", err)
	}
	return nil
}

// Update sets the state that decisions depend on. Roots that the difference affects are scheduled again.
func (s *Scheduler) Update(ctx context.Context, next State) {
	now := s.Now()
	clusters, givenUp := usedOf(next.Clusters)
	fingerprints := map[string]fingerprint{}
	scheduled := next.Published.scheduled()
	s.mu.Lock()
	s.serving = s.serving.next(clusters, now)
	for _, c := range clusters {
		fingerprints[c.Name] = fingerprintOf(c, s.serving, now)
	}
	set, rebind := s.set, !reflect.DeepEqual(s.exports, next.Exports)
	all := !slices.Equal(s.scheduled, scheduled) || s.rebalance != next.Rebalance
	affected := s.affected(fingerprints)
	s.clusters = clusters
	s.givenUp = givenUp
	s.published = next.Published
	s.exports = next.Exports
	s.rebalance = next.Rebalance
	s.fingerprints = fingerprints
	s.scheduled = scheduled
	s.mu.Unlock()
	s.binder.rebound(next.Exports)
	s.watch(ctx)
	if set == nil {
		return
	}
	s.readmit(set)
	if rebind {
		s.bindAll()
	}
	if all {
		for _, r := range scheduled {
			s.again(r, set.Keys(r, ""))
		}
		return
	}
	for i := range affected {
		s.queue.Add(i)
	}
}

// again schedules roots.
func (s *Scheduler) again(r schema.GroupVersionResource, keys []watch.Key) {
	for _, k := range keys {
		s.queue.Add(item{r, k})
	}
}

// watch starts and stops watches.
func (s *Scheduler) watch(ctx context.Context) {
	s.mu.Lock()
	set := s.set
	endpoints := s.endpoints
	published := s.published
	resources := published.watched()
	if selective(s.clusters) {
		resources = append(resources, kcpapi.LogicalCluster.GVR())
	}
	s.mu.Unlock()
	if set == nil || endpoints == nil || published == nil || published.nothing() {
		return
	}
	if err := set.Update(endpoints, resources); err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Cannot watch the objects of workspaces")
	}
}

// changed schedules the root that has changed, or the root of a leaf.
func (s *Scheduler) changed(r schema.GroupVersionResource, k watch.Key) {
	s.mu.Lock()
	set := s.set
	s.mu.Unlock()
	if set == nil {
		return
	}
	switch r {
	case api.Namespaces(), kcpapi.LogicalCluster.GVR():
		s.queue.Add(item{r, k})
		return
	case kcpapi.APIBinding.GVR():
		s.binder.queue.Add(k.Cluster)
		return
	}
	on, exists := set.Class(r, k)
	if on != "" {
		s.needBinding(k.Cluster, []string{on})
	}
	if splitter.CanFollow(r.GroupResource()) {
		s.queue.Add(namespace(k))
	}
	if !exists || on != "" {
		k.Name = s.leafChanged(item{r, k})
	}
	s.queue.Add(item{r, k})
}

// relisted schedules the roots of a resource that was listed again: a leaf can have come and gone unseen.
func (s *Scheduler) relisted(src watch.Source) {
	for _, k := range s.set.KeysAt(src, "") {
		s.changed(src.Resource, k)
	}
}

// leafChanged returns the name of the root of a leaf, or of what was one.
func (s *Scheduler) leafChanged(leaf item) string {
	o, exists := s.set.Get(leaf.GroupVersionResource, leaf.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if exists {
		// Names of leaves that were too long do not contain the name of the root.
		root := rootName(o.Unstructured)
		if root+separator+o.GetLabels()[api.LabelCluster] != leaf.Name {
			s.longNames[leaf] = root
		}
		return root
	}
	delete(s.corrected, leaf)
	if root, ok := s.longNames[leaf]; ok {
		delete(s.longNames, leaf)
		return root
	}
	if i := strings.LastIndex(leaf.Name, separator); i > 0 {
		return leaf.Name[:i]
	}
	return leaf.Name
}

// rootName returns the name of the root of an object: its own, unless it is a leaf.
func rootName(o *unstructured.Unstructured) string {
	if name := o.GetAnnotations()[api.AnnotationName]; name != "" && !splitter.IsRoot(o) {
		return name
	}
	return o.GetName()
}

func (s *Scheduler) work(ctx context.Context) {
	for {
		i, stop := s.queue.Get()
		if stop {
			return
		}
		limited, cancel := context.WithTimeout(ctx, watch.RequestTimeout)
		again, err := s.handle(limited, i)
		cancel()
		switch {
		case err != nil && ctx.Err() == nil:
			if !expected(i, err, s.queue.NumRequeues(i)) {
				klog.FromContext(ctx).Error(err, "Cannot schedule, retrying", "resource",
					i.GroupResource(), "object", i.Key)
			}
			s.queue.AddRateLimited(i)
		default:
			s.queue.Forget(i)
			if again > 0 {
				s.queue.AddAfter(i, again)
			}
		}
		s.queue.Done(i)
	}
}

// quietRetries is how many retries are not logged after an error that is expected: of a binding, these are the retries
// of the first 15 seconds (see firstBind).
const quietRetries = 4

// expected reports whether an error needs no line in the log. After a conflict, the watch brings what another client
// has written. kcp denies access to the content of a workspace until it is initialized (kcp:
// pkg/authorization/workspace_content_authorizer.go), but shows its bindings before. If that lasts, it is logged once.
func expected(i item, err error, retries int) bool {
	if apierrors.IsConflict(err) {
		return retries < quietRetries
	}
	return i.GroupVersionResource == kcpapi.APIBinding.GVR() && apierrors.IsForbidden(err) && retries != quietRetries
}

// rescheduleIn schedules the roots in a namespace.
func (s *Scheduler) rescheduleIn(cluster, namespace string) {
	s.mu.Lock()
	scheduled := s.published.scheduled()
	s.mu.Unlock()
	for _, r := range scheduled {
		s.again(r, s.set.KeysIn(r, cluster, namespace, ""))
	}
}

// handle handles an item. It returns when to look again, or zero.
func (s *Scheduler) handle(ctx context.Context, i item) (time.Duration, error) {
	switch {
	case i.Resource == "":
		return s.follow(ctx, i)
	case i.GroupVersionResource == api.Namespaces():
		s.rescheduleIn(i.Cluster, i.Name) // its annotations are hints for all workloads in it
		s.followSelected(i.Cluster)       // its labels are selected
		return 0, nil
	case i.GroupVersionResource == kcpapi.LogicalCluster.GVR():
		for _, ns := range s.set.In(api.Namespaces(), i.Cluster, "") {
			s.rescheduleIn(i.Cluster, ns.GetName()) // its path says which clusters the workspace may use
		}
		s.binder.queue.Add(i.Cluster)
		return 0, nil
	}
	s.mu.Lock()
	removed := s.published.removed(i.GroupVersionResource)
	s.mu.Unlock()
	if removed {
		return 0, nil // what was decided stays: what it needs stays with it
	}
	return s.schedule(ctx, i)
}
