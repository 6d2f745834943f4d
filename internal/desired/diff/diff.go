// Package diff computes the differences between two objects, by path. It is pure.
package diff

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Change is a value that differs. Before or After is nil if the value does not exist.
type Change struct {
	Path   string `json:"path"`
	Before any    `json:"before,omitempty"`
	After  any    `json:"after,omitempty"`
}

// listKeys are the fields that can identify a list item, in the order in which they are tried.
var listKeys = []string{"name", "mountPath", "containerPort", "port", "key", "topologyKey", "ip"}

// Objects returns the differences between two objects, sorted by path. It ignores fields that the API server manages.
func Objects(before, after map[string]any) []Change {
	var out []Change
	walk("", strip(before), strip(after), &out)
	return out
}

// strip removes the fields that the API server manages, and the copy of the object that kubectl apply keeps in an
// annotation: it has the values of Secrets.
func strip(o map[string]any) map[string]any {
	o = maps.Clone(o)
	delete(o, "status")
	if m, ok := o["metadata"].(map[string]any); ok {
		m = maps.Clone(m)
		for _, k := range []string{"managedFields", "resourceVersion", "generation", "uid", "creationTimestamp"} {
			delete(m, k)
		}
		if a, ok := m["annotations"].(map[string]any); ok {
			a = maps.Clone(a)
			delete(a, corev1.LastAppliedConfigAnnotation)
			if m["annotations"] = a; len(a) == 0 {
				delete(m, "annotations")
			}
		}
		o["metadata"] = m
	}
	return o
}

func walk(path string, before, after any, out *[]Change) {
	if reflect.DeepEqual(before, after) {
		return
	}
	if b, ok := before.(map[string]any); ok {
		if a, ok := after.(map[string]any); ok {
			for _, k := range keys(b, a) {
				walk(join(path, k), b[k], a[k], out)
			}
			return
		}
	}
	if b, ok := before.([]any); ok {
		if a, ok := after.([]any); ok {
			walkList(path, b, a, out)
			return
		}
	}
	*out = append(*out, Change{path, before, after})
}

// walkList compares lists by the names of their items: the value of a field, the flag of an argument, or the index.
func walkList(path string, before, after []any, out *[]Change) {
	names := naming(before, after)
	b, order := index(before, names)
	a, more := index(after, names)
	for _, n := range more {
		if _, ok := b[n]; !ok {
			order = append(order, n)
		}
	}
	for _, n := range order {
		walk(path+"["+n+"]", b[n], a[n], out)
	}
}

// naming returns a function that names list items, with unique names in each list.
func naming(lists ...[]any) func(int, any) string {
	candidates := []func(int, any) string{argument}
	for _, key := range listKeys {
		candidates = append(candidates, func(_ int, item any) string {
			m, _ := item.(map[string]any)
			if v, ok := m[key]; ok {
				return fmt.Sprint(v)
			}
			return ""
		})
	}
	for _, name := range candidates {
		if !slices.ContainsFunc(lists, func(l []any) bool { return !unique(l, name) }) {
			return name
		}
	}
	return func(i int, _ any) string { return strconv.Itoa(i) }
}

func unique(list []any, name func(int, any) string) bool {
	seen := map[string]bool{}
	for i, item := range list {
		n := name(i, item)
		if n == "" || seen[n] {
			return false
		}
		seen[n] = true
	}
	return true
}

// argument names a command line argument by its flag.
func argument(_ int, item any) string {
	s, ok := item.(string)
	if !ok || !strings.HasPrefix(s, "--") {
		return ""
	}
	name, _, _ := strings.Cut(s, "=")
	return name
}

func index(list []any, name func(int, any) string) (byName map[string]any, order []string) {
	byName = map[string]any{}
	for i, item := range list {
		n := name(i, item)
		byName[n] = item
		order = append(order, n)
	}
	return byName, order
}

func keys(ms ...map[string]any) []string {
	all := map[string]bool{}
	for _, m := range ms {
		for k := range m {
			all[k] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// join appends a key to a path. Keys with dots, slashes or brackets are put in brackets.
func join(path, key string) string {
	switch {
	case strings.ContainsAny(key, "./[]"):
		return path + "[" + key + "]"
	case path == "":
		return key
	}
	return path + "." + key
}
