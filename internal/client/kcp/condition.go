package kcp

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// condition is a condition of the status of an object.
type condition struct{ kind, status, reason, message string }

// conditionsOf returns the conditions of an object.
func conditionsOf(o *unstructured.Unstructured) []condition {
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	var out []condition
	for _, e := range list {
		if m, ok := e.(map[string]any); ok {
			text := func(field string) string { s, _ := m[field].(string); return s }
			out = append(out, condition{text("type"), text("status"), text("reason"), text("message")})
		}
	}
	return out
}

// untrue returns the conditions of an object that are not true.
func untrue(o *unstructured.Unstructured) []condition {
	return slices.DeleteFunc(conditionsOf(o), func(c condition) bool { return c.status == "True" })
}

// withReason returns a phase, and the reason of the first condition that is not true.
func withReason(phase string, o *unstructured.Unstructured) string {
	for _, c := range untrue(o) {
		// The message has the list of initializers (kcp: pkg/reconciler/tenancy/workspace,
		// workspace_reconcile_phase.go).
		if list, ok := strings.CutPrefix(c.message, "Initializers still exist: ["); ok {
			return phase + ": waits for " + strings.Join(strings.Fields(strings.TrimSuffix(list, "]")), ", ")
		}
		return fmt.Sprintf("%s: %s: %s", phase, c.reason, c.message)
	}
	return phase
}

// phaseOf returns the phase of the status of an object.
func phaseOf(o *unstructured.Unstructured) string {
	phase, _, _ := unstructured.NestedString(o.Object, "status", "phase")
	return phase
}

// isTrue reports whether an object has a condition that is true.
func isTrue(o *unstructured.Unstructured, kind string) bool {
	return slices.ContainsFunc(conditionsOf(o), func(c condition) bool { return c.kind == kind && c.status == "True" })
}

// String returns the condition as one line, such as "APIExportValid is False: NotFound the export does not exist".
func (c condition) String() string {
	return fmt.Sprintf("%s is %s: %s %s", c.kind, c.status, c.reason, c.message)
}
