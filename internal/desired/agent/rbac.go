package agent

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
)

// RulesInWorkspace returns the rules of an agent in the workspace of its APIExport. With these, agent v0.7.0 works: it
// lists APIExportEndpointSlices without a field selector, so they cannot be restricted by name (api-syncagent:
// cmd/api-syncagent/kcp.go, setupManagedKcpCluster).
func RulesInWorkspace(a *v1alpha1.Agent) []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		rule("core.kcp.io", "logicalclusters", "get").named("cluster"),
		rule("apis.kcp.io", "apiexportendpointslices", "get", "list", "watch").PolicyRule,
		rule("apis.kcp.io", "apiexports", "get", "list", "watch", "patch", "update").named(a.APIExport),
		rule("apis.kcp.io", "apiresourceschemas", "get", "list", "watch", "create").PolicyRule,
		rule("", "events", "get", "create", "patch", "update").PolicyRule,
		rule("apis.kcp.io", "apiexports/content", "get", "list", "watch", "create", "update", "patch",
			"delete").named(a.APIExport),
	}
}

// ServiceRules are the rules of an agent on its service cluster, by where they apply.
type ServiceRules struct {
	// Cluster are the rules of a ClusterRole.
	Cluster []rbacv1.PolicyRule
	// Namespaces are the rules of Roles, by namespace: the agent's own one and default.
	Namespaces map[string][]rbacv1.PolicyRule
}

// RulesInServiceCluster returns the rules of an agent on its service cluster, where it runs in a namespace. The agent
// reads Secrets of all namespaces, because its cache cannot be restricted, and writes them in its own namespace only:
// each of its Secrets obj-state-… has the last known state of an object (api-syncagent: internal/sync/state_store.go).
func RulesInServiceCluster(a *v1alpha1.Agent, namespace string) ServiceRules {
	cluster := ruleSet{}
	cluster.add(schema.GroupResource{Resource: "secrets"}, "get", "list", "watch")
	cluster.add(schema.GroupResource{Resource: "namespaces"}, "get", "list", "watch", "create")
	cluster.add(schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"},
		"get", "list", "watch")
	cluster.add(schema.GroupResource{Group: Group, Resource: Resource}, "get", "list", "watch")
	cluster.add(schema.GroupResource{Group: Group, Resource: Resource + "/status"}, "get", "update", "patch")
	for _, p := range a.PublishedResources {
		s := decode(p.Spec)
		if s.synchronized() {
			cluster.add(s.source(p.Plural), "get", "list", "watch", "create", "update", "patch", "delete")
		}
		for _, r := range s.Related {
			cluster.add(r.inService(), "get", "list", "watch")
			if r.Origin == originKcp { // its copy is here, and is deleted with the object or with the original
				cluster.add(r.inService(), "create", "update", "patch", "delete")
			}
		}
	}
	own := []rbacv1.PolicyRule{
		rule("coordination.k8s.io", "leases", "get", "list", "watch", "create", "update", "patch").PolicyRule,
		rule("", "events", "create", "patch").PolicyRule,
		rule("", "secrets", "create", "update").PolicyRule,
	}
	// Events about objects without a namespace, such as PublishedResources, are in default.
	byNamespace := map[string][]rbacv1.PolicyRule{
		metav1.NamespaceDefault: {rule("", "events", "create", "update", "patch").PolicyRule},
	}
	byNamespace[namespace] = append(own, byNamespace[namespace]...)
	return ServiceRules{Cluster: append(cluster.rules(), a.Permissions...), Namespaces: byNamespace}
}

// builtRule is a rule for one resource.
type builtRule struct{ rbacv1.PolicyRule }

func rule(group, resource string, verbs ...string) builtRule {
	return builtRule{rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}}
}

// named restricts a rule to the object with a name.
func (r builtRule) named(name string) rbacv1.PolicyRule {
	r.ResourceNames = []string{name}
	return r.PolicyRule
}

// ruleSet collects the verbs of each resource.
type ruleSet map[schema.GroupResource][]string

func (s ruleSet) add(r schema.GroupResource, verbs ...string) {
	for _, v := range verbs {
		if !slices.Contains(s[r], v) {
			s[r] = append(s[r], v)
		}
	}
}

// rules returns a rule for each resource, in order.
func (s ruleSet) rules() []rbacv1.PolicyRule {
	var resources []schema.GroupResource
	for r := range s {
		resources = append(resources, r)
	}
	slices.SortFunc(resources, func(a, b schema.GroupResource) int { return strings.Compare(a.String(), b.String()) })
	var out []rbacv1.PolicyRule
	for _, r := range resources {
		out = append(out, rule(r.Group, r.Resource, s[r]...).PolicyRule)
	}
	return out
}
