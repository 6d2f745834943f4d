package syncer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/kcpctl/kcpctl/internal/api/kinds"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

// orphan is an object of the physical cluster without a leaf, or a namespace there without any.
type orphan struct {
	schema.GroupVersionResource
	live *unstructured.Unstructured
}

const tokenLength = 8

// orphans finds the objects of the physical cluster without a leaf, and removes them if a user has released them.
type orphans struct {
	*view
	member *member
	last   atomic.Pointer[found]
}

// found is the number of orphans, and the message how a user removes them.
type found struct {
	count   int
	message string
}

// sweep counts the orphans, and removes them if a user has released exactly these. Leaves end with a finalizer, so a
// missing leaf does not mean that its user has deleted it: kcp can be restored from a backup. Nothing is counted if
// anything could not be listed, on either side, because a leaf that is not known may exist.
func (o *orphans) sweep(ctx context.Context) {
	endpoints, resources := o.known()
	if o.member.blocked() != nil || !o.complete(endpoints, resources) {
		return
	}
	all := o.find(resources)
	if !o.complete(endpoints, resources) {
		return // a watch has ended, or is no longer wanted, and what it had could not be found
	}
	if c, _ := o.seen(); len(all) > 0 && c.Annotations[api.AnnotationRemoveOrphans] == tokenOf(all) {
		all = o.removeReleased(ctx, all)
	}
	o.last.Store(&found{len(all), o.describe(all)})
}

// find returns the orphans. A namespace is one if it has no leaf, of any resource that it has ever had objects of.
func (o *orphans) find(resources []schema.GroupVersionResource) (found []orphan) {
	used := o.usedNamespaces(o.apis())
	for _, r := range resources {
		for _, live := range o.down.List(r) {
			leaf, ok := leafOf(live.Unstructured)
			if ok && live.GetDeletionTimestamp() == nil && !o.wanted(r, leaf, live.GetName()) {
				found = append(found, orphan{r, live.Unstructured})
			}
		}
	}
	for _, ns := range o.down.List(namespaces) {
		if !used[ns.GetName()] && ns.GetDeletionTimestamp() == nil && removable(ns.Unstructured, resources) {
			found = append(found, orphan{namespaces, ns.Unstructured})
		}
	}
	return found
}

// removeReleased removes orphans, and returns those that could not be removed. They are shown again.
func (o *orphans) removeReleased(ctx context.Context, all []orphan) (failed []orphan) {
	log := klog.FromContext(ctx)
	for _, x := range all {
		log.Info("Removing an object without a leaf, which a user has released", "resource", x.GroupResource(),
			"namespace", x.live.GetNamespace(), "name", x.live.GetName())
		if err := o.delete(ctx, x.GroupVersionResource, x.live); err != nil {
			log.Error(err, "Cannot remove an object without a leaf")
			failed = append(failed, x)
		}
	}
	return failed
}

// describe returns the message about orphans, or "" if there are none.
func (o *orphans) describe(all []orphan) string {
	if len(all) == 0 {
		return ""
	}
	bound := o.boundClaims()
	var data, unbound, empty int
	for _, x := range all {
		k, _ := kinds.OfResource(x.GroupResource())
		leaf, isLeaf := parseLeaf(x.live.GetAnnotations()[annotationLeaf])
		switch {
		case x.GroupVersionResource == namespaces:
			empty++
		case k.Data != kinds.NoData: // objects in memory have no spec, so any StatefulSet may have volumes
			data++
		case isLeaf && !bound[leaf.Cluster]:
			unbound++
		}
	}
	message := fmt.Sprintf("%d objects in cluster %s have no object in kcp", len(all), o.Cluster)
	if data > 0 {
		message += fmt.Sprintf(", %d of them have data", data)
	}
	if unbound > 0 {
		message += fmt.Sprintf(", %d of them are in workspaces that do not exist or have no APIBinding to APIExport %s",
			unbound, api.ExportCluster(o.Cluster))
	}
	if empty > 0 {
		message += fmt.Sprintf(", %d of them are namespaces, which would be removed with everything in them", empty)
	}
	return message + fmt.Sprintf(": they are not removed, because that may be a mistake. "+
		"List them with kubectl get %s -A -l %s=%s in the cluster. "+
		"To remove them, annotate the Cluster in kcp: kubectl annotate --overwrite clusters.%s %s %s=%s",
		resourcesOf(all), api.LabelSetup, o.Setup, api.Group, o.Cluster, api.AnnotationRemoveOrphans, tokenOf(all))
}

