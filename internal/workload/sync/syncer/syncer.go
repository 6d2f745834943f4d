// Package syncer copies the objects that are scheduled to a physical cluster there, and their status back to kcp. It is
// the same code in the controller, in a Deployment of the cluster, and in a process that a user starts.
package syncer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/kit/poll"
	"github.com/kcpctl/kcpctl/internal/workload/placement/splitter"
	"github.com/kcpctl/kcpctl/internal/workload/sync/queue"
	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

// sweepInterval is the time between two looks for orphans, and at the labels and the objects of namespaces. It needs no
// request if there is nothing to do.
const sweepInterval = 15 * time.Second

// workers is the number of objects that are synced at the same time.
const workers = 8

// Options are the two sides of a syncer.
type Options struct {
	// KCP has the URL and the credentials of a front-proxy or a shard. The credentials are also used for virtual
	// workspaces.
	KCP *rest.Config
	// Workspace is the path of the compute workspace, such as root:compute.
	Workspace string
	// Physical has the URL and the credentials of the API server of the physical cluster.
	Physical *rest.Config
	// Identity is the identity of the physical cluster. Nil: only the syncer needs it.
	Identity *Identity
	// Cluster is the name of the physical cluster.
	Cluster string
	// Setup is the ID of the installation. It distinguishes the objects of several installations in a cluster.
	Setup string
	Now   func() time.Time
	// Report is called when the state of the syncer may have changed. It must not block. Nil ignores it.
	Report func(State)
	// Observe is called with the time from when a watch shows a change until it is written to the other side. It must
	// not block. Nil ignores it.
	Observe func(Direction, time.Duration)
	// See is called with the Cluster now and whenever it changes. It must not block. Nil ignores it.
	See func(*api.Cluster)
}

var namespaces = api.Namespaces()

// item is an object to sync: the leaf with a key.
type item struct {
	schema.GroupVersionResource
	watch.Key
}

type syncer struct {
	*view
	queue   workqueue.TypedRateLimitingInterface[item]
	latency *latency

	member     *member
	spaces     *spaceIndex
	namespacer *namespacer
	tenancy    *tenancy
	orphans    *orphans
	// dropped are the fields of the status of leaves that kcp drops.
	dropped splitter.Dropped
	// applied has what was last applied, by item.
	applied sync.Map
}

func (s *syncer) last(i item) applied {
	last, _ := s.applied.Load(i)
	a, _ := last.(applied)
	return a
}

// newSyncer returns a syncer that is not connected.
func newSyncer(o Options) *syncer {
	if o.Identity == nil {
		o.Identity = &Identity{Physical: o.Physical}
	}
	v := &view{Options: o}
	sp := &spaceIndex{view: v, known: map[string]space{}}
	m := &member{view: v, spaces: sp}
	t := &tenancy{view: v, member: m, changed: poll.NewSignal()}
	return &syncer{
		// A workspace with many objects, or with objects that a webhook delays, has half of the workers at most.
		view: v, queue: queue.New(workers, func(i item) string { return i.Cluster }),
		latency: newLatency(), member: m, spaces: sp, tenancy: t,
		namespacer: &namespacer{view: v, member: m, tenancy: t}, orphans: &orphans{view: v, member: m},
		dropped: splitter.NewDropped(),
	}
}

// Run syncs until the context ends.
func Run(ctx context.Context, o Options) error {
	s := newSyncer(o)
	g, ctx := errgroup.WithContext(ctx)
	if err := s.connect(ctx); err != nil {
		return err
	}
	defer s.up.Stop()
	defer s.bound.Stop()
	defer s.down.Stop()
	defer s.tenancy.live.Stop()
	follow := watch.Options{Config: o.KCP, Now: o.Now}
	workspace := strings.TrimRight(o.KCP.Host, "/") + "/clusters/" + o.Workspace
	g.Go(func() error {
		return watch.Follow(ctx, follow, workspace, api.ExportCluster(o.Cluster),
			func(urls []string) { s.update(ctx, urls, nil, nil) })
	})
	g.Go(func() error { return s.followAPIs(ctx, follow, workspace) })
	g.Go(func() error { s.keep(ctx); return context.Cause(ctx) })
	queue.Run(ctx, g, workers, s.queue, s.handle, func(i item, err error, retries int) {
		klog.FromContext(ctx).Error(err, "Cannot sync, retrying", "resource", i.GroupResource(), "leaf", i.Key,
			"retries", retries)
	})
	if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("syncer of cluster %s: %w", o.Cluster, err)
	}
	return nil
}

