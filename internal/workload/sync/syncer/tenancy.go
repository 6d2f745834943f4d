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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

// guardName is the name of the objects that confine a namespace with objects of users: a ResourceQuota, a LimitRange
// and a NetworkPolicy. They have the label managedBy, and no labels of leaves: they are not orphans, and stand for no
// leaf.
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
	networkPolicies = schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1",
		Resource: "networkpolicies"}
	nodes          = corev1.SchemeGroupVersion.WithResource("nodes")
	guardResources = []schema.GroupVersionResource{networkPolicies, resourceQuotas, limitRanges}
	guardKinds     = map[schema.GroupVersionResource]string{
		networkPolicies: networkPolicyKind.Kind, resourceQuotas: "ResourceQuota", limitRanges: "LimitRange",
	}
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

// answer has the hashes of a spec that was sent, and of the one that the cluster has returned.
type answer struct{ sent, returned uint64 }

// plan is what namespaces get.
type plan struct {
	// specs are by resource. An object that is not listed must not exist. The spec of the NetworkPolicy depends on the
	// workspace.
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
	p := &plan{specs: map[schema.GroupVersionResource]map[string]any{},
		isolated: c.Isolation() == api.IsolationWorkspace, pods: pods}
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
				klog.FromContext(ctx).Error(err, "Cannot watch what confines namespaces, retrying", "resource",
					src.Resource.GroupResource())
			}
		},
	})
	if err != nil {
		return err
	}
	g.nodes, err = watch.New(ctx, watch.Options{
		Config: s.Physical, Now: s.Now,
		Keep:    append(identity(), []string{"spec", "podCIDR"}, []string{"spec", "podCIDRs"}),
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
		klog.Background().Error(err, "Cannot watch what confines namespaces", "cluster", s.Cluster)
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
		pods = g.plan.pods
		known = g.plan.isolated
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

// podRanges returns the addresses of pods, from the nodes. They are not known until nodes are listed. There are none if
// the syncer may not read nodes.
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