// leafOf returns the key of the leaf that an object of the cluster was made from, or false. What has our labels and
// names no leaf is not ours. Nor is what has a controller: operators copy the labels and the annotations of an object
// to what they make for it.
func leafOf(live *unstructured.Unstructured) (watch.Key, bool) {
	if metav1.GetControllerOf(live) != nil {
		return watch.Key{}, false
	}
	return parseLeaf(live.GetAnnotations()[annotationLeaf])
}

// parseLeaf parses a key as Key.String writes it.
func parseLeaf(text string) (watch.Key, bool) {
	cluster, rest, ok := strings.Cut(text, "|")
	namespace, name, ok2 := strings.Cut(rest, "/")
	return watch.Key{Cluster: cluster, Namespace: namespace, Name: name}, ok && ok2
}

func tokenOf(all []orphan) string {
	var uids []string
	for _, o := range all {
		uids = append(uids, string(o.live.GetUID()))
	}
	slices.Sort(uids)
	return api.Hash(tokenLength, uids...)
}

// resourcesOf returns the resources of orphans, as kubectl get takes them.
func resourcesOf(all []orphan) string {
	var out []string
	for _, o := range all {
		out = append(out, o.GroupResource().String())
	}
	slices.Sort(out)
	return strings.Join(slices.Compact(out), ",")
}

// systemNamespace exists in every cluster from the start. Its UID identifies the cluster.
const systemNamespace = "kube-system"

// ReadUID returns the UID of the physical cluster that answers.
func ReadUID(ctx context.Context, physical *rest.Config) (types.UID, error) {
	client, err := dynamic.NewForConfig(physical)
	if err != nil {
		return "", fmt.Errorf("client for %s: %w", physical.Host, err)
	}
	ns, err := client.Resource(namespaces).Get(ctx, systemNamespace, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("read namespace %s: %w", systemNamespace, err)
	}
	return ns.GetUID(), nil
}

// Identity is the identity of the physical cluster that answers. Another one can answer at the address of the first,
// with the same authorities and credentials, such as after a loss of its etcd.
type Identity struct {
	Physical *rest.Config
	// Changed is called when another UID was read. It must not block. Nil ignores it.
	Changed func()

	uid atomic.Value
}

// UID returns the UID that was read last. It is empty if none was.
func (i *Identity) UID() types.UID {
	uid, _ := i.uid.Load().(types.UID)
	return uid
}

func (i *Identity) read(ctx context.Context) error {
	uid, err := ReadUID(ctx, i.Physical)
	if err != nil {
		return err
	}
	if i.uid.Swap(uid) != uid && i.Changed != nil {
		i.Changed()
	}
	return nil
}

// Confirm reads again which physical cluster answers, and fails unless a Cluster has its UID recorded.
func (i *Identity) Confirm(ctx context.Context, c *api.Cluster) error {
	if err := i.read(ctx); err != nil {
		return err
	}
	return i.differs(c)
}

// differs returns why the physical cluster is not, or may not be, the one that a Cluster was registered for, or nil.
func (i *Identity) differs(c *api.Cluster) error {
	switch uid := i.UID(); {
	case uid == "":
		return fmt.Errorf("the UID of cluster %s is not read yet", c.Name)
	case c.Status.UID == "":
		return fmt.Errorf("the status of Cluster %s has no UID yet: the controller records it", c.Name)
	case c.Status.UID == uid:
		return nil
	default:
		return fmt.Errorf("this is another physical cluster than Cluster %s was registered for: "+
			"its UID is %s, and not %s", c.Name, uid, c.Status.UID)
	}
}

