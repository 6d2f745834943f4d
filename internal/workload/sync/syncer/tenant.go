package syncer

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/placement/splitter"
)

// tenant is a workspace whose objects refer to its namespaces, which have other names and labels in the cluster.
type tenant struct{ setup, workspace, cluster string }

// peers confines the selectors of namespaces in a NetworkPolicy to namespaces of the workspace, and to namespaces that
// belong to no workspace.
func (t tenant) peers(o *unstructured.Unstructured) {
	splitter.EachPeer(o, func(peers []map[string]any) []map[string]any {
		for _, p := range peers {
			if selector, ok := p[splitter.NamespaceSelector].(map[string]any); ok && !ofCluster(selector) {
				t.confine(selector)
			}
		}
		return peers
	})
}

// ofCluster reports whether a selector is about namespaces that belong to no workspace.
func ofCluster(selector map[string]any) bool {
	expressions, _ := selector["matchExpressions"].([]any)
	return slices.ContainsFunc(expressions, func(e any) bool {
		expression, _ := e.(map[string]any)
		return expression["key"] == api.LabelSetup && expression["operator"] == "DoesNotExist"
	})
}

// confine adds to a selector that the namespace is of the workspace. What it says about the name is about the name in
// the workspace. It returns another label that the selector is about, or "".
func (t tenant) confine(selector map[string]any) (other string) {
	named := func(key string) string {
		if key == corev1.LabelMetadataName {
			return api.LabelNamespace
		}
		if key != api.LabelNamespace {
			other = key
		}
		return key
	}
	values, _ := selector["matchLabels"].(map[string]any)
	out := map[string]any{}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		out[named(key)] = values[key]
	}
	expressions, _ := selector["matchExpressions"].([]any)
	for _, e := range expressions {
		if expression, ok := e.(map[string]any); ok {
			key, _ := expression["key"].(string)
			expression["key"] = named(key)
		}
	}
	// Requirements are all of them needed: the user's cannot take these away.
	selector["matchExpressions"] = append(expressions,
		map[string]any{"key": api.LabelSetup, "operator": "In", "values": []any{t.setup}},
		map[string]any{"key": api.LabelWorkspace, "operator": "In", "values": []any{t.workspace}})
	if delete(selector, "matchLabels"); len(out) > 0 {
		selector["matchLabels"] = out
	}
	return other
}

// affinity makes the terms of the affinity of pods about the namespaces of the workspace.
func (t tenant) affinity(pod map[string]any) *refusal {
	for _, term := range affinityTerms(pod) {
		if names, ok := term["namespaces"].([]any); ok {
			out := []any{}
			for _, n := range names {
				text, _ := n.(string)
				out = append(out, api.DownstreamNamespace(t.setup, t.workspace, text))
			}
			term["namespaces"] = out
		}
		selector, ok := term[splitter.NamespaceSelector].(map[string]any)
		if !ok {
			continue
		}
		if other := t.confine(selector); other != "" {
			return &refusal{api.ReasonNotAllowed, fmt.Sprintf(
				"a term of spec.affinity selects namespaces by label %s, which namespaces of cluster %s do not have: "+
					"list them in the field namespaces, or select them by %s",
				other, t.cluster, corev1.LabelMetadataName)}
		}
	}
	return nil
}

// affinityTerms returns the terms of the affinity of pods to other pods.
func affinityTerms(pod map[string]any) (all []map[string]any) {
	affinity, _ := pod["affinity"].(map[string]any)
	for _, kind := range []string{"podAffinity", "podAntiAffinity"} {
		of, _ := affinity[kind].(map[string]any)
		required, _ := of["requiredDuringSchedulingIgnoredDuringExecution"].([]any)
		preferred, _ := of["preferredDuringSchedulingIgnoredDuringExecution"].([]any)
		for _, item := range slices.Concat(required, preferred) {
			term, _ := item.(map[string]any)
			if weighted, ok := term["podAffinityTerm"].(map[string]any); ok {
				term = weighted
			}
			all = append(all, term)
		}
	}
	return all
}
