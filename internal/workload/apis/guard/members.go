package guard

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
)

// PolicyMembers is the name of the policy of Members, and of its binding.
const PolicyMembers = "members." + api.Group

// extraWarrant is the extra field of users in requests through the virtual workspace of an APIExport: the right with
// which it forwards them (kcp: pkg/virtual/apiexport/builder/build.go).
const extraWarrant = "authorization.kcp.io/warrant"

// Members returns the policy, and its binding, that limits how the syncer of a cluster changes objects with the label
// of the cluster. A syncer has the verbs update and patch for whole objects, because it writes their finalizers and an
// annotation. Others with its credential must not change anything else: the controller gives a cluster what the
// workloads there name, such as Secrets, and counts their replicas. Syncers are all users who come through the virtual
// workspace of an APIExport, besides the controller. As with Placement, ConfigMaps, Secrets and ServiceAccounts are not
// covered: a cluster has copies of these, from which nothing follows. It returns nothing without APIs.
func Members(exported []schema.GroupResource, controller User) []*unstructured.Unstructured {
	p := policy{
		name: PolicyMembers, operations: []any{"UPDATE"},
		applies: func(schema.GroupResource) bool { return true },
		validation: []validation{{members(controller), "a syncer changes only the status of an object, its finalizer " +
			api.FinalizerSyncer + " and its annotation " + api.AnnotationSyncError}},
	}
	return p.objects(exported)
}

// members is true for requests of others, and for those that leave an object with the label as it is, apart from what
// syncers and kcp itself write.
func members(controller User) string {
	const ofKCP = "k.contains('kcp.io/')"
	labels, annotations := func(of string) string { return field(of, "metadata", "labels") + ".orValue({})" },
		func(of string) string { return field(of, "metadata", "annotations") + ".orValue({})" }
	finalizers := func(of string) string {
		return field(of, "metadata", "finalizers") + ".orValue([]).filter(f, f != " + quote(api.FinalizerSyncer) + ")"
	}
	unchanged := []string{
		sameKeys("object", "oldObject", "k in ['metadata','status']"),
		sameKeys(labels("object"), labels("oldObject"), ofKCP),
		sameKeys(annotations("object"), annotations("oldObject"), ofKCP+" || k == "+quote(api.AnnotationSyncError)),
		same("metadata", "ownerReferences"),
		finalizers("object") + " == " + finalizers("oldObject"),
	}
	return strings.Join([]string{
		fmt.Sprintf("!(has(request.userInfo.extra) && %s in request.userInfo.extra)", quote(extraWarrant)),
		"(" + controller.is() + ")",
		isAdministrator(),
		"!" + hasLabel("oldObject"),
		"(" + strings.Join(unchanged, " && ") + ")",
	}, " || ")
}

// sameKeys is true if two maps have the same values, except for some keys.
func sameKeys(a, b, except string) string {
	contained := func(a, b string) string {
		return fmt.Sprintf("%[1]s.all(k, %[3]s || (k in %[2]s && %[2]s[k] == %[1]s[k]))", a, b, except)
	}
	return contained(a, b) + " && " + contained(b, a)
}
