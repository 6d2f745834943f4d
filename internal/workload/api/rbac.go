package api

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// DefaultAPIs are the APIs that are published if no others are specified, as RESOURCE.GROUP.
func DefaultAPIs() []string {
	return []string{
		"deployments.apps", "statefulsets.apps", "services", "persistentvolumeclaims", "ingresses.networking.k8s.io", "jobs.batch", "cronjobs.batch",
	}
}

// ServedByKCP are the namespaced APIs that kcp serves itself in every workspace, so that they cannot be published (kcp:
// pkg/virtual/apiexport/schemas/builtin/builtin.go).
func ServedByKCP() []schema.GroupResource {
	return append(dependencyResources(),
		schema.GroupResource{Resource: "namespaces"}, schema.GroupResource{Resource: "events"}, schema.GroupResource{Resource: "resourcequotas"},
		schema.GroupResource{Group: rbacv1.GroupName, Resource: "roles"}, schema.GroupResource{Group: rbacv1.GroupName, Resource: "rolebindings"},
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

// ControllerRules are what the controller needs in the compute workspace. Objects of users are not in it: the content of the APIExports
// gives access to those of the published APIs, in all workspaces that bind them.
func ControllerRules() []rbacv1.PolicyRule {
	rule := func(group string, verbs []string, resources ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: verbs}
	}
	return []rbacv1.PolicyRule{
		{APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions"}, ResourceNames: []string{"clusters." + Group}, Verbs: []string{"get"}},
		rule(Group, slices.Concat(readVerbs, []string{"patch"}), "clusters"), // its finalizer
		rule(Group, []string{"patch"}, "clusters/status"),
		rule("", readVerbs, "secrets"),
		rule("coordination.k8s.io", allVerbs, "leases"),
		rule("apis.kcp.io", slices.Concat(readVerbs, []string{"create", "delete"}), "apiresourceschemas"),
		// bind: who writes a WorkspaceType needs it for its default bindings (kcp: pkg/admission/workspacetype).
		rule("apis.kcp.io", slices.Concat(allVerbs, []string{"bind"}), "apiexports"),
		rule("apis.kcp.io", readVerbs, "apiexportendpointslices"),
		rule("apis.kcp.io", allVerbs, "apiexports/content"),
		rule("tenancy.kcp.io", applyVerbs, "workspacetypes"),
		rule("admissionregistration.k8s.io", applyVerbs, "validatingadmissionpolicies", "validatingadmissionpolicybindings"),
	}
}

// SyncerRules are what a syncer needs in its physical cluster, for the published APIs.
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
		// The APIs of the cluster, with their schemas.
		rbacv1.PolicyRule{APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions"}, Verbs: readVerbs},
		rbacv1.PolicyRule{NonResourceURLs: []string{"/readyz", "/version", "/openapi/*", "/api", "/api/*", "/apis", "/apis/*"}, Verbs: []string{"get"}},
	)
}
