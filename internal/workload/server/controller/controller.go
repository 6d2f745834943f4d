// Package controller runs transparent multi-cluster: it publishes the APIs of the physical clusters, judges whether the
// clusters are ready, and syncs the clusters in push mode.
package controller

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/workload/apis/guard"
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

// The resources of the compute workspace.
var (
	crds = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"}
	secrets = corev1.SchemeGroupVersion.WithResource("secrets")
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

// every returns an interval.
func (o Options) every(d time.Duration) time.Duration { return d / max(o.hurry, 1) }

// controller is a running controller.
type controller struct {
	Options
	// client and metadata are for the compute workspace, and url is its URL.
	client   dynamic.Interface
	metadata metadata.Interface
	url      string
	// cluster is the logical cluster of the compute workspace, and user the user of the controller itself.
	cluster string
	user    guard.User
	// set has the Clusters, Leases, Secrets, APIExports and admission policies of the compute workspace.
	set   *watch.Set
	judge heartbeat.Judge
	// members are the clusters in push mode, by name.
	members map[string]*member
	// converted are the Clusters as they were read last, and connections their kubeconfigs, by name.
	converted   map[string]*api.Cluster
	connections map[string]connection
	// reports are the reports of the syncers of the other clusters, by name.
	reports map[string]*reported
	// roots schedules the objects of users.
	roots *roots.Scheduler
	// seen is the state that the last pass has seen.
	seen seen
	// wake ends a wait: something has changed.
	wake chan struct{}
	// claims are the permission claims of the APIExports of the clusters.
	claims map[string][]any
	// negotiated is the version of what was negotiated last, and states are its states of the clusters.
	negotiated string
	states     map[string][]api.APIStatus
	// published are the published APIs. Nil: they could not be read yet.
	published *roots.Published
	// exported are the published APIs, and policies protect their objects. They were computed of what policiesOf says.
	exported   []schema.GroupResource
	policies   []policyObject
	policiesOf string
	// counted is when the objects of the clusters were counted last, and leaves are the numbers of this pass.
	counted time.Time
	leaves  func() map[string]roots.Leaves
}

// Run runs until the context ends.
func Run(ctx context.Context, o Options) error {
	url := strings.TrimRight(o.KCP.Host, "/") + "/clusters/" + o.Workspace
	cfg := rest.CopyConfig(o.KCP)
	cfg.Host = url
	cfg.QPS = -1
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("client for %s: %w", url, err)
	}
	meta, err := metadata.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("client for %s: %w", url, err)
	}
	c := &controller{
		Options: o, client: client, metadata: meta, url: url, members: map[string]*member{},
		wake: make(chan struct{}, 1), connections: map[string]connection{},
	}
	if err := c.prepare(ctx); err != nil {
		return err
	}
	c.roots = roots.New(roots.Options{KCP: o.KCP, Workspace: o.Workspace, Setup: c.Setup,
		Now: o.Now}) // its queues end when it has run
	if c.set, err = watch.New(ctx, watch.Options{
		Config: o.KCP, Now: o.Now, Changed: c.changed,
		State: func(src watch.Source, err error) {
			if err != nil {
				klog.FromContext(ctx).Error(err, "Cannot watch, retrying", "resource", src.Resource.GroupResource())
			}
			c.poke()
		},
	}); err != nil {
		return err
	}
	defer c.set.Stop()
	defer c.stopMembers()
	if o.Probe != nil {
		o.Probe.Set(c.state())
	}
	watched := append(guardResources(), api.ClusterGVR(), heartbeat.Leases, secrets, exports)
	if err := c.set.Update([]string{url}, watched); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.roots.Run(ctx) })
	g.Go(func() error { return c.loop(ctx) })
	return g.Wait()
}

// Objects with this label belong to a setup: kcpctl up applies them.
const (
	labelManagedBy = "app.kubernetes.io/managed-by"
	managedByUp    = "kcpctl"
)

// prepare creates the CRD of Cluster, unless kcpctl up has, and reads which kcp this is.
func (c *controller) prepare(ctx context.Context) error {
	crd, err := api.CRD()
	if err != nil {
		return err
	}
	live, err := c.client.Resource(crds).Get(ctx, crd.GetName(), metav1.GetOptions{})
	if err != nil || live.GetLabels()[labelManagedBy] != managedByUp {
		live, err = c.client.Resource(crds).Apply(ctx, crd.GetName(), crd,
			metav1.ApplyOptions{FieldManager: api.ManagerController, Force: true})
	}
	switch {
	case apierrors.IsForbidden(err):
		return clierr.New(clierr.Failed,
			"create the workspace, and give the user of the kubeconfig the rights of a cluster administrator in it",
			"apply CustomResourceDefinition %s in workspace %s: %w", crd.GetName(), c.Workspace, err)
	case err != nil:
		return fmt.Errorf("apply CustomResourceDefinition %s in workspace %s: %w", crd.GetName(), c.Workspace, err)
	}
	// Names of logical clusters are random, except the name of root (kcp:
	// pkg/reconciler/tenancy/workspace/workspace_reconcile_scheduling.go).
	c.cluster = live.GetAnnotations()[kcpapi.AnnotationCluster]
	if c.cluster == "" {
		return clierr.New(clierr.BadInput, "specify a kubeconfig of kcp", "%s is not a workspace of kcp", c.url)
	}
	c.Setup = cmp.Or(c.Setup, c.cluster)
	return c.whoAmI(ctx)
}

