package roots

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	"github.com/kcpctl/kcpctl/internal/api/kinds"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/placement/schedule"
	"github.com/kcpctl/kcpctl/internal/workload/placement/splitter"
	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

// State is the state of the controller that decisions depend on, besides the objects of workspaces.
type State struct {
	Clusters []*api.Cluster
	// Published are the published APIs. Nil: they are not known.
	Published *Published
	// Exports have the claims of the APIExports of the clusters, by name. Nil: they are not known.
	Exports map[string][]any
	// Rebalance is the last request to rebalance all roots (see api.AnnotationRebalanceRequest).
	Rebalance string
}

// facts are the state at a time. They are replaced, and not changed.
type facts struct {
	// State has only the clusters that decisions are about. givenUp are the names of the other ones, see usedOf.
	State
	givenUp map[string]bool
	// serving is the time at which the clusters began to serve APIs.
	serving serving
	// set has the objects of workspaces. Nil: the scheduler does not run yet.
	set *watch.Set
	// endpoints are the virtual workspaces of the published APIs. Nil: they are not known.
	endpoints []string
}

// view has what decisions depend on: the objects of workspaces, and the state of the controller.
type view struct {
	Options
	mu   sync.Mutex
	last facts
}

func (v *view) facts() facts {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.last
}

func (v *view) change(f func(*facts)) (before facts) {
	v.mu.Lock()
	defer v.mu.Unlock()
	before = v.last
	f(&v.last)
	return before
}

// update sets the state of the controller, and returns the facts before and after.
func (v *view) update(next State) (before, after facts) {
	now := v.Now()
	before = v.change(func(f *facts) {
		f.State = next
		f.Clusters, f.givenUp = usedOf(next.Clusters)
		f.serving = f.serving.next(f.Clusters, now)
		after = *f
	})
	return before, after
}

func (v *view) set() *watch.Set { return v.facts().set }

func (f *facts) watched() []schema.GroupVersionResource {
	all := f.Published.watched()
	if selective(f.Clusters) {
		all = append(all, kcpapi.LogicalCluster.GVR())
	}
	return all
}

func (v *view) resource(gr schema.GroupResource) (schema.GroupVersionResource, bool) {
	for _, r := range v.facts().Published.watched() {
		if r.GroupResource() == gr {
			return r, true
		}
	}
	return schema.GroupVersionResource{}, false
}

// ofKinds returns the watched resources of the kinds that match.
func (v *view) ofKinds(match func(kinds.Kind) bool) (all []schema.GroupVersionResource) {
	for _, kind := range kinds.All() {
		if r, ok := v.resource(kind.GroupResource()); ok && match(kind) {
			all = append(all, r)
		}
	}
	return all
}

// knows reports whether everything at an endpoint was listed that a decision depends on besides the root and its
// leaves: without the annotations of its namespace and the volumes that it uses, a workload would go elsewhere first,
// and without its autoscaler, it would lose replicas.
func (v *view) knows(endpoint string) bool {
	needed := append(v.ofKinds(func(kind kinds.Kind) bool {
		return kind.TargetPath != nil || kind.Data == kinds.AlwaysData ||
			kinds.IsFirst(kind.GroupResource(), kinds.DefaultAccount)
	}), api.Namespaces())
	set := v.set()
	return !slices.ContainsFunc(needed, func(r schema.GroupVersionResource) bool {
		return !set.ListedAt(watch.Source{Endpoint: endpoint, Resource: r})
	})
}

// beside returns an object beside a root, if the watch shows it.
func (v *view) beside(i item, name string) (watch.Object, bool) {
	i.Name = name
	return v.set().Get(i.GroupVersionResource, i.Key)
}

func (v *view) hintsOf(i item) map[string]string {
	if o, ok := v.set().Get(api.Namespaces(), watch.Key{Cluster: i.Cluster, Name: i.Namespace}); ok {
		return o.GetAnnotations()
	}
	return nil
}

func (v *view) namespacesOf(workspace string) map[string]labels.Set {
	out := map[string]labels.Set{}
	for _, ns := range v.set().In(api.Namespaces(), workspace, "") {
		out[ns.GetName()] = ns.GetLabels()
	}
	return out
}

