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

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	"github.com/kcpctl/kcpctl/internal/api/kinds"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

// manyOrphans is the brake: if more objects than this of a workspace are to be removed at once, none of the workspace
// is, and if there are more of the other workspaces together, none is. Such a number is more likely a mistake
// elsewhere, such as a restored backup of kcp (kcp issue 2041: a syncer deleted namespaces when it started).
const manyOrphans = 5

// tokenLength is the number of characters with which a user releases orphans.
const tokenLength = 8

// keepsData reports whether objects of a resource have data, or are what uses it: only a user decides that it is not
// needed. The objects in memory have no spec, so any StatefulSet may have volumes.
func keepsData(r schema.GroupVersionResource) bool {
	k, _ := kinds.OfResource(r.GroupResource())
	return k.Data != kinds.NoData
}

// verdict is what happens to orphans.
type verdict struct {
	// remove are the orphans whose time has ended, or that a user has released.
	remove map[orphan]bool
	// kept is why others are kept until a user releases them, and found what is removed later. Empty: there are none.
	kept, found string
}

// judge decides about orphans. They are kept until a user releases them if they have data, if the objects of their
// workspace are not visible, or if too many are to be removed at once: see brake. A user releases them with an
// annotation of the Cluster that names exactly these: others that come later are kept again. Namespaces are only
// orphans when nothing is in them. needed are the orphans that pods can need.
func (s *syncer) judge(found map[orphan]*unstructured.Unstructured, needed map[orphan]bool, release string) verdict {
	bound := s.boundClaims()
	out := verdict{remove: map[orphan]bool{}}
	var waiting, data, unbound []orphan
	due := map[string][]orphan{}
	for o, live := range found {
		over := s.sightings[o.uid].age(s.Now()) >= orphanGrace
		leaf, _ := parseLeaf(live.GetAnnotations()[annotationLeaf])
		switch {
		case s.released[o.uid]:
			out.remove[o] = true
		case o.GroupVersionResource == namespaces:
			if over || isEmptied(live) && s.sightings[o.uid].age(s.Now()) > 0 {
				out.remove[o] = true
			}
		case keepsData(o.GroupVersionResource):
			data = append(data, o)
		case !bound.accepted(leaf.Cluster, o.GroupResource(), s.identityOf(live, o.GroupResource())):
			unbound = append(unbound, o)
		case over && !needed[o]:
			due[leaf.Cluster] = append(due[leaf.Cluster], o)
		default:
			waiting = append(waiting, o)
		}
	}
	few, many := brake(due)
	held := slices.Concat(data, unbound, many)
	for _, o := range few {
		out.remove[o] = true
	}
	if token := tokenOf(slices.Concat(held, waiting)); len(held)+len(waiting) > 0 && release == token {
		for _, o := range slices.Concat(held, waiting) {
			s.released[o.uid], out.remove[o] = true, true
		}
		return out
	}
	if len(held) > 0 {
		out.kept = s.describe(held, waiting, len(data), len(unbound))
	} else if len(waiting) > 0 {
		out.found = fmt.Sprintf("%d objects in cluster %s have no object in kcp: they are removed after %s, "+
			"and what pods can need when these are gone, unless kcp has them again. %s",
			len(waiting), s.Cluster, orphanGrace, s.commands(waiting))
	}
	return out
}

// brake returns the orphans of workspaces that go, and those that are too many. One workspace does not hold what others
// have lost.
func brake(due map[string][]orphan) (few, many []orphan) {
	for _, all := range due {
		if len(all) > manyOrphans {
			many = append(many, all...)
		} else {
			few = append(few, all...)
		}
	}
	if len(few) > manyOrphans {
		return nil, append(many, few...)
	}
	return few, many
}

// describe is the message about orphans that are kept.
func (s *syncer) describe(held, waiting []orphan, data, unbound int) string {
	message := fmt.Sprintf("%d objects in cluster %s have no object in kcp", len(held)+len(waiting), s.Cluster)
	if data > 0 {
		message += fmt.Sprintf(", %d of them have data", data)
	}
	if unbound > 0 {
		message += fmt.Sprintf(", %d of them are in workspaces that do not exist or have no APIBinding to APIExport %s",
			unbound, api.ExportCluster(s.Cluster))
	}
	return message + ": they are not removed, because that may be a mistake. " +
		s.commands(slices.Concat(held, waiting))
}

// commands are those that list orphans, and that release them.
func (s *syncer) commands(all []orphan) string {
	return fmt.Sprintf("List them with kubectl get %s -A -l %s=%s in the cluster. "+
		"To remove them, annotate the Cluster in kcp: kubectl annotate --overwrite clusters.%s %s %s=%s",
		resourcesOf(all), api.LabelSetup, s.Setup, api.Group, s.Cluster, api.AnnotationRemoveOrphans, tokenOf(all))
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

// boundClaims are the claims that logical clusters have accepted, and that kcp has applied: identities by logical
// cluster and resource.
type boundClaims map[string]map[schema.GroupResource]string

// accepted reports whether a leaf of a resource that is not listed does not exist. If its logical cluster has not bound
// the APIExport, or if the resource has another identity than when the object was made, it can exist. An identity that
// is not known is any.
func (b boundClaims) accepted(cluster string, gr schema.GroupResource, identity string) bool {
	is, ok := b[cluster][gr]
	return ok && (identity == "" || identity == is)
}

// boundClaims returns the claims of the bindings to the APIExport of the cluster. kcp shows the owner of an APIExport
// its bindings without a claim (kcp: pkg/virtual/apiexport/controllers/apireconciler), and lists the claims that it has
// applied in their status (kcp: pkg/reconciler/apis/permissionclaimlabel).
func (s *syncer) boundClaims() boundClaims {
	out := boundClaims{}
	for _, b := range s.bound.List(kcpapi.APIBinding.GVR()) {
		if b.GetDeletionTimestamp() != nil || !api.ClaimsApplied(b.Unstructured) {
			continue
		}
		applied, _, _ := unstructured.NestedSlice(b.Object, "status", "appliedPermissionClaims")
		all := map[schema.GroupResource]string{}
		for _, item := range applied {
			claim, _ := item.(map[string]any)
			group, _ := claim["group"].(string)
			resource, _ := claim["resource"].(string)
			all[schema.GroupResource{Group: group, Resource: resource}], _ = claim["identityHash"].(string)
		}
		out[watch.KeyOf(b.Unstructured).Cluster] = all
	}
	return out
}

// claims is the resource of PersistentVolumeClaims.
var claims = schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumeclaims"}

// hasVolumes reports whether a namespace has PersistentVolumeClaims. Those that a StatefulSet has created are not
// deleted with it, as in Kubernetes, because they have its data. If the syncer may not read them, it assumes them in
// each namespace that has had StatefulSets.
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
		return true, fmt.Errorf("list the PersistentVolumeClaims in namespace %s of cluster %s: %w",
			ns.GetName(), s.Cluster, err)
	}
	return len(list.Items) > 0, nil
}
