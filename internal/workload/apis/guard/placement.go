package guard

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
)

// PolicyPlacement is the name of the policy of Placement, and of its binding.
const PolicyPlacement = "placement." + api.Group

// User is who sends requests, as kcp sees it. It is the same for requests through virtual workspaces: these impersonate
// the user (kcp: pkg/virtual/apiexport/builder/build.go).
type User struct {
	Name string
	// Cluster is the logical cluster that has authenticated the user: the cluster of a service account, or of a
	// workspace that trusts an identity provider. Empty: kcp itself has, such as by a certificate. Names of users are
	// unique only together with it.
	Cluster string
}

// extraCluster is the extra field of users with their Cluster (kcp: pkg/authentication/authenticators.go).
const extraCluster = "authentication.kcp.io/cluster-name"

// UserOf reads the status of a SelfSubjectReview.
func UserOf(review *unstructured.Unstructured) User {
	name, _, _ := unstructured.NestedString(review.Object, "status", "userInfo", "username")
	clusters, _, _ := unstructured.NestedStringSlice(review.Object, "status", "userInfo", "extra", extraCluster)
	return User{Name: name, Cluster: strings.Join(clusters, ",")}
}

// administrators are the groups of the administrators of kcp, who can change the policy. No workspace can put a user
// into them.
func administrators() []string { return []string{"system:masters", "system:kcp:admin"} }

// Open returns the names of the clusters that every workspace may name in a label: those that are neither cordoned nor
// being removed, and select no workspaces.
func Open(clusters []*api.Cluster) (open []string) {
	for _, cl := range clusters {
		if cl.Spec.WorkspaceSelector == nil && !cl.Spec.Unschedulable && cl.DeletionTimestamp == nil {
			open = append(open, cl.Name)
		}
	}
	return open
}

// Placement returns the policy, and its binding, of who may give an object the label of a cluster: users for the open
// clusters, and the controller for all. The policies of a workspace cannot read Clusters, nor the path of the workspace
// of an object. So the controller writes the names of the clusters that all workspaces may use. Objects of other
// workspaces get to the others by scheduling. It returns nothing without APIs.
//
// A cluster that is not in the list yet, or does not exist, is refused as well, so that nothing is there before the
// cluster. The policy has no part in ConfigMaps, Secrets and ServiceAccounts: kcp looks for the policies of a resource
// in the workspace with the APIExport that it is bound to, and these three are not bound: theirs are in the workspace
// of the object (kcp: pkg/admission/validatingadmissionpolicy). The syncer of a cluster that does not select the
// workspace sees none of them nevertheless, because the workspace does not bind its APIExport.
func Placement(exported []schema.GroupResource, open []string, controller User) []*unstructured.Unstructured {
	p := policy{
		name: PolicyPlacement, operations: []any{"CREATE", "UPDATE"},
		applies: func(schema.GroupResource) bool { return true },
		validation: []validation{{
			placement(open, controller),
			"the label " + api.LabelCluster +
				" can only name a cluster that every workspace may use, and that is not cordoned: use the annotation " +
				api.AnnotationClusterSelector + " instead",
		}},
	}
	return p.objects(exported)
}

// placement is true for objects that may have the label that they have.
func placement(open []string, controller User) string {
	open = slices.Sorted(slices.Values(open))
	return strings.Join([]string{
		"!" + hasLabel("object"),
		"object.metadata.labels['" + api.LabelCluster + "'] in " + list(open),
		fmt.Sprintf("(oldObject != null && %[1]s && oldObject.metadata.labels['%[2]s'] == "+
			"object.metadata.labels['%[2]s'])",
			hasLabel("oldObject"), api.LabelCluster),
		"(" + controller.is() + ")",
		isAdministrator(),
	}, " || ")
}

// hasLabel is true for an object with the label of a cluster.
func hasLabel(object string) string {
	return fmt.Sprintf("(has(%[1]s.metadata.labels) && '%[2]s' in %[1]s.metadata.labels)", object, api.LabelCluster)
}

// isAdministrator is true for requests of administrators.
func isAdministrator() string {
	return "(has(request.userInfo.groups) && request.userInfo.groups.exists(g, g in " + list(administrators()) + "))"
}

// is is true for requests of a user.
func (u User) is() string {
	from := fmt.Sprintf("(has(request.userInfo.extra) && %[1]s in request.userInfo.extra)", quote(extraCluster))
	if u.Cluster == "" {
		return fmt.Sprintf("request.userInfo.username == %s && !%s", quote(u.Name), from)
	}
	return fmt.Sprintf("request.userInfo.username == %s && %s && request.userInfo.extra[%s] == %s",
		quote(u.Name), from, quote(extraCluster), list([]string{u.Cluster}))
}

// list returns a list in CEL.
func list(all []string) string {
	quoted := make([]string, 0, len(all))
	for _, s := range all {
		quoted = append(quoted, quote(s))
	}
	return "[" + strings.Join(quoted, ",") + "]"
}

// quote returns a string literal in CEL.
func quote(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`, "\n", `\n`, "\r", `\r`).Replace(s) + "'"
}