func (v *view) claims(i item, root *unstructured.Unstructured) []item {
	var out []item
	for _, d := range splitter.Dependencies(root) {
		if r, ok := v.resource(d.GroupResource); ok && splitter.KeepsData(d.GroupResource) {
			out = append(out, item{r, watch.Key{Cluster: i.Cluster, Namespace: i.Namespace, Name: d.Name}})
		}
	}
	return out
}

func (v *view) autoscaler(i item, root *unstructured.Unstructured) *unstructured.Unstructured {
	var all []*unstructured.Unstructured
	for _, r := range v.ofKinds(func(kind kinds.Kind) bool { return kind.TargetPath != nil }) {
		for _, o := range v.set().In(r, i.Cluster, i.Namespace) {
			all = append(all, o.Unstructured)
		}
	}
	return splitter.Scaled(root, all)
}

// guards returns the resources that guard connections, and are published.
func (v *view) guards() []schema.GroupVersionResource {
	return v.ofKinds(func(kind kinds.Kind) bool { return kind.Guards })
}

// guarded reports whether a namespace has anything that has to be in a cluster before pods. Most have not.
func (v *view) guarded(i item) bool {
	for _, r := range v.guards() {
		if len(v.set().In(r, i.Cluster, i.Namespace)) > 0 {
			return true
		}
	}
	accounts := corev1.SchemeGroupVersion.WithResource("serviceaccounts")
	i.GroupVersionResource = accounts
	account, ok := v.beside(i, kinds.DefaultAccount)
	ref := splitter.Ref{GroupResource: accounts.GroupResource(), Name: kinds.DefaultAccount}
	return ok && splitter.Adds(ref, account.Unstructured)
}

// path returns the path of a workspace, or "" if it is not known. kcp keeps it in an annotation of the LogicalCluster.
func (v *view) path(workspace string) string {
	o, ok := v.set().Get(kcpapi.LogicalCluster.GVR(), watch.Key{Cluster: workspace, Name: kcpapi.LogicalClusterName})
	if !ok {
		return ""
	}
	return o.GetAnnotations()[kcpapi.AnnotationPath]
}

// refusing returns the clusters that a workspace is not known to be allowed to use. One that is being removed, or was
// lost, is not among them.
func (v *view) refusing(workspace string) map[string]bool {
	out := map[string]bool{}
	clusters := v.facts().Clusters
	if !selective(clusters) {
		return out
	}
	path := v.path(workspace)
	for _, c := range clusters {
		out[c.Name] = accessOf(c, path) != schedule.Granted
	}
	return out
}

// classOf returns the class of an object for the set: the cluster that it is scheduled to, "" for a root, and the
// APIExport of a binding that is one of the compute workspace.
func (v *view) classOf(u *unstructured.Unstructured) string {
	if u.GetKind() == kcpapi.APIBinding.Kind {
		if path, name := exportOf(u); path == v.Workspace {
			return bindingClass + name
		}
		return bindingClass
	}
	on, _, _ := unstructured.NestedString(u.Object, "metadata", "labels",
		api.LabelCluster) // GetLabels would copy all of them
	return on
}

// rootName returns the name of the root of an object: its own, unless it is a leaf. A syncer can write the annotation,
// and must not name another root with it.
func rootName(o *unstructured.Unstructured) string {
	name, cluster := o.GetAnnotations()[api.AnnotationName], o.GetLabels()[api.LabelCluster]
	if name != "" && cluster != "" && api.LeafName(name, cluster) == o.GetName() {
		return name
	}
	return o.GetName()
}

// rootOf returns the name of the root of a leaf, or of what was one. Of a leaf that is gone, only the name is known,
// which may have only a part of the name of its root.
func (v *view) rootOf(leaf item, o *unstructured.Unstructured) string {
	if o != nil {
		return rootName(o)
	}
	at := strings.LastIndex(leaf.Name, separator)
	if at <= 0 {
		return leaf.Name
	}
	cluster := leaf.Name[at+len(separator):]
	if api.ValidateClusterName(cluster) != nil {
		return leaf.Name
	}
	for _, k := range v.set().KeysIn(leaf.GroupVersionResource, leaf.Cluster, leaf.Namespace, "") {
		if api.LeafName(k.Name, cluster) == leaf.Name {
			return k.Name
		}
	}
	return leaf.Name[:at]
}

