// Package guard generates the admission policies that protect objects of exported built-in types, such as Deployments.
// They are objects of the workspace with the APIExport, where kcp evaluates them for all workspaces that bind it.
//
// kcp accepts strategic merge patches for built-in types, but replaces items of lists instead of merging them: it
// publishes the merge keys of lists without their merge strategies (kubernetes:
// staging/src/k8s.io/apiextensions-apiserver/pkg/apiserver/schema/kubeopenapi.go). A second kubectl apply of a
// Deployment with two containers leaves one. Server-side apply merges items correctly. The policy refuses patches of
// kubectl that change such a list. It recognizes kubectl by its field managers. A client with another field manager can
// still send such a patch.
package guard

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
)

// The names of the policies. Their bindings have the same names.
const (
	PolicyPatches  = "patches." + api.Group
	PolicyLabel    = "cluster-label." + api.Group
	PolicySelector = "selectors." + api.Group
	PolicyReplicas = "replicas." + api.Group
)

// patchingManagers are the field managers of kubectl commands that send strategic merge patches (kubectl:
// pkg/cmd/apply, set, edit, patch, rollout).
func patchingManagers() []string {
	return []string{"kubectl-client-side-apply", "kubectl-set", "kubectl-edit", "kubectl-patch", "kubectl-rollout"}
}

// builtInGroups are the groups for which kcp accepts strategic merge patches: the groups of client-go's scheme
// (kubernetes: staging/src/k8s.io/apiextensions-apiserver/pkg/apiserver/customresource_handler.go).
func builtInGroups() []string {
	return []string{
		"", "admissionregistration.k8s.io", "apps", "authentication.k8s.io", "authorization.k8s.io",
		"autoscaling", "batch",
		"certificates.k8s.io", "coordination.k8s.io", "discovery.k8s.io", "events.k8s.io", "extensions",
		"flowcontrol.apiserver.k8s.io",
		"internal.apiserver.k8s.io", "lifecycle.k8s.io", "networking.k8s.io", "node.k8s.io", "policy",
		"rbac.authorization.k8s.io", "resource.k8s.io",
		"scheduling.k8s.io", "storage.k8s.io", "storagemigration.k8s.io",
	}
}

// IsBuiltIn reports whether a group is one of Kubernetes itself.
func IsBuiltIn(group string) bool { return slices.Contains(builtInGroups(), group) }

// policy is a row of the table of policies.
type policy struct {
	name       string
	applies    func(schema.GroupResource) bool
	operations []any
	status     bool // also the subresource status
	validation []validation
}

type validation struct{ expression, message string }

func policies() []policy {
	apps := func(names ...string) func(schema.GroupResource) bool {
		return func(gr schema.GroupResource) bool { return gr.Group == "apps" && slices.Contains(names, gr.Resource) }
	}
	return []policy{
		{
			name: PolicyPatches, operations: []any{"UPDATE"}, status: true,
			applies: func(gr schema.GroupResource) bool { return IsBuiltIn(gr.Group) },
			validation: []validation{{patches(),
				"kcp drops items of lists in strategic merge patches, and this can be one: use kubectl apply " +
					"--server-side, or kubectl patch with --type=merge or --type=json and another --field-manager"}},
		},
		{
			name: PolicyLabel, operations: []any{"UPDATE"},
			applies: func(schema.GroupResource) bool { return true },
			validation: []validation{{
				unchanged(api.LabelCluster),
				"the label " + api.LabelCluster +
					" cannot be changed: delete the object and create it with the other label",
			}},
		},
		{
			name: PolicySelector, operations: []any{"CREATE", "UPDATE"},
			applies: apps("deployments", "replicasets", "statefulsets", "daemonsets"),
			validation: []validation{
				{matches, "spec.selector does not match the labels of spec.template"},
				{"oldObject == null || object.spec.selector == oldObject.spec.selector",
					"spec.selector cannot be changed"},
			},
		},
		{
			name: PolicyReplicas, operations: []any{"CREATE", "UPDATE"},
			applies: apps("deployments", "replicasets", "statefulsets"),
			validation: []validation{{"!has(object.spec.replicas) || object.spec.replicas >= 0",
				"spec.replicas must not be negative"}},
		},
	}
}

// patches is true for requests that are not patches of kubectl, and for those that change no list whose items kcp
// could drop, such as kubectl rollout restart. A request does not say which type its patch has.
func patches() string {
	return "!has(request.options.fieldManager) || !(request.options.fieldManager in ['" +
		strings.Join(patchingManagers(), "','") + "']) || (" + same("metadata", "finalizers") + " && " +
		same("metadata", "ownerReferences") + " && " + same("status") +
		" && (" + same("spec") + " || " + sameLists() + "))"
}

