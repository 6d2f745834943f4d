// Package roots schedules root objects: it makes their leaves, moves them when clusters come and go, and writes their status. It reads
// and writes through the virtual workspaces of the APIExport with the published APIs.
package roots

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/kcpctl/kcpctl/internal/workload/api"
	"github.com/kcpctl/kcpctl/internal/workload/schedule"
	"github.com/kcpctl/kcpctl/internal/workload/splitter"
	"github.com/kcpctl/kcpctl/internal/workload/watch"
)

const (
	// The delays before an object is tried again.
	firstRetry = 100 * time.Millisecond
	lastRetry  = 30 * time.Second
	// moveInterval is the time between two steps of a root whose replicas move, unless its leaves change.
	moveInterval = time.Minute
	workers      = 4
)

// separator is between the names of a root and its cluster in the name of a leaf (see api.LeafName).
const separator = "--"

// Options are what a Scheduler needs.
type Options struct {
	// KCP has the URL and the credentials of a front-proxy or a shard.
	KCP *rest.Config
	// Workspace is the path of the compute workspace.
	Workspace string
	Now       func() time.Time
}

// item is a root, or what was one.
type item struct {
	schema.GroupVersionResource
	watch.Key
}

// Scheduler schedules roots.
type Scheduler struct {
	Options
	set   *watch.Set
	queue workqueue.TypedRateLimitingInterface[item]

	mu        sync.Mutex
	clusters  []*api.Cluster
	endpoints []string
	resources []schema.GroupVersionResource
	// seen is what the last decisions depended on.
	seen []any
	// surges are the clusters whose leaves have replicas instead of those that another cluster still has.
	surges map[item]map[string]bool
}

// New returns a Scheduler, which Run starts.
func New(o Options) *Scheduler {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[item](firstRetry, lastRetry)
	return &Scheduler{Options: o, queue: workqueue.NewTypedRateLimitingQueue(limiter), surges: map[item]map[string]bool{}}
}

// Run schedules until the context ends.
func (s *Scheduler) Run(ctx context.Context) (err error) {
	set, err := watch.New(ctx, watch.Options{
		Config: s.KCP, Path: watch.AllClusters, Now: s.Now, Changed: s.changed,
		State: func(src watch.Source, err error) {
			if err != nil {
				klog.FromContext(ctx).Error(err, "Cannot watch, retrying", "resource", src.Resource.GroupResource(), "endpoint", src.Endpoint)
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
		return watch.Follow(ctx, watch.Options{Config: s.KCP, Now: s.Now}, url, api.ExportWorkloads, func(urls []string) {
			s.mu.Lock()
			s.endpoints = urls
			s.mu.Unlock()
			s.watch(ctx)
		})
	})
	g.Go(func() error { <-ctx.Done(); s.queue.ShutDown(); return context.Cause(ctx) })
	for range workers {
		g.Go(func() error { s.work(ctx); return nil })
	}
	s.watch(ctx)
	if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("schedule: %w", err)
	}
	return nil
}

// Update tells which clusters there are, and which APIs are published. Roots are scheduled again if that changes anything.
func (s *Scheduler) Update(ctx context.Context, clusters []*api.Cluster, resources []schema.GroupVersionResource) {
	s.mu.Lock()
	next := s.relevant(clusters)
	same := reflect.DeepEqual(s.seen, next)
	s.clusters, s.resources, s.seen = clusters, resources, next
	set := s.set
	s.mu.Unlock()
	s.watch(ctx)
	if same || set == nil {
		return
	}
	for _, r := range resources {
		for _, o := range set.List(r) {
			if splitter.IsRoot(o.Unstructured) {
				s.queue.Add(item{r, watch.KeyOf(o.Unstructured)})
			}
		}
	}
}

// relevant returns what decisions depend on.
func (s *Scheduler) relevant(clusters []*api.Cluster) []any {
	var out []any
	for _, c := range clusters {
		out = append(out, c.Name, c.Labels, c.Spec.Unschedulable, c.DeletionTimestamp != nil, c.Status.APIs, isReady(c), s.evicted(c))
	}
	return out
}

// watch starts and stops watches.
func (s *Scheduler) watch(ctx context.Context) {
	s.mu.Lock()
	set, endpoints, resources := s.set, s.endpoints, s.resources
	s.mu.Unlock()
	if set == nil || endpoints == nil || len(resources) == 0 {
		return
	}
	if err := set.Update(endpoints, resources); err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Cannot watch the objects of workspaces")
	}
}