// Published are the APIs in the APIExport.
type Published struct {
	// Scheduled are the APIs whose objects are scheduled.
	Scheduled []schema.GroupVersionResource
	// Removed are the APIs that the setup no longer has. Their objects in clusters are kept, and are counted.
	Removed []schema.GroupVersionResource
}

func (p *Published) apis() []schema.GroupVersionResource {
	if p == nil {
		return nil
	}
	return slices.Concat(p.Scheduled, p.Removed)
}

// watched returns what is watched: the published APIs, what workloads need besides, namespaces, and APIBindings.
func (p *Published) watched() []schema.GroupVersionResource {
	if p == nil {
		return nil
	}
	return slices.Concat(p.apis(), api.Dependencies(),
		[]schema.GroupVersionResource{api.Namespaces(), kcpapi.APIBinding.GVR()})
}

func (p *Published) scheduled() []schema.GroupVersionResource {
	if p == nil {
		return nil
	}
	return p.Scheduled
}

// nothing reports whether it is known that no API is published.
func (p *Published) nothing() bool { return p != nil && len(p.Scheduled)+len(p.Removed) == 0 }

func (p *Published) removed(r schema.GroupVersionResource) bool {
	return p != nil && slices.Contains(p.Removed, r)
}

// settleFor is how long a cluster is ready, and syncs an API, until the status of its leaves counts: what its syncer
// has not written yet is from before.
const settleFor = 30 * time.Second

func settled(c *api.Cluster, now time.Time) bool {
	r := meta.FindStatusCondition(c.Status.Conditions, api.ConditionReady)
	return r != nil && r.Status == metav1.ConditionTrue && now.Sub(r.LastTransitionTime.Time) >= settleFor
}

// serving is the time at which each API began to be served, by cluster. It is zero for APIs that were served when the
// controller first saw the cluster.
type serving map[types.UID]map[schema.GroupResource]time.Time

func (s serving) next(clusters []*api.Cluster, now time.Time) serving {
	out := serving{}
	for _, c := range clusters {
		before, known := s[c.UID]
		all := map[schema.GroupResource]time.Time{}
		for _, a := range c.Status.APIs {
			if !a.State.Serves() {
				continue
			}
			since, served := before[a.GroupResource()]
			if known && !served {
				since = now
			}
			all[a.GroupResource()] = since
		}
		out[c.UID] = all
	}
	return out
}

// recent returns the APIs whose status on a cluster is not current yet, as text.
func (s serving) recent(c *api.Cluster, now time.Time) string {
	out := ""
	for _, a := range c.Status.APIs {
		if since, ok := s[c.UID][a.GroupResource()]; ok && now.Sub(since) < settleFor {
			out += fmt.Sprint(a.GroupResource(), " ")
		}
	}
	return out
}

// current reports whether a cluster syncs an API, and has done so for so long that the status of its leaves is current.
func (s serving) current(c *api.Cluster, gr schema.GroupResource, now time.Time) bool {
	return c.API(gr).State.Serves() && now.Sub(s[c.UID][gr]) >= settleFor
}

// neighbour is another workload in a namespace that a workload wants to be near to, or not, or one of its leaves.
type neighbour struct {
	item
	// cluster is the cluster of a leaf. Empty: what was decided about the workload counts.
	cluster      string
	affine, anti bool
}

// neighbours returns the objects in the namespace of a workload that its hints select, except its own leaves.
func (v *view) neighbours(i item, hints schedule.Hints) (out []neighbour) {
	if hints.Affinity == nil && hints.AntiAffinity == nil {
		return nil
	}
	f := v.facts()
	for _, r := range f.Published.apis() {
		for _, o := range f.set.In(r, i.Cluster, i.Namespace) {
			all := labels.Set(o.GetLabels())
			n := neighbour{
				item: item{r, watch.KeyOf(o.Unstructured)}, cluster: all[api.LabelCluster],
				affine: hints.Affinity != nil && hints.Affinity.Matches(all),
				anti:   hints.AntiAffinity != nil && hints.AntiAffinity.Matches(all),
			}
			if n.Name = rootName(o.Unstructured); n.item != i && (n.affine || n.anti) {
				out = append(out, n)
			}
		}
	}
	return slices.Clip(out)
}
