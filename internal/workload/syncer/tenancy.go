package syncer

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/netip"
	"reflect"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/kcpctl/kcpctl/internal/workload/api"
	"github.com/kcpctl/kcpctl/internal/workload/watch"
)

// guardName is the name of the objects that confine those of users in a namespace: a ResourceQuota, a LimitRange and a NetworkPolicy. They have
// the label managedBy, and not those of leaves: they are no orphans, and stand for no leaf.
const (
	guardName = "kcpctl-tenancy"
	managedBy = api.LabelManagedBy + "=" + api.ManagerSyncer
)

// wakePause is the shortest time between two looks at the nodes. Their status changes often.
const wakePause = time.Second

// The resources of guards, and nodes.
var (
	resourceQuotas  = corev1.SchemeGroupVersion.WithResource("resourcequotas")
	limitRanges     = corev1.SchemeGroupVersion.WithResource("limitranges")
	networkPolicies = schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"}
	nodes           = corev1.SchemeGroupVersion.WithResource("nodes")
	guardResources  = []schema.GroupVersionResource{networkPolicies, resourceQuotas, limitRanges}
	guardKinds      = map[schema.GroupVersionResource]string{networkPolicies: "NetworkPolicy", resourceQuotas: "ResourceQuota", limitRanges: "LimitRange"}
)

// guards is what confines the namespaces of users. The zero value confines nothing, until the Cluster is seen.
type guards struct {
	// live has the guards in the cluster, and nodes the nodes.
	live, nodes *watch.Set
	wake        chan struct{}

	mu      sync.Mutex
	cluster *api.Cluster
	plan    *plan
	// err is why there is no plan.
	err error
	// due means that namespaces may not be what the plan says.
	due bool
	// done has the namespaces that have their guards, with the hash of the plan.
	done map[string]uint64
	// answers has what the cluster made of a guard: it can add defaults.
	answers map[guard]answer
}

// guard identifies an object.
type guard struct {
	schema.GroupVersionResource
	namespace string
}

// answer has the hashes of a spec that was sent, and of that which the cluster has returned.
type answer struct{ sent, returned uint64 }

// plan is what namespaces get.
type plan struct {
	// specs are by resource. An object that is not listed must not exist. That of the NetworkPolicy depends on the workspace.
	specs    map[schema.GroupVersionResource]map[string]any
	isolated bool
	pods     []netip.Prefix
	hash     uint64
}

// spec returns the spec of a guard in a namespace of a workspace, or nil.
func (p *plan) spec(r schema.GroupVersionResource, setup, workspace string) map[string]any {
	if r == networkPolicies && p.isolated {
		return isolationSpec(setup, workspace, p.pods)
	}
	return p.specs[r]
}

// planOf returns what the namespaces of a cluster get.
func planOf(c *api.Cluster, pods []netip.Prefix) (*plan, error) {
	p := &plan{specs: map[schema.GroupVersionResource]map[string]any{}, isolated: c.Isolation() == api.IsolationWorkspace, pods: pods}
	add := func(r schema.GroupVersionResource, spec any) (err error) {
		p.specs[r], err = runtime.DefaultUnstructuredConverter.ToUnstructured(spec)
		return err
	}
	if quota := c.Quota(); len(quota) > 0 {
		if err := add(resourceQuotas, &corev1.ResourceQuotaSpec{Hard: quota}); err != nil {
			return nil, fmt.Errorf("quota of Cluster %s: %w", c.Name, err)
		}
	}
	if t := c.Spec.Tenancy; t != nil && len(t.LimitRange) > 0 {
		if err := add(limitRanges, &corev1.LimitRangeSpec{Limits: t.LimitRange}); err != nil {
			return nil, fmt.Errorf("limitRange of Cluster %s: %w", c.Name, err)
		}
	}
	if !p.isolated {
		p.pods = nil
	}
	p.hash = hashOfAll(p.specs[resourceQuotas], p.specs[limitRanges], p.isolated, p.pods)
	return p, nil
}

// hashOfAll returns a hash of JSON values, never 0.
func hashOfAll(values ...any) uint64 {
	h := fnv.New64a()
	_ = json.NewEncoder(h).Encode(values)
	return h.Sum64() | 1
}

