package agent

import "github.com/kcpctl/kcpctl/internal/api/v1alpha1"

// Proposal is a kind to publish, as its cluster serves it.
type Proposal struct {
	Group, Kind, Plural string
	Namespaced          bool
	Versions            []string
	// SecretPath is the path of the field with the name of a Secret that belongs to each object, such as
	// spec.secretName. It may be empty.
	SecretPath string
}

// nameInNamespace is how the copies of namespaced objects are called: two objects of a workspace never have the same
// name, and users recognize them. The agent's own default is two hashes (api-syncagent:
// internal/sync/templating/naming.go).
const nameInNamespace = "{{ .Object.metadata.name }}-{{ .Object.metadata.namespace | sha3short }}"

// Propose returns a PublishedResource for a kind: its versions, and names that cannot collide, because they contain the
// name of the logical cluster, and a hash of the namespace.
func Propose(p Proposal) v1alpha1.PublishedResource {
	resource := map[string]any{"apiGroup": p.Group, "kind": p.Kind}
	if len(p.Versions) > 0 {
		versions := make([]any, len(p.Versions))
		for i, v := range p.Versions {
			versions[i] = v
		}
		resource["versions"] = versions
	}
	out := v1alpha1.PublishedResource{Name: p.Plural + "." + p.Group, Spec: v1alpha1.Object{
		"resource": resource, "naming": map[string]any{"name": nameInNamespace, "namespace": "{{ .ClusterName }}"},
	}}
	if !p.Namespaced {
		out.Spec["naming"] = map[string]any{"name": "{{ .ClusterName }}-{{ .Object.metadata.name }}"}
		out.Spec["projection"] = map[string]any{"scope": "Cluster"}
	}
	if p.SecretPath != "" {
		out.Spec["related"] = []any{map[string]any{
			"identifier": "secret", "origin": originService, "version": "v1", "resource": "secrets", "cleanup": true,
			"object": map[string]any{"reference": map[string]any{"path": p.SecretPath}},
		}}
	}
	if p.Plural != Plural(p.Kind) {
		out.Plural = p.Plural
	}
	return out
}
