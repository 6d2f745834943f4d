// Package controller runs transparent multi-cluster: it publishes the APIs of the physical clusters, judges whether the
// clusters are ready, and syncs the clusters in push mode.
package controller

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/kit/poll"
	"github.com/kcpctl/kcpctl/internal/workload/placement/roots"
	"github.com/kcpctl/kcpctl/internal/workload/server/probe"
	"github.com/kcpctl/kcpctl/internal/workload/sync/heartbeat"
	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

const (
	// retryInterval is the time before something is tried again that has failed.
	retryInterval = 10 * time.Second
	// removalInterval is the time between two looks at a Cluster that is deleted or drained.
	removalInterval = time.Second
	// countInterval is the time between two counts of the objects that are scheduled to the clusters.
	countInterval = 10 * time.Second
	// settle is how long changes are collected before they are handled.
	settle = 200 * time.Millisecond
)

var (
	crds = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"}
	secrets = corev1.SchemeGroupVersion.WithResource("secrets")
	// configMaps are where syncers report what their clusters serve.
	configMaps = corev1.SchemeGroupVersion.WithResource("configmaps")
)

// Options are the options of a controller.
type Options struct {
	// KCP has the URL and the credentials of a front-proxy or a shard.
	KCP *rest.Config
	// Workspace is the path of the compute workspace, such as root:compute.
	Workspace string
	// APIs are the APIs to publish.
	APIs []schema.GroupResource
	// WorkspaceType is the name of the type, in the compute workspace, whose workspaces can use the APIs.
	WorkspaceType string
	// Version is the version of kcpctl, and Holder the name of the process.
	Version, Holder string
	// Connect returns how to reach a physical cluster.
	Connect func(kubeconfig []byte) (*rest.Config, error)
	Now     func() time.Time
	// Probe gets the state of the controller. Nil: it is not served.
	Probe *probe.Probe
	// Setup is the ID of this installation in physical clusters. Under another one, everything would run twice. Empty:
	// the logical cluster of the compute workspace.
	Setup string
	// hurry divides all intervals, for tests. Zero divides nothing.
	hurry time.Duration
}

func (o Options) every(d time.Duration) time.Duration { return d / max(o.hurry, 1) }

type controller struct {
	Options
	*workspace
	judge heartbeat.Judge
	// converted are the Clusters as they were read last, by their versions in the set.
	converted map[uint64]*api.Cluster
	members   *members
	reports   *reports
	policies  *policies
	publisher *publisher
	roots     *roots.Scheduler
	// seen is the state that the last pass has seen.
	seen atomic.Pointer[seen]
	// wake ends a wait: something has changed.
	wake poll.Signal
	// counted is when the objects of the clusters were counted last.
	counted time.Time
	// leaves and verdicts are what this pass knows of the clusters, by name.
	leaves   func() map[string]roots.Leaves
	verdicts map[string]heartbeat.Verdict
}

// newController returns a controller whose workspace is not read yet.
func newController(o Options, w *workspace) *controller {
	c := &controller{Options: o, workspace: w, wake: poll.NewSignal()}
	c.roots = roots.New(roots.Options{KCP: o.KCP, Workspace: o.Workspace, Setup: o.Setup,
		Now: o.Now}) // its queues end when it has run
	c.reports = &reports{workspace: w, apis: o.APIs, now: o.Now, every: o.every}
	c.members = &members{workspace: w, Options: o, of: map[string]*member{}, connections: map[string]connection{},
		reports: c.reports}
	c.reports.push = c.members.uid
	c.policies = &policies{workspace: w, written: map[string]policy{}}
	c.publisher = &publisher{workspace: w, Options: o, reports: c.reports, policies: c.policies,
		bound: c.roots.Bound}
	return c
}

// Run runs until the context ends.
func Run(ctx context.Context, o Options) error {
	w, err := connect(ctx, o)
	if err != nil {
		return err
	}
	o.Setup = cmp.Or(o.Setup, w.cluster)
	c := newController(o, w)
	if c.policies.user, err = w.whoAmI(ctx); err != nil {
		return err
	}
	if w.set, err = watch.New(ctx, watch.Options{
		Config: o.KCP, Now: o.Now, Changed: c.changed, State: watch.Logged(ctx, c.wake.Send),
	}); err != nil {
		return err
	}
	defer w.set.Stop()
	defer c.members.stopAll()
	if o.Probe != nil {
		o.Probe.Set(c.state())
	}
	watched := append(guardResources(), api.ClusterGVR(), heartbeat.Leases, secrets, configMaps, exports)
	if err := w.set.Update([]string{w.url}, watched); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.roots.Run(ctx) })
	g.Go(func() error { return c.loop(ctx) })
	return g.Wait()
}