// watchGuards watches the guards and the nodes.
func (s *syncer) watchGuards(ctx context.Context) (err error) {
	g := &s.guards
	g.wake = make(chan struct{}, 1)
	g.live, err = watch.New(ctx, watch.Options{
		Config: s.Physical, LabelSelector: managedBy, Now: s.Now, Keep: append(identity(), []string{"spec"}),
		State: func(src watch.Source, err error) {
			if err != nil {
				klog.FromContext(ctx).Error(err, "Cannot watch what confines namespaces, retrying", "resource", src.Resource.GroupResource())
			}
		},
	})
	if err != nil {
		return err
	}
	g.nodes, err = watch.New(ctx, watch.Options{
		Config: s.Physical, Now: s.Now, Keep: append(identity(), []string{"spec", "podCIDR"}, []string{"spec", "podCIDRs"}),
		Changed: func(schema.GroupVersionResource, watch.Key) { g.awake() },
		State:   func(watch.Source, error) { g.awake() },
	})
	return err
}

// awake lets keepGuards look again. It does not block.
func (g *guards) awake() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// stop ends the watches.
func (g *guards) stop() {
	g.live.Stop()
	g.nodes.Stop()
}

// seen returns the Cluster, or nil if it is not known yet.
func (g *guards) seen() *api.Cluster {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.cluster
}

// ready reports whether it is known how namespaces are confined, or why not. Until then, leaves wait.
func (g *guards) ready() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.cluster == nil || g.plan != nil || g.err != nil
}

// forget forgets that a namespace has its guards.
func (g *guards) forget(namespace string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.done, namespace)
	for _, r := range guardResources {
		delete(g.answers, guard{r, namespace})
	}
}

// see takes the tenancy of the Cluster. All leaves are looked at again if it has changed.
func (s *syncer) see(c *api.Cluster) {
	g := &s.guards
	g.mu.Lock()
	changed := g.cluster == nil || !reflect.DeepEqual(g.cluster.Spec.Tenancy, c.Spec.Tenancy)
	g.cluster = c
	g.mu.Unlock()
	if !changed {
		return
	}
	err := g.live.Update([]string{s.physicalURL()}, guardResources)
	if err == nil {
		err = g.nodes.Update([]string{s.physicalURL()}, []schema.GroupVersionResource{nodes})
	}
	if err != nil {
		return // the syncer ends
	}
	s.makePlan()
	g.awake()
	s.again(namespaces)
}

// makePlan makes the plan. It keeps the one that it has while nodes cannot be listed.
func (s *syncer) makePlan() {
	g := &s.guards
	pods, known, err := s.podRanges()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cluster == nil {
		return
	}
	if !known && g.plan != nil {
		pods, known = g.plan.pods, g.plan.isolated
	}
	if !known && g.cluster.Isolation() == api.IsolationWorkspace {
		g.plan, g.err = nil, err
		return
	}
	p, err := planOf(g.cluster, pods)
	g.due = g.due || p != nil && (g.plan == nil || g.plan.hash != p.hash)
	g.plan, g.err = p, err
}

// takeDue reports whether namespaces may not be what the plan says, once.
func (g *guards) takeDue() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	due := g.due
	g.due = false
	return due
}

// podRanges returns the addresses of pods, from the nodes. They are not known until nodes are listed. Those of a cluster that does not let the syncer
// read nodes are known to be none.
func (s *syncer) podRanges() (ranges []netip.Prefix, known bool, err error) {
	set := s.guards.nodes
	if !set.ListedAt(watch.Source{Endpoint: s.physicalURL(), Resource: nodes}) {
		for _, f := range set.Failures() {
			if apierrors.IsForbidden(f.Err) {
				return nil, true, nil
			}
			return nil, false, f
		}
		return nil, false, nil
	}
	for _, n := range set.List(nodes) {
		texts, _, _ := unstructured.NestedStringSlice(n.Object, "spec", "podCIDRs")
		if one, _, _ := unstructured.NestedString(n.Object, "spec", "podCIDR"); len(texts) == 0 && one != "" {
			texts = []string{one}
		}
		for _, text := range texts {
			if p, err := netip.ParsePrefix(text); err == nil {
				ranges = append(ranges, p.Masked())
			}
		}
	}
	return merged(ranges), true, nil
}