// examineInterval is the time between two looks for objects of other setups.
const examineInterval = 5 * time.Minute

// member is the physical cluster: whether it may be written to.
type member struct {
	*view
	spaces *spaceIndex
	// waits reports whether leaves wait until the cluster may be written to.
	waits atomic.Bool

	// otherSetup is why the workspaces would run twice, and examined when that was looked at.
	otherSetup atomic.Value
	examined   time.Time
}

// twice returns why the workspaces would run twice, or "".
func (m *member) twice() string {
	other, _ := m.otherSetup.Load().(string)
	return other
}

// identify reads which cluster this is, and whether it has objects of these workspaces under the ID of another setup.
// If it is another cluster than the Cluster was made for, or if the workspaces run there already, nothing is written to
// it.
func (s *syncer) identify(ctx context.Context) {
	if err := s.member.examine(ctx); err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Cannot read the identity of the cluster, retrying")
		return
	}
	s.resume()
}

// resume syncs the leaves that waited until the cluster may be written to, if it may.
func (s *syncer) resume() {
	if s.member.blocked() == nil && s.member.waits.Swap(false) {
		s.again(namespaces)
	}
}

func (m *member) examine(ctx context.Context) error {
	client, err := m.below(namespaces, "")
	if err != nil {
		return err
	}
	due := m.Now().Sub(m.examined) >= examineInterval || m.twice() != ""
	if due || m.Identity.UID() == "" {
		if err := m.Identity.read(ctx); err != nil {
			return err
		}
	}
	if !due || !m.bound.Complete() {
		return nil
	}
	return m.examineOthers(ctx, client, "")
}

// examineOthers looks for namespaces of other setups: in all workspaces whose objects the syncer sees, or in one.
func (m *member) examineOthers(ctx context.Context, client dynamic.ResourceInterface, workspace string) error {
	selector := fmt.Sprintf("%s,%s!=%s", api.LabelSetup, api.LabelSetup, m.Setup)
	if workspace != "" {
		selector += "," + api.LabelWorkspace + "=" + workspace
	}
	list, err := client.List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return fmt.Errorf("list the namespaces of other setups in cluster %s: %w", m.Cluster, err)
	}
	own, other := m.workspaces(), ""
	for i := range list.Items {
		ns := &list.Items[i]
		if of := ns.GetLabels()[api.LabelWorkspace]; own[of] || of == workspace && workspace != "" {
			other = fmt.Sprintf("namespace %s of cluster %s has objects of workspace %s under the ID %s of a setup, "+
				"and this one is %s: they would run twice. Delete the namespace if its workloads are not needed",
				ns.GetName(), m.Cluster, of, ns.GetLabels()[api.LabelSetup], m.Setup)
			break
		}
	}
	if workspace == "" {
		m.examined = m.Now()
	}
	if workspace == "" || other != "" {
		m.otherSetup.Store(other)
	}
	return nil
}

// workspaces returns the logical clusters whose objects the syncer sees, or will see.
func (m *member) workspaces() map[string]bool {
	out := m.spaces.clusters()
	for workspace := range m.boundClaims() {
		out[workspace] = true
	}
	return out
}

// replaced returns why the physical cluster is not, or may not be, the one that the Cluster was registered for, or nil.
func (m *member) replaced() error {
	c, seen := m.seen()
	if !seen {
		return fmt.Errorf("the Cluster %s is not read yet", m.Cluster)
	}
	return m.Identity.differs(&c)
}

// blocked returns why nothing is written to the physical cluster, or nil.
func (m *member) blocked() error {
	if err := m.replaced(); err != nil {
		return err
	}
	if other := m.twice(); other != "" {
		return errors.New(other)
	}
	return nil
}