func (s *syncer) connect(ctx context.Context) (err error) {
	state := watch.Logged(ctx, s.report)
	s.up, err = watch.New(ctx, watch.Options{
		Config: s.KCP, Path: watch.AllClusters, LabelSelector: api.LabelCluster + "=" + s.Cluster,
		Now: s.Now, State: state,
		Changed: func(r schema.GroupVersionResource, k watch.Key) {
			s.latency.saw(Down, item{r, k}, s.Now())
			s.spaces.learn(k)
			s.queue.Add(item{r, k})
			s.addPods(r, k.Cluster, k.Namespace)
		},
	})
	if err != nil {
		return err
	}
	s.bound, err = watch.New(ctx, watch.Options{
		Config: s.KCP, Path: watch.AllClusters, Now: s.Now, State: state,
		Keep: append(identity(), []string{"status", "conditions"}, []string{"status", "appliedPermissionClaims"}),
	})
	if err != nil {
		return err
	}
	s.down, err = watch.New(ctx, watch.Options{
		Config: s.Physical, LabelSelector: api.LabelSetup + "=" + s.Setup, Now: s.Now, // whatever name the cluster had
		// The generation shows whether the rest is what was sent. An autoscaler sets the replicas.
		Keep: append(identity(), []string{"status"}, []string{"spec", "replicas"}),
		State: func(src watch.Source, err error) {
			state(src, err)
			if err == nil {
				s.again(src.Resource)
			}
		},
		Relisted: func(src watch.Source) { s.again(src.Resource) },
		Changed:  s.changedBelow,
	})
	if err != nil {
		return err
	}
	return s.tenancy.watch(ctx)
}

// identity are the fields that identify an object.
func identity() [][]string { return [][]string{{"apiVersion"}, {"kind"}, {"metadata"}} }

// followAPIs follows the APIs that are published and that the cluster can serve, from the status of its Cluster.
func (s *syncer) followAPIs(ctx context.Context, o watch.Options, workspace string) error {
	return watch.FollowObject(ctx, o, workspace, api.ClusterGVR(), s.Cluster, func(found watch.Object) {
		c, err := api.ClusterOf(found.Unstructured)
		if err != nil {
			klog.FromContext(ctx).Error(err, "Cannot read the Cluster")
			return
		}
		if s.tenancy.see(c) {
			s.again(namespaces)
		}
		s.resume()
		if s.See != nil {
			s.See(c)
		}
		synced, unsynced := published(c)
		s.update(ctx, nil, synced, unsynced)
	})
}

// published returns the published APIs. An API is not synced if the cluster does not serve it as it is published, or if
// its schema there cannot be read at the moment.
func published(c *api.Cluster) (synced, unsynced []schema.GroupVersionResource) {
	synced = api.Dependencies()
	for _, a := range c.Status.APIs {
		r := schema.GroupVersionResource{Group: a.Group, Version: a.Version, Resource: a.Resource}
		switch {
		case a.State.Serves():
			synced = append(synced, r)
		case a.Version != "":
			unsynced = append(unsynced, r)
		}
	}
	return synced, unsynced
}

// update starts and stops watches if the endpoints or the resources have changed. Endpoints or resources that are nil
// are unchanged.
func (s *syncer) update(ctx context.Context, endpoints []string, resources, unsynced []schema.GroupVersionResource) {
	changed := s.scope.set(endpoints, resources, unsynced)
	endpoints, resources = s.known()
	if resources == nil {
		return
	}
	log := klog.FromContext(ctx)
	below := append([]schema.GroupVersionResource{namespaces}, resources...)
	if err := s.down.Update([]string{s.physicalURL()}, below); err != nil {
		log.Error(err, "Cannot watch the physical cluster")
	}
	if endpoints == nil {
		return
	}
	if changed {
		log.Info("Watching", "endpoints", len(endpoints), "resources", len(resources))
	}
	if err := s.up.Update(endpoints, s.apis()); err != nil {
		log.Error(err, "Cannot watch kcp")
	}
	if err := s.bound.Update(endpoints, []schema.GroupVersionResource{kcpapi.APIBinding.GVR()}); err != nil {
		log.Error(err, "Cannot watch the bindings of the cluster's APIExport")
	}
}

// changedBelow syncs the leaves of an object of the physical cluster that has changed or is gone.
func (s *syncer) changedBelow(r schema.GroupVersionResource, k watch.Key) {
	if r == namespaces {
		s.changedNamespace(k)
		return
	}
	for _, leaf := range s.spaces.leavesOf(r, k) {
		s.latency.saw(Up, item{r, leaf}, s.Now())
		s.queue.Add(item{r, leaf})
		s.addPods(r, leaf.Cluster, leaf.Namespace)
	}
}

// changedNamespace syncs the leaves of a namespace of the physical cluster that is gone.
func (s *syncer) changedNamespace(k watch.Key) {
	if s.down.Has(namespaces, k) {
		return
	}
	for _, r := range s.synced() {
		for _, leaf := range s.spaces.leavesIn(r, k.Name) {
			s.queue.Add(item{r, leaf})
		}
	}
}

