package facts

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/desired/render"
)

// RulesToApply returns what a ServiceAccount must be allowed to do for runs that apply objects in a namespace that
// exists: in the namespace, and in the whole cluster. The checks of up require the same.
func RulesToApply(namespace string, objects []render.Object) (inNamespace, inCluster []rbacv1.PolicyRule) {
	for _, p := range toApply(namespace, objects, true) {
		rules := &inCluster
		if p.namespace != "" {
			rules = &inNamespace
		}
		verbs := []string{p.verb}
		if p.group == kind.ClusterRole.Group && p.verb == "patch" {
			// Kubernetes lets a user write a role only with these, or with all that the role grants.
			verbs = append(verbs, "escalate", "bind")
		}
		*rules = allow(*rules, p, verbs)
	}
	own := rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{kind.Namespace.Resource}, ResourceNames: []string{namespace},
		Verbs: []string{"get"},
	}
	return append(inNamespace, own), inCluster
}

// RulesToBackUp returns the permissions that a ServiceAccount needs in the namespace of a setup to take backups: it
// reads the record, the history and the client certificates of etcds, and connects to the pods of etcds.
func RulesToBackUp(namespace string) []rbacv1.PolicyRule {
	s := permissionSet{namespace: namespace}
	s.add(kind.Secret.GVR().GroupResource(), "get", "list")
	s.add(kind.ConfigMap.GVR().GroupResource(), "get")
	for _, r := range []schema.GroupResource{
		kind.StatefulSet.GVR().GroupResource(), kind.Deployment.GVR().GroupResource(), kind.ReplicaSets.GroupResource(),
		kind.PersistentVolumeClaim.GVR().GroupResource(),
	} {
		s.add(r, "list", "watch") // through them, pods are found
	}
	s.add(kind.Pods.GroupResource(), "get", "list", "watch")
	s.addSub(kind.Pods.GroupResource(), "portforward", "create")
	var out []rbacv1.PolicyRule
	for _, p := range s.all {
		out = allow(out, p, []string{p.verb})
	}
	return out
}

// allow adds verbs for the resource of a permission to the rule for this resource.
func allow(rules []rbacv1.PolicyRule, p permission, verbs []string) []rbacv1.PolicyRule {
	resource := p.resource
	if p.subresource != "" {
		resource += "/" + p.subresource
	}
	at := slices.IndexFunc(rules, func(r rbacv1.PolicyRule) bool {
		return r.APIGroups[0] == p.group && r.Resources[0] == resource
	})
	if at < 0 {
		at = len(rules)
		rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{p.group}, Resources: []string{resource}})
	}
	for _, v := range verbs {
		if !slices.Contains(rules[at].Verbs, v) {
			rules[at].Verbs = append(rules[at].Verbs, v)
		}
	}
	return rules
}
