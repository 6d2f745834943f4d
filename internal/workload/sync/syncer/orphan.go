package syncer

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
			// What has our labels and names no leaf is not ours.
			leaf, ok := parseLeaf(live.GetAnnotations()[annotationLeaf])
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
