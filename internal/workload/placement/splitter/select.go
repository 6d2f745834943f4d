package splitter

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/kcpctl/kcpctl/internal/api/kinds"
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
		if !slices.Contains([]selection.Operator{selection.Equals, selection.DoubleEquals, selection.In}, r.Operator()) {
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
