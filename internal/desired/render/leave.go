package render

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// Leave returns how the setup file leaves a field of an object of a component to another field manager, or "" if it
// cannot: kcpctl always sets the field. The path has the notation of API servers: spec.ports[port=443,protocol="TCP"].
func Leave(c *topology.Component, kind, path string) string {
	in := func(overlays []v1alpha1.Overlay, root string) bool {
		rest, below := strings.CutPrefix(path, root)
		return below && slices.ContainsFunc(overlays,
			func(o v1alpha1.Overlay) bool { return hasPath(map[string]any(o), "."+rest) })
	}
	switch {
	case path == "spec.replicas" && c.MayLeaveReplicas():
		return fmt.Sprintf("set replicas: null for %s", c.ID())
	case plan.HasPods(kind) && in(c.PodTemplates, "spec.template."):
		return fmt.Sprintf("remove it from the podTemplate of %s", c.ID())
	case kind == "Service" && (in(c.Services, "spec.") || in(c.Services, "")):
		return fmt.Sprintf("remove it from the service of %s", c.ID())
	}
	return ""
}

// hasPath reports whether a part of an overlay sets what a path leads to, or a part of it.
func hasPath(part any, path string) bool {
	if path == "" {
		return true
	}
	switch part := part.(type) {
	case map[string]any:
		for key, v := range part {
			// A key may contain dots, such as the key of an annotation.
			rest, ok := strings.CutPrefix(path, "."+key)
			if ok && (rest == "" || rest[0] == '.' || rest[0] == '[') && hasPath(v, rest) {
				return true
			}
		}
	case []any:
		item, rest, ok := strings.Cut(strings.TrimPrefix(path, "["), "]")
		return ok && slices.ContainsFunc(part, func(e any) bool { return isItem(e, item) && hasPath(e, rest) })
	default:
		return true
	}
	return false
}

// isItem reports whether an item of a list is the one that a path selects, such as name="kcp". An overlay may omit keys
// with defaults.
func isItem(item any, selector string) bool {
	fields, ok := item.(map[string]any)
	if !ok {
		return selector == fmt.Sprintf("=%q", item)
	}
	for pair := range strings.SplitSeq(selector, ",") {
		key, value, _ := strings.Cut(pair, "=")
		if have, set := fields[key]; set && strings.Trim(value, `"`) != fmt.Sprint(have) {
			return false
		}
	}
	return true
}
