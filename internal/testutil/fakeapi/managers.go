package fakeapi

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

var (
	everything = labels.Everything()
	everyField = fields.Everything()
)

// managers are the paths of the fields that each client has applied, or changed. Lists are fields.
type managers map[string]map[string]bool

// updates distinguishes the fields that a client has changed from those that it has applied.
const updates = " (update)"

// between is between the elements of a path.
const between = "\x1f"

func (m managers) clone() managers {
	out := managers{}
	for name, all := range m {
		out[name] = maps.Clone(all)
	}
	return out
}

// keepManagers returns a function that restores the managers of an object, after a dry run.
func (m *memory) keepManagers(k key) func() {
	if m == nil {
		return func() {}
	}
	was := m.fields[k].clone()
	return func() { m.fields[k] = was }
}

// applied records a server-side apply. It adds nulls to the body for the fields that the client has applied before and
// does not apply now, and returns the conflict, unless it is forced.
func (m *memory) applied(k key, body map[string]any, live *unstructured.Unstructured, manager string, force bool) (conflict string) {
	if m == nil {
		return ""
	}
	next := map[string]bool{}
	paths(body, nil, func(path []string, value any) {
		next[strings.Join(path, between)] = true
		if !force && live != nil {
			conflict = max(conflict, m.conflict(k, path, value, live, manager))
		}
	})
	if conflict != "" {
		return conflict
	}
	of := m.managersOf(k)
	if live == nil {
		clear(of)
	}
	for path := range of[manager] {
		if !next[path] && !of.others(manager, path) {
			setNull(body, strings.Split(path, between))
		}
	}
	m.take(of, body, live, manager)
	of[manager] = next
	return ""
}

// conflict returns the conflict about a field.
func (m *memory) conflict(k key, path []string, value any, live *unstructured.Unstructured, manager string) string {
	is, ok, _ := unstructured.NestedFieldNoCopy(live.Object, path...)
	if !ok || reflect.DeepEqual(is, value) {
		return ""
	}
	for other, all := range m.fields[k] {
		if other != manager && all[strings.Join(path, between)] {
			return fmt.Sprintf("Apply failed with 1 conflict: conflict with %q: .%s", strings.TrimSuffix(other, updates), strings.Join(path, "."))
		}
	}
	return ""
}

// updated records a change by another request.
func (m *memory) updated(k key, body map[string]any, live *unstructured.Unstructured, manager string) {
	if m == nil {
		return
	}
	of := m.managersOf(k)
	changed := m.take(of, body, live, manager)
	if of[manager+updates] == nil {
		of[manager+updates] = map[string]bool{}
	}
	for _, path := range changed {
		of[manager+updates][path] = true
	}
}

// take takes the fields that change from other clients. It returns them.
func (m *memory) take(of managers, body map[string]any, live *unstructured.Unstructured, manager string) (changed []string) {
	paths(body, nil, func(path []string, value any) {
		if live != nil {
			if is, ok, _ := unstructured.NestedFieldNoCopy(live.Object, path...); ok && reflect.DeepEqual(is, value) {
				return
			}
		}
		at := strings.Join(path, between)
		changed = append(changed, at)
		for other, all := range of {
			if other != manager {
				delete(all, at)
			}
		}
	})
	return changed
}

func (m *memory) managersOf(k key) managers {
	if m.fields[k] == nil {
		m.fields[k] = managers{}
	}
	return m.fields[k]
}

// others reports whether another client has a field.
func (m managers) others(manager, path string) bool {
	for other, all := range m {
		if other != manager && all[path] {
			return true
		}
	}
	return false
}

// identifying are the fields that no client owns.
var identifying = []string{"name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"}

// paths calls f with each field that clients own.
func paths(object map[string]any, at []string, f func(path []string, value any)) {
	for name, value := range object {
		if len(at) == 0 && (name == "apiVersion" || name == "kind" || name == "status") ||
			len(at) == 1 && at[0] == "metadata" && slices.Contains(identifying, name) {
			continue
		}
		path := append(slices.Clone(at), name)
		if inner, ok := value.(map[string]any); ok && len(inner) > 0 {
			paths(inner, path, f)
			continue
		}
		f(path, value)
	}
}

// setNull sets a field to null, which a merge removes.
func setNull(object map[string]any, path []string) {
	if len(path) == 1 {
		if _, ok := object[path[0]]; !ok {
			object[path[0]] = nil
		}
		return
	}
	inner, ok := object[path[0]].(map[string]any)
	if !ok {
		if _, set := object[path[0]]; set {
			return
		}
		inner = map[string]any{}
		object[path[0]] = inner
	}
	setNull(inner, path[1:])
}
