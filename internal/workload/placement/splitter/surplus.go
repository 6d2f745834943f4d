package splitter

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/api/kinds"
)

// complete are the lists of a pod spec in which only the items of the user are: API servers add none. Their items have
// names.
var complete = []string{"containers", "initContainers", "volumes"}

// env is such a list of a container.
const env = "env"

// Surplus returns a merge patch that removes from an object what its leaf does not have: containers, volumes and
// variables of its pods that another client has added. Server-side apply leaves these, because their manager is another
// one. It returns nil if there is nothing to remove. Other lists can have more items than a leaf.
func Surplus(is, leaf *unstructured.Unstructured) map[string]any {
	kind, _ := kinds.OfObject(leaf)
	have := PodSpec(is)
	want := PodSpec(leaf)
	if have == nil || want == nil {
		return nil
	}
	patch := map[string]any{}
	for _, list := range complete {
		kept, removed := keep(have, want, list)
		if list != "volumes" {
			for i, item := range kept {
				c, _ := item.(map[string]any)
				variables, more := keep(c, named(want, list, c["name"]), env)
				if more {
					c = maps.Clone(c)
					c[env] = variables
					kept[i] = c
				}
				removed = removed || more
			}
		}
		if removed {
			patch[list] = kept
		}
	}
	if len(patch) == 0 {
		return nil
	}
	path := append(slices.Clone(kind.Template), "spec")
	for _, field := range slices.Backward(path) {
		patch = map[string]any{field: patch}
	}
	return patch
}

// keep returns the items of a list that have the name of one that is wanted, and whether there are others.
func keep(have, want map[string]any, list string) (kept []any, removed bool) {
	items, _ := have[list].([]any)
	kept = []any{}
	for _, item := range items {
		if o, _ := item.(map[string]any); named(want, list, o["name"]) != nil {
			kept = append(kept, item)
		}
	}
	return kept, len(kept) < len(items)
}

// named returns the item of a list with a name, or nil.
func named(of map[string]any, list string, name any) map[string]any {
	text, _ := name.(string)
	for _, item := range objects(of, list) {
		if item["name"] == text {
			return item
		}
	}
	return nil
}
