package workloads

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// DefaultAPIs are the APIs that are published if no others are specified, as RESOURCE.GROUP.
func DefaultAPIs() []string {
	return []string{
		"deployments.apps", "statefulsets.apps", "services", "persistentvolumeclaims", "ingresses.networking.k8s.io",
		"jobs.batch", "cronjobs.batch",
		"networkpolicies.networking.k8s.io", "poddisruptionbudgets.policy", "horizontalpodautoscalers.autoscaling",
	}
}

// ServedByKCP are the namespaced APIs that kcp serves itself in every workspace, so that they cannot be published (kcp:
// pkg/virtual/apiexport/schemas/builtin/builtin.go).
func ServedByKCP() []schema.GroupResource {
	return append(dependencyResources(),
		schema.GroupResource{Resource: "namespaces"}, schema.GroupResource{Resource: "events"},
		schema.GroupResource{Resource: "resourcequotas"},
		schema.GroupResource{Group: rbacv1.GroupName, Resource: "roles"},
		schema.GroupResource{Group: rbacv1.GroupName, Resource: "rolebindings"},
		schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"},
	)
}

func dependencyResources() []schema.GroupResource {
	var out []schema.GroupResource
	for _, r := range Dependencies() {
		out = append(out, r.GroupResource())
	}
	return out
}

// Verbs of rules.
var (
	readVerbs  = []string{"get", "list", "watch"}
	applyVerbs = []string{"get", "create", "update", "patch"}
	allVerbs   = []string{"get", "list", "watch", "create", "update", "patch", "delete"}
)

// ControllerRules returns the rules that the controller needs in the compute workspace. Objects of users are not in it:
// the content of the APIExports gives access to objects of the published APIs, in all workspaces that bind them.
func ControllerRules() []rbacv1.PolicyRule {
	rule := func(group string, verbs []string, resources ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: verbs}
	}
	return []rbacv1.PolicyRule{
		{APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions"},
			ResourceNames: []string{"clusters." + Group}, Verbs: []string{"get"}},
		rule(Group, slices.Concat(readVerbs, []string{"patch"}), "clusters"), // its finalizer
		rule(Group, []string{"patch"}, "clusters/status"),
		rule("", readVerbs, "secrets"),
		// The APIs of the clusters. It writes the APIs of clusters in push mode.
		rule("", slices.Concat(readVerbs, []string{"create", "patch"}), "configmaps"),
		rule("coordination.k8s.io", allVerbs, "leases"),
		rule("apis.kcp.io", slices.Concat(readVerbs, []string{"create", "delete"}), "apiresourceschemas"),
		// bind: who writes a WorkspaceType needs it for its default bindings (kcp: pkg/admission/workspacetype).
		rule("apis.kcp.io", slices.Concat(allVerbs, []string{"bind"}), "apiexports"),
		rule("apis.kcp.io", readVerbs, "apiexportendpointslices"),
		rule("apis.kcp.io", allVerbs, "apiexports/content"),
		rule("tenancy.kcp.io", applyVerbs, "workspacetypes"),
		rule("admissionregistration.k8s.io", slices.Concat(readVerbs, []string{"create", "update", "patch"}),
			"validatingadmissionpolicies", "validatingadmissionpolicybindings"),
	}
}

// UserRules returns the rules that users need in the compute workspace to create workspaces of a type: to use the type
// (kcp: pkg/admission/workspacetypeexists), and to bind the APIExport, because kcp creates the binding on behalf of the
// owner of the workspace (kcp: pkg/reconciler/tenancy/initialization, pkg/admission/apibinding). Without bind, the
// workspace remains Initializing.
func UserRules(workspaceType string) []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{"tenancy.kcp.io"}, Resources: []string{"workspacetypes"},
			ResourceNames: []string{workspaceType}, Verbs: []string{"use"}},
		{APIGroups: []string{"apis.kcp.io"}, Resources: []string{"apiexports"},
			ResourceNames: []string{ExportWorkloads}, Verbs: []string{"bind"}},
	}
}

// SyncerRulesInWorkspace returns the rules that the syncer of a cluster needs in the compute workspace, for the APIs to
// publish. It reports the state of the cluster with its Lease, and the served versions of each API with a ConfigMap.
// The controller writes the status of the Cluster from these. Objects of users are not in the workspace: the content of
// the cluster's APIExport gives access to the objects that are scheduled to the cluster.
func SyncerRulesInWorkspace(cluster string, apis []schema.GroupResource) []rbacv1.PolicyRule {
	named := func(group, resource, name string, verbs []string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource},
			ResourceNames: []string{name}, Verbs: verbs}
	}
	reports := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"},
		Verbs: []string{"get", "create", "patch"}}
	for _, gr := range apis {
		reports.ResourceNames = append(reports.ResourceNames, ConfigMapCluster(cluster, gr))
	}
	return []rbacv1.PolicyRule{
		named(Group, "clusters", cluster, readVerbs),
		named("coordination.k8s.io", "leases", LeaseCluster(cluster), []string{"get", "create", "patch"}),
		named("apis.kcp.io", "apiexportendpointslices", ExportCluster(cluster), readVerbs),
		named("apis.kcp.io", "apiexports/content", ExportCluster(cluster),
			[]string{"get", "list", "watch", "update", "patch"}),
		reports,
	}
}

// SyncerRules returns the rules that a syncer needs in its physical cluster, for the published APIs.
func SyncerRules(apis []schema.GroupResource) []rbacv1.PolicyRule {
	var rules []rbacv1.PolicyRule
	for _, gr := range slices.Concat(apis, dependencyResources(), []schema.GroupResource{{Resource: "namespaces"}}) {
		i := slices.IndexFunc(rules, func(r rbacv1.PolicyRule) bool { return r.APIGroups[0] == gr.Group })
		if i < 0 {
			i, rules = len(rules), append(rules, rbacv1.PolicyRule{APIGroups: []string{gr.Group}, Verbs: allVerbs})
		}
		rules[i].Resources = append(rules[i].Resources, gr.Resource)
	}
	return append(rules,
		// The capacity of the cluster.
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes", "pods"}, Verbs: readVerbs},
		// Volumes that StatefulSets have created: a namespace with some is not removed.
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"persistentvolumeclaims"}, Verbs: readVerbs},
		// What confines the objects of users in a namespace.
		rbacv1.PolicyRule{APIGroups: []string{""},
			Resources: []string{"resourcequotas", "limitranges"}, Verbs: allVerbs},
		rbacv1.PolicyRule{APIGroups: []string{"networking.k8s.io"},
			Resources: []string{"networkpolicies"}, Verbs: allVerbs},
		// The APIs of the cluster, with their schemas.
		rbacv1.PolicyRule{APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions"},
			Verbs: readVerbs},
		rbacv1.PolicyRule{NonResourceURLs: []string{"/readyz", "/version", "/openapi/*", "/api", "/api/*", "/apis",
			"/apis/*"}, Verbs: []string{"get"}},
	)
}
