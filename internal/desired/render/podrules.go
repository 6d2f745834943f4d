package render

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// podRules adds the policy with the rules for pods of workspaces on a physical cluster, if there are any. It has the
// same place for all modes of the syncer, so that it remains when the mode changes.
func (b *objects) podRules() {
	t := b.c.Physical.Tenancy
	if t == nil || t.Pods == nil {
		return
	}
	on, name := topology.OnPhysical(b.c.Name), b.c.PodPolicy()
	// Another setup can have registered the cluster under the same name.
	selector := map[string]string{api.LabelSetup: b.r.state.Installation.ID, api.LabelCluster: b.c.Name}
	b.addIn(on, podPolicyTemplate, inWorkspace{Name: name, Selector: selector, Validations: validations(t.Pods)})
	b.addIn(on, podPolicyBindingTemplate, inWorkspace{Name: name})
}

// validations returns the rules in CEL. An update of a pod that runs is not refused for what it has already. Kubernetes
// adds tolerations of the taints node.kubernetes.io to pods, and pods of DaemonSets select their node by affinity.
func validations(r *v1alpha1.PodRules) []dict {
	const created = "request.operation != 'CREATE' || "
	classes, keys := celList(r.PriorityClasses), celList(r.TolerationKeys)
	out := []dict{{
		"expression": created + "!has(object.spec.nodeName) || object.spec.nodeName == ''",
		"message":    "pods of workspaces must not have a nodeName, which passes by the scheduler",
	}, {
		"expression": created + "!has(object.spec.priorityClassName) || object.spec.priorityClassName == '' || " +
			"object.spec.priorityClassName in " + classes,
		"messageExpression": "'priorityClassName ' + object.spec.priorityClassName + ' is not permitted: " +
			"remove it, or ask the administrator to add it to tenancy.pods.priorityClasses'",
	}, {
		"expression": "(oldObject != null && object.spec.?tolerations == oldObject.spec.?tolerations) || " +
			"!has(object.spec.tolerations) || object.spec.tolerations.all(t, " +
			"has(t.key) && (t.key.startsWith('node.kubernetes.io/') || t.key in " + keys + "))",
		"message": "pods of workspaces may only tolerate taints with the keys " + keys +
			": remove other tolerations, or ask the administrator to add their keys to tenancy.pods.tolerationKeys",
	}}
	for _, key := range slices.Sorted(maps.Keys(r.NodeSelector)) {
		k, v := celString(key), celString(r.NodeSelector[key])
		out = append(out, dict{
			"expression": fmt.Sprintf("%shas(object.spec.nodeSelector) && %[2]s in object.spec.nodeSelector && "+
				"object.spec.nodeSelector[%[2]s] == %s", created, k, v),
			"message": fmt.Sprintf("pods of workspaces must have the nodeSelector %s=%s", key, r.NodeSelector[key]),
		})
	}
	return out
}

// celList returns a list in CEL.
func celList(all []string) string {
	quoted := make([]string, 0, len(all))
	for _, s := range all {
		quoted = append(quoted, celString(s))
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// celString returns a string in CEL. Names, and keys and values of labels, have no characters to escape.
func celString(s string) string { return "'" + s + "'" }