// changed wakes the loop, unless a Lease was only renewed: of the many Leases, one is renewed several times a second.
func (c *controller) changed(r schema.GroupVersionResource, k watch.Key) {
	if r == heartbeat.Leases {
		lease := c.object(r, k.Namespace, k.Name)
		if k.Namespace != api.NamespaceLeases || lease == nil || !c.judge.Renew(lease, c.Now()) {
			return
		}
	}
	c.wake.Send()
}

func (c *controller) loop(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := c.same(); err != nil {
			return err
		}
		if !c.wait(ctx, c.pass(ctx)) {
			return nil
		}
	}
	return nil
}

// wait waits for a change, at most for a time. It returns false if the context ends.
func (c *controller) wait(ctx context.Context, most time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(most):
	case <-c.wake:
		time.Sleep(c.every(settle))
	}
	return true
}

// pass handles everything once. It returns the longest time until the next pass.
func (c *controller) pass(ctx context.Context) time.Duration {
	if !c.set.Listed() {
		c.see(nil)
		return c.every(retryInterval)
	}
	log := klog.FromContext(ctx)
	clusters := c.clusters(ctx)
	ids := identities{clusters, c.uid}
	c.leaves = sync.OnceValue(c.roots.LeavesByCluster)
	c.members.update(ctx, clusters)
	c.evaluate(clusters)
	if err := c.reports.read(ctx, clusters, c.verdicts); err != nil && ctx.Err() == nil {
		log.Error(err, "Cannot read what syncers report, retrying")
	}
	if err := c.publisher.publish(ctx, ids); err != nil && ctx.Err() == nil {
		log.Error(err, "Cannot publish the APIs of the clusters, retrying")
	}
	if err := c.policies.keep(ctx, clusters); err != nil && ctx.Err() == nil {
		log.Error(err, "Cannot write the admission policies, retrying")
	}
	next := c.writeStatuses(ctx, ids)
	// Before anything is given up: the scheduler would write it again.
	c.roots.Update(ctx, roots.State{Clusters: clusters, Published: c.publisher.published, Exports: c.publisher.claims,
		Rebalance: c.rebalanceRequest()})
	for _, cl := range clusters {
		if err := c.guardRemoval(ctx, cl); err != nil && ctx.Err() == nil {
			log.Error(err, "Cannot add or remove a cluster, retrying", "cluster", cl.Name)
		}
		if cl.Draining() && !drained(cl) {
			next = min(next, c.every(removalInterval))
		}
	}
	c.see(clusters) // the metrics name a cluster as ready when workloads can be scheduled to it
	return next
}

// writeStatuses writes the status of each cluster. It returns the longest time until they are judged again.
func (c *controller) writeStatuses(ctx context.Context, ids identities) time.Duration {
	next := c.every(retryInterval)
	now := c.Now()
	until := func(at time.Time) {
		if !at.IsZero() {
			next = min(next, max(at.Sub(now), c.every(time.Second)))
		}
	}
	drafts := c.drafts(ctx, ids, now)
	for _, d := range drafts {
		until(d.verdict.Next)
	}
	until(evict(drafts, now))
	for _, d := range drafts {
		if err := c.writeStatus(ctx, d); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Cannot write the status of a cluster, retrying", "cluster", d.Name)
		}
	}
	return next
}

// rebalanceRequest returns the last request to rebalance all workloads, or "".
func (c *controller) rebalanceRequest() string {
	if export := c.object(exports, "", api.ExportWorkloads); export != nil {
		return export.GetAnnotations()[api.AnnotationRebalanceRequest]
	}
	return ""
}

// clusters returns all Clusters, the oldest first. Only those that have changed are converted.
func (c *controller) clusters(ctx context.Context) []*api.Cluster {
	var out []*api.Cluster
	known := c.converted
	c.converted = map[uint64]*api.Cluster{}
	for _, k := range c.set.Keys(api.ClusterGVR(), "") {
		version := c.set.Version(api.ClusterGVR(), k)
		cl := known[version]
		if cl == nil {
			o, ok := c.set.Get(api.ClusterGVR(), k)
			if !ok {
				continue // it is gone by now
			}
			var err error
			if cl, err = api.ClusterOf(o.Unstructured); err != nil {
				klog.FromContext(ctx).Error(err, "Cannot read a Cluster")
				continue
			}
		}
		c.converted[version] = cl
		out = append(out, new(*cl)) // a pass replaces its metadata and its status
	}
	slices.SortFunc(out, func(a, b *api.Cluster) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return out
}