// reviews are requests for the user who sends them.
var reviews = schema.GroupVersionResource{Group: "authentication.k8s.io", Version: "v1", Resource: "selfsubjectreviews"}

// whoAmI reads the user of the controller, as admission policies see it.
func (c *controller) whoAmI(ctx context.Context) error {
	review := &unstructured.Unstructured{Object: map[string]any{}}
	review.SetGroupVersionKind(reviews.GroupVersion().WithKind("SelfSubjectReview"))
	review, err := c.client.Resource(reviews).Create(ctx, review, metav1.CreateOptions{})
	switch {
	case err == nil:
		c.user = guard.UserOf(review)
	case !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err):
		return fmt.Errorf("ask kcp for the user of the kubeconfig, in workspace %s: %w", c.Workspace, err)
	}
	if c.user.Name == "" {
		klog.FromContext(ctx).Info("kcp does not know the user of the kubeconfig: users can schedule objects to " +
			"clusters that they may not use")
	}
	return nil
}

// changed wakes the loop, unless a Lease was only renewed: of the many Leases, one is renewed several times a second.
func (c *controller) changed(r schema.GroupVersionResource, k watch.Key) {
	if r == heartbeat.Leases {
		lease := c.object(r, k.Namespace, k.Name)
		if k.Namespace != api.NamespaceLeases || lease == nil || !c.judge.Renew(lease, c.Now()) {
			return
		}
	}
	c.poke()
}

// loop handles changes until the context ends.
func (c *controller) loop(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := c.sameWorkspace(); err != nil {
			return err
		}
		if !c.wait(ctx, c.pass(ctx)) {
			return nil
		}
	}
	return nil
}

// sameWorkspace fails if the compute workspace is another one than when the controller started.
func (c *controller) sameWorkspace() error {
	for _, o := range c.set.List(api.ClusterGVR()) {
		if at := watch.KeyOf(o.Unstructured).Cluster; at != c.cluster {
			return clierr.New(clierr.Conflict, "start it again",
				"workspace %s was created again: it is the logical cluster %s, and was %s", c.Workspace, at, c.cluster)
		}
	}
	return nil
}

// poke wakes the loop.
func (c *controller) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
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
		c.seen.set(c.Now(), nil)
		return c.every(retryInterval)
	}
	log := klog.FromContext(ctx)
	clusters := c.clusters(ctx)
	c.leaves = sync.OnceValue(c.countLeaves)
	c.updateMembers(ctx, clusters)
	c.readReports(ctx, clusters)
	c.seen.setLatency(c.members)
	if err := c.publish(ctx, clusters); err != nil && ctx.Err() == nil {
		log.Error(err, "Cannot publish the APIs of the clusters, retrying")
	}
	if err := c.keepPolicies(ctx, clusters); err != nil && ctx.Err() == nil {
		log.Error(err, "Cannot write the admission policies, retrying")
	}
	next := c.every(retryInterval)
	now := c.Now()
	until := func(at time.Time) {
		if !at.IsZero() {
			next = min(next, max(at.Sub(now), c.every(time.Second)))
		}
	}
	drafts := c.drafts(ctx, clusters, now)
	for _, d := range drafts {
		until(d.verdict.Next)
	}
	until(evict(drafts, now))
	for _, d := range drafts {
		if err := c.writeStatus(ctx, d); err != nil && ctx.Err() == nil {
			log.Error(err, "Cannot write the status of a cluster, retrying", "cluster", d.Name)
		}
	}
	// Before anything is given up: the scheduler would write it again.
	c.roots.Update(ctx, roots.State{Clusters: clusters, Published: c.published, Exports: c.claims,
		Rebalance: c.rebalanceRequest()})
	for _, d := range drafts {
		if err := c.guardRemoval(ctx, d.Cluster); err != nil && ctx.Err() == nil {
			log.Error(err, "Cannot add or remove a cluster, retrying", "cluster", d.Name)
		}
		if d.Draining() && !drained(d.Cluster) {
			next = min(next, c.every(removalInterval))
		}
	}
	c.seen.set(c.Now(), clusters) // the metrics name a cluster as ready when workloads can be scheduled to it
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
	c.converted = map[string]*api.Cluster{}
	for _, o := range c.set.List(api.ClusterGVR()) {
		cl := known[o.GetName()]
		if cl == nil || cl.UID != o.GetUID() || cl.ResourceVersion != o.GetResourceVersion() {
			var err error
			if cl, err = api.ClusterOf(o.Unstructured); err != nil {
				klog.FromContext(ctx).Error(err, "Cannot read a Cluster")
				continue
			}
		}
		c.converted[cl.Name] = cl
		out = append(out, new(*cl)) // a pass replaces its metadata and its status
	}
	slices.SortFunc(out, func(a, b *api.Cluster) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// stopMembers stops all members and waits for them.
func (c *controller) stopMembers() {
	for _, name := range slices.Collect(maps.Keys(c.members)) {
		c.stopMember(name)
	}
}

func (c *controller) stopMember(name string) {
	if m := c.members[name]; m != nil {
		m.stop()
		delete(c.members, name)
	}
}
