// Package kinds has one table of the known kinds of objects: how they are spread over clusters, where their pods are
// described, what they protect, and how their status is computed. A kind that is not in the table is only handled as
// its user says.
//
// All functions are pure. Maps and slices that they return are shared: callers do not change them.
package kinds

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Spread is where objects of a kind are, if their users do not say otherwise.
type Spread string

const (
	// Divide divides the replicas over clusters.
	Divide Spread = "Divide"
	// Duplicate puts the whole object on each cluster.
	Duplicate Spread = "Duplicate"
	// Single puts it on one cluster.
	Single Spread = "Single"
	// Follow puts it where the workloads are that need it, or that it protects or scales.
	Follow Spread = "Follow"
)

// Data is whether objects have data in their cluster. Such objects do not move to another one.
type Data int

const (
	// NoData means that the object can be made again elsewhere.
	NoData Data = iota
	// AlwaysData means that the object is its data.
	AlwaysData
	// TemplateData means that the object has data if it has spec.volumeClaimTemplates.
	TemplateData
)

// Selection is how a kind selects pods.
type Selection int

const (
	// NoSelection means that the kind does not select pods.
	NoSelection Selection = iota
	// Labels is a map of labels. An empty one selects no pods: a user maintains the endpoints, so all workloads need
	// it.
	Labels
	// Selector is a label selector. An empty one selects all pods, and a missing one none.
	Selector
	// SelectorOrAll is a label selector. An empty one and a missing one select all pods.
	SelectorOrAll
)

// Operation computes a field of the status of a root from the values of its leaves.
type Operation int

const (
	// Sum adds numbers.
	Sum Operation = iota
	// Earliest and Latest choose a time.
	Earliest
	Latest
	// Union has the items of all lists, once.
	Union
	// Same is the value that all leaves have, or nothing.
	Same
)

// Field is a field of the status.
type Field struct {
	// Path are the fields, separated by dots.
	Path string
	Operation
}

// Divided is a field of a spec with a number of pods.
type Divided struct {
	Field string
	// Each means that each cluster gets at least one, unless the number is zero: the sum can be larger. Otherwise the
	// part of a cluster can be zero, and the sum is the number.
	Each bool
}

// Kind is a row of the table.
type Kind struct {
	schema.GroupKind
	Resource string
	Spread   Spread
	// Divisible means that a user can divide objects which are not divided by default.
	Divisible bool
	// Template is the path of the pod template. Nil: the kind has no pods. Empty: it is the object itself.
	Template []string
	// Selects is how the kind selects pods, and SelectorPath where.
	Selects      Selection
	SelectorPath []string
	// Guards means that the object restricts connections: a namespace without pods that it selects also has it, and it
	// is in a cluster before the pods are.
	Guards bool
	// Divided are the fields of the spec with a number of pods in all clusters, if they have a number and not a
	// percentage. It is divided as the replicas of the workload are.
	Divided []Divided
	// TargetPath is the path of a reference to the workload that the object scales.
	TargetPath []string
	// Status are the fields that are computed. Others are left out, because they are about one cluster. The conditions
	// and observedGeneration are computed for all kinds. Nil: the status is copied from the leaf, if there is one.
	Status []Field
	// NoStatus and NoConditions are what objects of the kind do not have.
	NoStatus, NoConditions bool
	Data                   Data
	// Placed are the fields that a physical cluster decides: values from kcp would be wrong there, or refused. A step
	// that ends with [] is a list, in all of whose items the rest of the path is meant.
	Placed [][]string
	// Owns means that the object owns others, such as pods. It is gone only when they are: an object of the same name
	// can follow at once.
	Owns bool
	// Finishes means that the object runs to an end.
	Finishes bool
}

// GroupResource is the resource of the kind.
func (k Kind) GroupResource() schema.GroupResource {
	return schema.GroupResource{Group: k.Group, Resource: k.Resource}
}

// All returns the table.
func All() []Kind { return table }

// OfResource returns the row of a resource, or false.
func OfResource(gr schema.GroupResource) (Kind, bool) {
	for i := range table {
		if table[i].Resource == gr.Resource && table[i].Group == gr.Group {
			return table[i], true
		}
	}
	return Kind{}, false
}

