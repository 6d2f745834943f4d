package syncer

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/kcpapi"
	"github.com/kcpctl/kcpctl/internal/workload/api"
	"github.com/kcpctl/kcpctl/internal/workload/watch"
)

// The brake: orphans are not removed if there are this many at once, and more than this share of all objects. Such a number is more
// likely a mistake elsewhere, such as a restored backup of kcp (kcp issue 2041: a syncer deleted namespaces when it started).
const (
	manyOrphans        = 5
	manyOrphansPercent = 20
)

// tokenLength is the number of characters with which a user releases orphans.
const tokenLength = 8

// hold returns the orphans that are kept, and the reason. A user releases them with an annotation of the Cluster that names exactly
// these: others that come later are kept again. Namespaces are not kept, because they are only orphans when nothing is in them.
func (s *syncer) hold(found map[orphan]*unstructured.Unstructured, total int, release string) (kept map[orphan]bool, message string) {
	bound := s.boundClusters()
	var objects, unbound []orphan
	for o, live := range found {
		if o.GroupVersionResource == namespaces || s.released[o.uid] {
			continue
		}
		objects = append(objects, o)
		if leaf, _ := parseLeaf(live.GetAnnotations()[annotationLeaf]); !bound[leaf.Cluster] {
			unbound = append(unbound, o)
		}
	}
	held := unbound
	if tooMany(len(objects), total) {
		held = objects
	}
	if len(held) == 0 {
		return nil, ""
	}
	token := tokenOf(held)
	if release == token {
		for _, o := range held {
			s.released[o.uid] = true
		}
		return nil, ""
	}
	kept = map[orphan]bool{}
	for _, o := range held {
		kept[o] = true
	}
	message = fmt.Sprintf("%d of %d objects in cluster %s have no object in kcp", len(held), total, s.Cluster)
	if len(unbound) > 0 {
		message += fmt.Sprintf(", %d of them in workspaces that do not exist or have no APIBinding to APIExport %s", len(unbound), api.ExportCluster(s.Cluster))
	}
	return kept, message + fmt.Sprintf(": they are not removed, because that may be a mistake. List them with kubectl get %s -A -l %s=%s,%s=%s in the cluster. "+
		"To remove them, annotate the Cluster in kcp: kubectl annotate --overwrite clusters.%s %s %s=%s",
		resourcesOf(held), api.LabelSetup, s.Setup, api.LabelCluster, s.Cluster, api.Group, s.Cluster, api.AnnotationRemoveOrphans, token)
}

func tooMany(orphans, total int) bool {
	return orphans >= manyOrphans && orphans*100 > total*manyOrphansPercent
}

// tokenOf returns what identifies a set of orphans.
func tokenOf(all []orphan) string {
	var uids []string
	for _, o := range all {
		uids = append(uids, string(o.uid))
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

// boundClusters returns the logical clusters that have bound the APIExport of the cluster and accepted its claims: in these, a leaf that is not listed does not
// exist. In others it can exist, if the binding was deleted by mistake. kcp shows the owner of an APIExport its bindings without a claim
// (kcp: pkg/virtual/apiexport/controllers/apireconciler).
func (s *syncer) boundClusters() map[string]bool {
	out := map[string]bool{}
	for _, b := range s.bound.List(kcpapi.APIBinding.GVR()) {
		if b.GetDeletionTimestamp() == nil && api.ClaimsApplied(b.Unstructured) {
			out[watch.KeyOf(b.Unstructured).Cluster] = true
		}
	}
	return out
}

// claims is the resource of PersistentVolumeClaims.
var claims = schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumeclaims"}

// hasVolumes reports whether a namespace has PersistentVolumeClaims. Those that a StatefulSet has created are not deleted with it, as in
// Kubernetes, because they have its data. If the syncer may not read them, only a namespace that has had no StatefulSets has none.
func (s *syncer) hasVolumes(ctx context.Context, ns *unstructured.Unstructured) (bool, error) {
	client, err := s.below(claims, ns.GetName())
	if err != nil {
		return true, err
	}
	list, err := client.List(ctx, metav1.ListOptions{Limit: 1})
	switch {
	case apierrors.IsForbidden(err), apierrors.IsNotFound(err):
		_, had := ns.GetAnnotations()[hasKey(schema.GroupResource{Group: "apps", Resource: "statefulsets"})]
		return had, nil
	case err != nil:
		return true, fmt.Errorf("list the PersistentVolumeClaims in namespace %s of cluster %s: %w", ns.GetName(), s.Cluster, err)
	}
	return len(list.Items) > 0, nil
}
