package splitter

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kcpctl/kcpctl/internal/api/kinds"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
)

// SelectsNamespaces reports whether an object, such as a NetworkPolicy, selects namespaces.
func SelectsNamespaces(o *unstructured.Unstructured) bool {
	found := false
	EachPeer(o, func(peers []map[string]any) []map[string]any {
		found = found || slices.ContainsFunc(peers, selectsNamespaces)
		return peers
	})
	return found
}

func selectsNamespaces(peer map[string]any) bool { return object(peer, NamespaceSelector) != nil }

// NamespaceSelector is the field of a peer, and of a term of an affinity, that selects namespaces.
const NamespaceSelector = "namespaceSelector"

// EachPeer replaces the lists of peers of a NetworkPolicy, such as spec.ingress[].from. The object is changed.
func EachPeer(o *unstructured.Unstructured, replace func([]map[string]any) []map[string]any) {
	if kind, _ := kinds.OfObject(o); !kind.Guards {
		return
	}
	spec := object(o.Object, "spec")
	for rules, field := range map[string]string{"ingress": "from", "egress": "to"} {
		for _, rule := range objects(spec, rules) {
			peers := objects(rule, field)
			if len(peers) == 0 {
				continue // all
			}
			out := []any{}
			for _, p := range replace(peers) {
				out = append(out, p)
			}
			rule[field] = out
		}
	}
}

// WithNamespaces returns a root whose peers select namespaces of its workspace in a cluster, where these have other
// names and labels: all, or the ones that the selector of the root matches. What it selects besides them are namespaces
// of the cluster that belong to no workspace, such as kube-system. The argument has the labels of the namespaces of the
// workspace, by name. The root is not changed.
func WithNamespaces(root *unstructured.Unstructured, namespaces map[string]labels.Set) *unstructured.Unstructured {
	if !SelectsNamespaces(root) {
		return root
	}
	out := root.DeepCopy()
	EachPeer(out, func(peers []map[string]any) (all []map[string]any) {
		for _, peer := range peers {
			if fields, ok := peer[NamespaceSelector].(map[string]any); ok {
				for _, selector := range inCluster(fields, namespaces) {
					p := maps.Clone(peer)
					p[NamespaceSelector] = selector
					all = append(all, p)
				}
				continue
			}
			all = append(all, peer)
		}
		return all
	})
	return out
}

// inCluster returns the selectors in a cluster for a selector of a workspace: at least one, because a rule without
// peers is about all.
func inCluster(fields map[string]any, namespaces map[string]labels.Set) []any {
	selector := &metav1.LabelSelector{}
	if runtime.DefaultUnstructuredConverter.FromUnstructured(fields, selector) != nil {
		return []any{fields}
	}
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return []any{fields} // the cluster says what is wrong with it
	}
	var matched []any
	for _, name := range slices.Sorted(maps.Keys(namespaces)) {
		if s.Matches(labels.Merge(namespaces[name], labels.Set{corev1.LabelMetadataName: name})) {
			matched = append(matched, name)
		}
	}
	var out []any
	switch {
	case s.Empty():
		out = append(out, requirements(requirement(api.LabelNamespace, metav1.LabelSelectorOpExists)))
	case len(matched) > 0:
		out = append(out, requirements(requirement(api.LabelNamespace, metav1.LabelSelectorOpIn, matched...)))
	}
	named, others := namedIn(s, namespaces)
	if named && !others {
		if len(out) == 0 { // no namespace has an empty name
			out = append(out, requirements(requirement(api.LabelNamespace, metav1.LabelSelectorOpIn, "")))
		}
		return out
	}
	return append(out, ofCluster(fields, named, namespaces))
}

// namedIn reports whether a selector requires one of some names, and whether one of them is not of the workspace.
func namedIn(s labels.Selector, namespaces map[string]labels.Set) (named, others bool) {
	all, _ := s.Requirements()
	for _, r := range all {
		if r.Key() != corev1.LabelMetadataName || !slices.Contains(positive, string(r.Operator())) {
			continue
		}
		named = true
		for name := range r.Values() {
			_, has := namespaces[name]
			others = others || !has
		}
	}
	return named, others
}

// positive are the operators of requirements with the values that a label may have.
var positive = []string{"=", "==", "in"}

// ofCluster returns a selector of namespaces that belong to no workspace. One that names some selects none with the
// name of a namespace of the workspace.
func ofCluster(fields map[string]any, named bool, namespaces map[string]labels.Set) map[string]any {
	out := runtime.DeepCopyJSON(fields)
	more := []any{requirement(api.LabelSetup, metav1.LabelSelectorOpDoesNotExist)}
	if named {
		var names []any
		for _, name := range slices.Sorted(maps.Keys(namespaces)) {
			names = append(names, name)
		}
		if len(names) > 0 {
			more = append(more, requirement(corev1.LabelMetadataName, metav1.LabelSelectorOpNotIn, names...))
		}
	}
	has, _ := out["matchExpressions"].([]any)
	out["matchExpressions"] = slices.Concat(has, more)
	return out
}

func requirements(all ...any) map[string]any { return map[string]any{"matchExpressions": all} }

func requirement(key string, operator metav1.LabelSelectorOperator, values ...any) any {
	out := map[string]any{"key": key, "operator": string(operator)}
	if len(values) > 0 {
		out["values"] = values
	}
	return out
}