// Of returns the row of a kind, or false.
func Of(gk schema.GroupKind) (Kind, bool) {
	for i := range table {
		if table[i].GroupKind == gk {
			return table[i], true
		}
	}
	return Kind{}, false
}

// OfObject returns the row of the kind of an object, or false.
func OfObject(u *unstructured.Unstructured) (Kind, bool) { return Of(u.GroupVersionKind().GroupKind()) }

// HasConditions reports whether the status of a kind has conditions. The status of an unknown kind may have them.
func HasConditions(gk schema.GroupKind) bool {
	k, ok := Of(gk)
	return !ok || !k.NoConditions && !k.NoStatus
}

// HasStatus reports whether objects of a resource have a status. Objects of unknown resources may have one.
func HasStatus(gr schema.GroupResource) bool {
	k, ok := OfResource(gr)
	return !ok || !k.NoStatus
}

// PodTemplate returns the pod template of an object, or false if its kind is not known to have one. It is not a copy.
// The template of a Pod is the Pod.
func PodTemplate(u *unstructured.Unstructured) (map[string]any, bool) {
	k, ok := OfObject(u)
	if !ok || k.Template == nil {
		return nil, false
	}
	at := u.Object
	for _, field := range k.Template {
		at, _ = at[field].(map[string]any)
	}
	return at, true
}

// PodSpec returns the pod spec of an object, or nil if there is none. It is not a copy.
func PodSpec(u *unstructured.Unstructured) map[string]any {
	template, _ := PodTemplate(u)
	spec, _ := template["spec"].(map[string]any)
	return spec
}

// Visit calls a function with each object that can have the field at the end of a path, and the name of the field. A
// step that ends with [] is a list, in all of whose items the rest of the path is meant.
func Visit(object map[string]any, path []string, f func(at map[string]any, field string)) {
	step, list := strings.CutSuffix(path[0], "[]")
	if len(path) == 1 {
		f(object, step)
		return
	}
	inner := []any{object[step]}
	if list {
		inner, _ = object[step].([]any)
	}
	for _, item := range inner {
		if next, ok := item.(map[string]any); ok {
			Visit(next, path[1:], f)
		}
	}
}

// KeepsData reports whether an object has data in its cluster, so that it does not move to another one.
func KeepsData(u *unstructured.Unstructured) bool {
	k, _ := OfObject(u)
	switch k.Data {
	case AlwaysData:
		return true
	case TemplateData:
		spec, _ := u.Object["spec"].(map[string]any)
		templates, _ := spec["volumeClaimTemplates"].([]any)
		return len(templates) > 0
	}
	return false
}

// Placed returns the fields of a kind that a physical cluster decides.
func Placed(gk schema.GroupKind) [][]string {
	k, _ := Of(gk)
	return k.Placed
}

// Propagation returns how objects of a resource are deleted in a cluster. What owns others is gone only when they are:
// if the garbage collector of the cluster started between the two, it would not see that the owner of the previous pods
// is gone, and they would run on without an owner. Objects of kinds that are not known may own others.
func Propagation(gr schema.GroupResource) metav1.DeletionPropagation {
	k, known := OfResource(gr)
	if known && !k.Owns || !known && (gr.Group == "" || strings.HasSuffix(gr.Group, ".k8s.io")) {
		return metav1.DeletePropagationBackground
	}
	return metav1.DeletePropagationForeground
}

// Name is the name of an object in each namespace.
type Name struct {
	schema.GroupResource
	Name string
}

// IsEverywhere reports whether each namespace of a cluster has an object by itself.
func IsEverywhere(gr schema.GroupResource, name string) bool {
	for _, n := range everywhere {
		if n.GroupResource == gr && n.Name == name {
			return true
		}
	}
	return false
}

// DefaultAccount is the name of the ServiceAccount of pods that name none.
const DefaultAccount = "default"

// IsFirst reports whether an object has to be in a cluster before the pods of a workload that needs it: what restricts
// their connections, and the account that each namespace has, because a pod gets the pull secrets of its account when
// it is created.
func IsFirst(gr schema.GroupResource, name string) bool {
	k, _ := OfResource(gr)
	return k.Guards || k.GroupKind == kind("", "ServiceAccount") && name == DefaultAccount
}