// confine writes the guards of the namespace of a leaf, once. An object is not written into a namespace without them.
func (s *syncer) confine(ctx context.Context, i item) error {
	g := &s.guards
	ns := api.DownstreamNamespace(s.Setup, i.Cluster, i.Namespace)
	g.mu.Lock()
	p, err, known := g.plan, g.err, g.cluster != nil
	has := p != nil && g.done[ns] == p.hash
	g.mu.Unlock()
	switch {
	case !known || has:
		return nil
	case err != nil:
		return fmt.Errorf("confine namespace %s of cluster %s: %w", ns, s.Cluster, err)
	case p == nil:
		return fmt.Errorf("confine namespace %s of cluster %s: its nodes are not listed yet", ns, s.Cluster)
	}
	for _, r := range guardResources {
		if spec := p.spec(r, s.Setup, i.Cluster); spec != nil {
			if err := s.applyGuard(ctx, guard{r, ns}, spec); err != nil {
				return err
			}
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.done == nil {
		g.done = map[string]uint64{}
	}
	g.done[ns] = p.hash
	return nil
}

// applyGuard writes a guard. It fails with a refusal if the syncer may not: what was promised would not hold.
func (s *syncer) applyGuard(ctx context.Context, at guard, spec map[string]any) error {
	client, err := s.below(at.GroupVersionResource, at.namespace)
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetGroupVersionKind(at.GroupVersion().WithKind(guardKinds[at.GroupVersionResource]))
	u.SetNamespace(at.namespace)
	u.SetName(guardName)
	u.SetLabels(map[string]string{api.LabelManagedBy: api.ManagerSyncer})
	object, err := client.Apply(ctx, guardName, u, metav1.ApplyOptions{FieldManager: api.ManagerSyncer, Force: true})
	switch {
	case apierrors.IsForbidden(err):
		return &refusal{api.ReasonDenied, fmt.Sprintf("the syncer may not create and patch %s in cluster %s, which confine the objects of workspaces there: "+
			"grant it with kcpctl up, or change spec.tenancy of Cluster %s: %v", at.GroupResource(), s.Cluster, s.Cluster, err)}
	case err != nil:
		return fmt.Errorf("apply %s %s/%s to cluster %s: %w", at.GroupResource(), at.namespace, guardName, s.Cluster, err)
	}
	s.guards.mu.Lock()
	defer s.guards.mu.Unlock()
	if s.guards.answers == nil {
		s.guards.answers = map[guard]answer{}
	}
	s.guards.answers[at] = answer{hashOfAll(spec), hashOfAll(object.Object["spec"])}
	return nil
}

// keepGuards restores guards that others have changed, and writes them again when the nodes or the Cluster have changed, until the context ends.
func (s *syncer) keepGuards(ctx context.Context) {
	tick := time.NewTicker(sweepInterval)
	defer tick.Stop()
	for {
		ticked := false
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			ticked = true
		case <-s.guards.wake:
		}
		waited := !s.guards.ready()
		s.makePlan()
		if waited && s.guards.ready() {
			s.again(namespaces)
		}
		if s.guards.takeDue() || ticked {
			s.checkGuards(ctx)
			s.contention.free(s.Now())
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wakePause):
		}
	}
}

// checkGuards makes the guards of all namespaces what they should be. It needs a request only for those that are not.
func (s *syncer) checkGuards(ctx context.Context) {
	defer s.begin("the check of what confines namespaces")()
	s.guards.mu.Lock()
	p := s.guards.plan
	s.guards.mu.Unlock()
	if p == nil {
		return
	}
	for _, ns := range s.down.List(namespaces) {
		if ns.GetDeletionTimestamp() != nil {
			continue
		}
		name, workspace, failed := ns.GetName(), ns.GetLabels()[api.LabelWorkspace], false
		for _, r := range guardResources {
			if err := s.checkGuard(ctx, guard{r, name}, p.spec(r, s.Setup, workspace)); err != nil {
				klog.FromContext(ctx).Error(err, "Cannot confine a namespace", "namespace", name)
				failed = true
			}
		}
		s.guards.checked(name, p.hash, !failed)
	}
}

// checked records the result for a namespace that had its guards when something was written into it.
func (g *guards) checked(namespace string, hash uint64, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, had := g.done[namespace]; !had {
		return
	}
	if g.done[namespace] = hash; !ok {
		delete(g.done, namespace)
	}
}

// checkGuard makes a guard what it should be. Nil means that it must not exist. Nothing is done while guards cannot be listed.
func (s *syncer) checkGuard(ctx context.Context, at guard, spec map[string]any) error {
	if !s.guards.live.ListedAt(watch.Source{Endpoint: s.physicalURL(), Resource: at.GroupVersionResource}) {
		return nil
	}
	live, exists := s.guards.live.Get(at.GroupVersionResource, watch.Key{Namespace: at.namespace, Name: guardName})
	if spec == nil {
		if !exists {
			return nil
		}
		return s.delete(ctx, at.GroupVersionResource, live.Unstructured)
	}
	if exists {
		is := answer{hashOfAll(spec), hashOfAll(live.Object["spec"])}
		s.guards.mu.Lock()
		known := s.guards.answers[at]
		s.guards.mu.Unlock()
		if is.sent == is.returned || is == known {
			return nil
		}
	}
	return s.applyGuard(ctx, at, spec)
}