// merged are the parts of a spec with all lists that strategic merge patches merge, in kinds that have one of them
// (kubernetes: the markers +patchStrategy of the types).
func merged() [][]string {
	return [][]string{{"spec", "template", "spec"}, {"spec", "jobTemplate"}, {"spec", "ports"},
		{"spec", "scaleTargetRef"}}
}

// sameLists is true if an object has a part of merged, and all of them are as they were.
func sameLists() string {
	var has, all []string
	for _, path := range merged() {
		has = append(has, field("object", path...)+".hasValue()")
		all = append(all, same(path...))
	}
	return "((" + strings.Join(has, " || ") + ") && " + strings.Join(all, " && ") + ")"
}

func field(object string, path ...string) string { return object + ".?" + strings.Join(path, ".?") }

// same is true if a field has the same value as before, or still none.
func same(path ...string) string {
	return field("object", path...) + " == " + field("oldObject", path...)
}

// unchanged is true if a label, once it is set, keeps its value.
func unchanged(label string) string {
	had := fmt.Sprintf("has(oldObject.metadata.labels) && '%s' in oldObject.metadata.labels", label)
	has := fmt.Sprintf("has(object.metadata.labels) && '%s' in object.metadata.labels", label)
	return fmt.Sprintf("!(%s) || (%s && object.metadata.labels['%s'] == oldObject.metadata.labels['%s'])", had,
		has, label, label)
}

// matches is true if the template has the labels of the selector. API servers also evaluate matchExpressions.
const matches = "!has(object.spec.selector.matchLabels) || object.spec.selector.matchLabels.all(k, " +
	"has(object.spec.template.metadata) && has(object.spec.template.metadata.labels) && k in object.spec.template.metadata.labels && " +
	"object.spec.template.metadata.labels[k] == object.spec.selector.matchLabels[k])"

var groupVersion = schema.GroupVersion{Group: "admissionregistration.k8s.io", Version: "v1"}

// Policies returns the resource of policies.
func Policies() schema.GroupVersionResource {
	return groupVersion.WithResource("validatingadmissionpolicies")
}

// Bindings returns the resource of bindings.
func Bindings() schema.GroupVersionResource {
	return groupVersion.WithResource("validatingadmissionpolicybindings")
}

// Resource returns the resource of a policy or binding.
func Resource(o *unstructured.Unstructured) schema.GroupVersionResource {
	if o.GetKind() == kindBinding {
		return Bindings()
	}
	return Policies()
}

const (
	kindPolicy  = "ValidatingAdmissionPolicy"
	kindBinding = "ValidatingAdmissionPolicyBinding"
)

// Objects returns the policies for the exported resources, and their bindings, for the workspace of the APIExport.
// Policies without resources are left out.
func Objects(exported []schema.GroupResource) []*unstructured.Unstructured {
	var all []*unstructured.Unstructured
	for _, p := range policies() {
		all = append(all, p.objects(exported)...)
	}
	return all
}

// objects returns a policy and its binding, or nothing if it has no resources.
func (p policy) objects(exported []schema.GroupResource) []*unstructured.Unstructured {
	if rules := p.rules(exported); len(rules) > 0 {
		return []*unstructured.Unstructured{p.object(rules), p.binding()}
	}
	return nil
}

// rules returns a rule for each group, sorted.
func (p policy) rules(exported []schema.GroupResource) []any {
	resources := map[string][]string{}
	var groups []string
	for _, gr := range exported {
		if !p.applies(gr) {
			continue
		}
		if resources[gr.Group] == nil {
			groups = append(groups, gr.Group)
		}
		resources[gr.Group] = append(resources[gr.Group], gr.Resource)
		if p.status {
			resources[gr.Group] = append(resources[gr.Group], gr.Resource+"/status")
		}
	}
	slices.Sort(groups)
	var rules []any
	for _, group := range groups {
		slices.Sort(resources[group])
		names := []any{}
		for _, name := range slices.Compact(resources[group]) {
			names = append(names, name)
		}
		rules = append(rules, map[string]any{
			"apiGroups": []any{group}, "apiVersions": []any{"*"}, "operations": p.operations, "resources": names,
		})
	}
	return rules
}

func (p policy) object(rules []any) *unstructured.Unstructured {
	var validations []any
	for _, v := range p.validation {
		validations = append(validations, map[string]any{"expression": v.expression, "message": v.message})
	}
	return newObject(kindPolicy, p.name, map[string]any{
		"failurePolicy":    "Fail",
		"matchConstraints": map[string]any{"resourceRules": rules},
		"validations":      validations,
	})
}

func (p policy) binding() *unstructured.Unstructured {
	return newObject(kindBinding, p.name, map[string]any{
		"policyName": p.name, "validationActions": []any{"Deny"},
	})
}

func newObject(kind, name string, spec map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetGroupVersionKind(groupVersion.WithKind(kind))
	u.SetName(name)
	return u
}
