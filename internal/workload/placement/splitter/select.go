package splitter

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/kcpctl/kcpctl/internal/api/kinds"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
)

// Selects reports whether an object, such as a Service or a NetworkPolicy, selects the pods of a workload. A Service
// without a selector selects none.
func Selects(o, workload *unstructured.Unstructured) bool {
	kind, _ := kinds.OfObject(o)
	s, ok := selectorOf(o, kind)
	pods, known := podLabels(workload)
	return ok && known && s.Matches(pods)
}

// Awaits reports whether the pods of a workload wait for an object that has to be in a cluster before them, see
// kinds.IsFirst: the ServiceAccount that they use, and what can restrict their connections. That is each object that
// guards connections, unless its selector selects other pods only.
func Awaits(workload *unstructured.Unstructured, ref Ref, o *unstructured.Unstructured) bool {
	kind, _ := kinds.OfResource(ref.GroupResource)
	if !kind.Guards {
		return slices.ContainsFunc(Dependencies(workload), func(d Dependency) bool { return d.Ref == ref })
	}
	s, valid := selectorOf(o, kind)
	pods, known := podLabels(workload)
	return !valid || !known || s.Matches(pods)
}

// podLabels returns the labels of the pods of a workload, or false if its kind is not known to have pods.
func podLabels(u *unstructured.Unstructured) (labels.Set, bool) {
	template, ok := kinds.PodTemplate(u)
	set := labels.Set{}
	for key, value := range object(object(template, "metadata"), "labels") {
		if text, ok := value.(string); ok {
			set[key] = text
		}
	}
	return set, ok
}

// selectorOf returns the selector of an object over pods, or false if it selects none, or is not valid.
func selectorOf(o *unstructured.Unstructured, kind kinds.Kind) (labels.Selector, bool) {
	at := o.Object
	last := len(kind.SelectorPath) - 1
	if last < 0 {
		return nil, false
	}
	for _, field := range kind.SelectorPath[:last] {
		at = object(at, field)
	}
	fields, set := at[kind.SelectorPath[last]].(map[string]any)
	switch {
	case kind.Selects == kinds.Labels:
		all := labels.Set{}
		for key, value := range fields {
			text, ok := value.(string)
			if !ok {
				return nil, false
			}
			all[key] = text
		}
		return labels.SelectorFromSet(all), len(all) > 0
	case !set:
		return labels.Everything(), kind.Selects == kinds.SelectorOrAll
	}
	selector := &metav1.LabelSelector{}
	if runtime.DefaultUnstructuredConverter.FromUnstructured(fields, selector) != nil {
		return nil, false
	}
	s, err := metav1.LabelSelectorAsSelector(selector)
	return s, err == nil
}

// index finds the workloads whose pods an object selects, without a look at all of them for each object.
type index struct {
	// pods are the labels of the pods of workloads. Workloads of kinds that are not known are not in it: they are
	// unknown.
	pods    map[int]labels.Set
	unknown []int
	by      map[label][]int
	all     []int
}

type label struct{ key, value string }

func indexOf(workloads []Placed) *index {
	x := &index{pods: map[int]labels.Set{}, by: map[label][]int{}}
	for i, w := range workloads {
		if CanFollow(w.GroupResource) {
			continue // it has no pods
		}
		x.all = append(x.all, i)
		pods, known := podLabels(w.Object)
		if !known {
			x.unknown = append(x.unknown, i)
			continue
		}
		x.pods[i] = pods
		for key, value := range pods {
			x.by[label{key, value}] = append(x.by[label{key, value}], i)
		}
	}
	return x
}

// selected returns the workloads that need an object which selects pods.
func (x *index) selected(o *unstructured.Unstructured, kind kinds.Kind) []int {
	s, ok := selectorOf(o, kind)
	if !ok {
		if kind.Selects == kinds.Labels || kind.Guards {
			return x.all // a user maintains the endpoints, or what it is for is not clear
		}
		return nil
	}
	var out []int
	for _, i := range x.candidates(s) {
		if pods, known := x.pods[i]; known && s.Matches(pods) {
			out = append(out, i)
		}
	}
	switch {
	case !kind.Guards:
		return out
	case len(out) == 0:
		return x.all
	}
	return append(out, x.unknown...) // any of their pods may be selected
}

// candidates returns the workloads with one of the labels that a selector requires: they include all that it matches.
func (x *index) candidates(s labels.Selector) []int {
	requirements, _ := s.Requirements()
	for _, r := range requirements {
		if !isPositive(r) {
			continue
		}
		var out []int
		for value := range r.Values() {
			out = append(out, x.by[label{r.Key(), value}]...)
		}
		return out
	}
	return x.all
}

// SelectsNamespaces reports whether an object, such as a NetworkPolicy, selects namespaces.
func SelectsNamespaces(o *unstructured.Unstructured) bool {
	found := false
	EachPeer(o, func(peers []map[string]any) []map[string]any {
		found = found || slices.ContainsFunc(peers,
			func(peer map[string]any) bool { return object(peer, NamespaceSelector) != nil })
		return peers
	})
	return found
}

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
		if r.Key() != corev1.LabelMetadataName || !isPositive(r) {
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

// isPositive reports whether a requirement has the values that a label may have.
func isPositive(r labels.Requirement) bool {
	return slices.Contains([]selection.Operator{selection.Equals, selection.DoubleEquals, selection.In}, r.Operator())
}

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