// again syncs the leaves of a resource of the physical cluster that is listed, or that works again: an object can have
// come and gone unseen, and its leaf waits for its end.
func (s *syncer) again(r schema.GroupVersionResource) {
	for _, of := range s.synced() {
		if r != namespaces && r != of {
			continue
		}
		for _, k := range s.up.Keys(of, "") {
			s.queue.Add(item{of, k})
		}
	}
}

func (s *syncer) handle(ctx context.Context, i item) (again time.Duration, _ error) {
	s.latency.begin(i)
	err := s.sync(ctx, i)
	if err == nil {
		s.latency.done(i)
	}
	return 0, err
}

// keep looks at the cluster as a whole: now, at each interval, and whenever its template of namespaces has changed.
func (s *syncer) keep(ctx context.Context) {
	tick := time.NewTicker(sweepInterval)
	defer tick.Stop()
	for ctx.Err() == nil {
		s.identify(ctx)
		s.namespacer.secure(ctx)
		s.tenancy.fillAll(ctx)
		s.sweep(ctx)
		select {
		case <-ctx.Done():
		case <-tick.C:
		case <-s.tenancy.changed:
		}
	}
}

// sweep looks for orphans, and forgets the namespaces of leaves that are gone.
func (s *syncer) sweep(ctx context.Context) {
	defer s.report()
	s.spaces.forget()
	s.orphans.sweep(ctx)
}

// State is the state that a syncer reports.
type State struct {
	// Orphans is the number of objects in the cluster without an object in kcp, and OrphanMessage how a user removes
	// them. Empty: there are none.
	Orphans       int    `json:"orphans,omitempty"`
	OrphanMessage string `json:"orphanMessage,omitempty"`
	// OtherSetup is why nothing is written to the cluster: it runs the objects of these workspaces for another setup.
	// Empty: it does not.
	OtherSetup string `json:"otherSetup,omitempty"`
	// Failures are the endpoints and resources that cannot be read now, with the errors.
	Failures []string `json:"failures,omitempty"`
	// Objects is the number of leaves, and Waiting the number of objects in the queue.
	Objects int `json:"objects"`
	Waiting int `json:"waiting"`
}

// report tells the state of the syncer.
func (s *syncer) report() {
	if s.Report == nil || s.up == nil || s.bound == nil || s.down == nil {
		return
	}
	state := State{OtherSetup: s.member.twice(), Waiting: s.queue.Len()}
	if o := s.orphans.last.Load(); o != nil {
		state.Orphans = o.count
		state.OrphanMessage = o.message
	}
	if err := s.member.blocked(); err != nil && state.OtherSetup == "" {
		state.Failures = append(state.Failures, err.Error())
	}
	for _, f := range slices.Concat(s.up.Failures(), s.bound.Failures(), s.down.Failures()) {
		state.Failures = append(state.Failures, f.Error())
	}
	slices.SortFunc(state.Failures, cmp.Compare[string])
	for _, r := range s.synced() {
		state.Objects += s.up.Classes(r)[""]
	}
	s.Report(state)
}

// Direction is where a change goes.
type Direction string

// The directions: the spec goes down to the physical cluster, and the status goes up to kcp.
const (
	Down Direction = "down"
	Up   Direction = "up"
)

// Directions are all of them.
func Directions() []Direction { return []Direction{Down, Up} }

// change is a change of an item that has not been written to the other side.
type change struct {
	Direction
	item
}

// latency has since when changes wait that the watches have shown. A change that comes while a worker has the item
// waits for the next one.
type latency struct {
	mu               sync.Mutex
	waiting, working map[change]time.Time
}

func newLatency() *latency {
	return &latency{waiting: map[change]time.Time{}, working: map[change]time.Time{}}
}

// saw records a change, unless an earlier one still waits.
func (l *latency) saw(d Direction, i item, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, waits := l.waiting[change{d, i}]; !waits {
		l.waiting[change{d, i}] = now
	}
}

// begin records that a worker has an item. Changes of which the last attempt failed keep their time.
func (l *latency) begin(i item) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range Directions() {
		c := change{d, i}
		since, waits := l.waiting[c]
		if _, again := l.working[c]; waits && !again {
			l.working[c] = since
		}
		delete(l.waiting, c)
	}
}

// wrote returns how long a change has waited that is written now, or zero if none has.
func (l *latency) wrote(d Direction, i item, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	since, waited := l.working[change{d, i}]
	if !waited {
		return 0
	}
	delete(l.working, change{d, i})
	return now.Sub(since)
}

func (l *latency) done(i item) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range Directions() {
		delete(l.working, change{d, i})
	}
}

// observe reports that a change is written to the other side.
func (s *syncer) observe(d Direction, i item) {
	now := s.Now()
	if took := s.latency.wrote(d, i, now); took > 0 && s.Observe != nil {
		s.Observe(d, took)
	}
}