// changed schedules the root that has changed, or that of a leaf.
func (s *Scheduler) changed(r schema.GroupVersionResource, k watch.Key) {
	s.mu.Lock()
	set := s.set
	s.mu.Unlock()
	if set == nil {
		return
	}
	if o, ok := set.Get(r, k); ok {
		if root := o.GetAnnotations()[api.AnnotationName]; !splitter.IsRoot(o.Unstructured) && root != "" {
			k.Name = root
		}
	} else if i := strings.LastIndex(k.Name, separator); i > 0 {
		k.Name = k.Name[:i] // a leaf that is gone
	}
	s.queue.Add(item{r, k})
}

func (s *Scheduler) work(ctx context.Context) {
	for {
		i, stop := s.queue.Get()
		if stop {
			return
		}
		again, err := s.schedule(ctx, i)
		switch {
		case err != nil && ctx.Err() == nil:
			klog.FromContext(ctx).Error(err, "Cannot schedule, retrying", "resource", i.GroupResource(), "object", i.Key)
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

// schedule makes the leaves and the status of a root what they should be. It returns when to look again, or zero.
func (s *Scheduler) schedule(ctx context.Context, i item) (again time.Duration, _ error) {
	root, ok := s.set.Get(i.GroupVersionResource, i.Key)
	if !ok || root.GetDeletionTimestamp() != nil || !splitter.IsRoot(root.Unstructured) {
		s.mu.Lock()
		delete(s.surges, i)
		s.mu.Unlock()
		return 0, nil // kcp deletes the leaves of a root with it
	}
	s.mu.Lock()
	clusters, surges := s.clusters, s.surges[i]
	s.mu.Unlock()
	leaves := s.leaves(i, root.Unstructured, clusters)
	previous := map[string]schedule.Share{}
	for name, leaf := range leaves {
		if splitter.IsLeafOf(leaf, root.Unstructured) && leaf.GetDeletionTimestamp() == nil {
			previous[name] = shareOf(leaf, surges[name])
		}
	}
	w, hintsErr := workloadOf(i, root.Unstructured)
	d := schedule.Assign(w, s.candidates(i.GroupResource(), clusters), previous, 0)
	if hintsErr != nil {
		// A mistake in an annotation must not move anything: what runs stays as it is.
		d.Next = previous
	}
	changes, err := changesOf(root.Unstructured, w, d, leaves)
	if err != nil {
		return 0, err
	}
	if err := s.write(ctx, i, root, changes); err != nil {
		return 0, err
	}
	s.mu.Lock()
	s.surges[i] = map[string]bool{}
	for name, share := range d.Next {
		s.surges[i][name] = share.Surge
	}
	s.mu.Unlock()
	if err := s.writeStatus(ctx, i, root, d, leaves, condition(d, changes, hintsErr, s.Now())); err != nil {
		return 0, err
	}
	if !d.Done(previous) {
		again = moveInterval
	}
	return again, nil
}

// leaves returns the objects with the names of leaves, by cluster: of the clusters that there are, and of those that had a leaf.
func (s *Scheduler) leaves(i item, root *unstructured.Unstructured, clusters []*api.Cluster) map[string]*unstructured.Unstructured {
	names := map[string]bool{}
	for _, c := range clusters {
		names[c.Name] = true
	}
	var placement api.Placement
	if json.Unmarshal([]byte(root.GetAnnotations()[api.AnnotationPlacement]), &placement) == nil {
		for name := range placement {
			names[name] = true
		}
	}
	out := map[string]*unstructured.Unstructured{}
	for name := range names {
		k := i.Key
		k.Name = api.LeafName(root.GetName(), name)
		if o, ok := s.set.Get(i.GroupVersionResource, k); ok {
			out[name] = o.Unstructured
		}
	}
	return out
}

// changesOf returns what has to be written to reach the next step.
func changesOf(root *unstructured.Unstructured, w schedule.Workload, d schedule.Decision, leaves map[string]*unstructured.Unstructured) (splitter.Changes, error) {
	_, divisible, _ := unstructured.NestedInt64(root.Object, "spec", "replicas")
	shares := map[string]splitter.Share{}
	for name, share := range d.Next {
		next := splitter.Share{}
		if w.Hints.Spread == schedule.Divide || divisible {
			next.Replicas = &share.Replicas
		}
		shares[name] = next
	}
	want, err := splitter.Leaves(root, shares)
	if err != nil {
		return splitter.Changes{}, err
	}
	return splitter.Compare(root, want, slices.Collect(maps.Values(leaves))), nil
}

// write applies and deletes leaves.
func (s *Scheduler) write(ctx context.Context, i item, root watch.Object, changes splitter.Changes) error {
	r, err := s.set.Resource(root.Endpoint, i.Cluster, i.GroupVersionResource)
	if err != nil {
		return err
	}
	client := r.Namespace(i.Namespace)
	for _, leaf := range changes.Apply {
		if _, err := client.Apply(ctx, leaf.GetName(), leaf, metav1.ApplyOptions{FieldManager: api.ManagerController, Force: true}); err != nil {
			return fmt.Errorf("apply %s %s of %s: %w", i.GroupResource(), leaf.GetName(), i.Key, err)
		}
	}
	for _, leaf := range changes.Delete {
		uid := leaf.GetUID()
		err := client.Delete(ctx, leaf.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete %s %s of %s: %w", i.GroupResource(), leaf.GetName(), i.Key, err)
		}
	}
	return nil
}

// writeStatus writes the status of a root, and the annotations with its placement and the reasons, if they change.
func (s *Scheduler) writeStatus(
	ctx context.Context, i item, root watch.Object, d schedule.Decision, leaves map[string]*unstructured.Unstructured, scheduled metav1.Condition,
) error {
	placed := map[string]*unstructured.Unstructured{}
	for name := range d.Next {
		placed[name] = leaves[name]
	}
	r, err := s.set.Resource(root.Endpoint, i.Cluster, i.GroupVersionResource)
	if err != nil {
		return err
	}
	annotations, err := annotationsOf(placed, d)
	if err != nil {
		return err
	}
	if !holds(root.GetAnnotations(), annotations) {
		if err := patch(ctx, r.Namespace(i.Namespace), i, map[string]any{"metadata": map[string]any{"annotations": annotations}}); err != nil {
			return err
		}
	}
	status := splitter.Aggregate(root.Unstructured, placed, keepTime(root.Unstructured, scheduled))
	current, _, _ := unstructured.NestedMap(root.Object, "status")
	if reflect.DeepEqual(current, status) {
		return nil
	}
	whole := map[string]any{"status": status}
	for field := range current {
		if _, ok := status[field]; !ok {
			status[field] = nil
		}
	}
	err = patch(ctx, r.Namespace(i.Namespace), i, whole, "status")
	if apierrors.IsNotFound(err) || apierrors.IsInvalid(err) {
		return nil // the API has no status, or one without conditions
	}
	return err
}

func annotationsOf(placed map[string]*unstructured.Unstructured, d schedule.Decision) (map[string]any, error) {
	placement, err := json.Marshal(splitter.PlacementOf(placed))
	if err != nil {
		return nil, err
	}
	explain, err := json.Marshal(d.Verdicts)
	if err != nil {
		return nil, err
	}
	return map[string]any{api.AnnotationPlacement: string(placement), api.AnnotationExplain: string(explain)}, nil
}

func holds(have map[string]string, want map[string]any) bool {
	for k, v := range want {
		if have[k] != v {
			return false
		}
	}
	return true
}
