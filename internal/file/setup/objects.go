package setup

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Objects returns the documents of a file with Kubernetes objects, and instead of a list, as kubectl get -o yaml prints
// it, its items.
func Objects(data []byte) ([]*yaml.Node, *Problem) {
	docs, problem := Documents(data)
	return listed(docs), problem
}

func listed(docs []*yaml.Node) (out []*yaml.Node) {
	for _, doc := range docs {
		version, kind, items := lookup(doc, "apiVersion"), lookup(doc, "kind"), lookup(doc, "items")
		isList := version != nil && kind != nil && strings.HasSuffix(kind.Value, "List")
		if isList && items != nil && items.Kind == yaml.SequenceNode {
			out = append(out, listed(items.Content)...)
			continue
		}
		out = append(out, doc)
	}
	return out
}

// ClusterMetadata returns the fields of an object's metadata that its API server sets.
func ClusterMetadata() []string {
	return []string{
		"uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds",
		"managedFields", "ownerReferences", "finalizers", "selfLink", "generateName",
	}
}

// lastApplied is the annotation in which kubectl apply keeps the object.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// written returns an object without what its API server and kubectl add to it.
func written(doc *yaml.Node) *yaml.Node {
	out := without(doc, "status")
	for i := 1; i < len(out.Content); i += 2 {
		if out.Content[i-1].Value == "metadata" && out.Content[i].Kind == yaml.MappingNode {
			out.Content[i] = without(out.Content[i], append(ClusterMetadata(), "labels", "annotations")...)
		}
	}
	return out
}

// without returns an object without some of its fields.
func without(n *yaml.Node, keys ...string) *yaml.Node {
	out := *n
	out.Content = nil
	for i := 0; i+1 < len(n.Content); i += 2 {
		if !slices.Contains(keys, n.Content[i].Value) {
			out.Content = append(out.Content, n.Content[i], n.Content[i+1])
		}
	}
	return &out
}

// dropped are notes about labels and annotations of an object, which is made again without them.
func dropped(doc *yaml.Node, file string) (notes Errors) {
	metadata := lookup(doc, "metadata")
	for _, key := range []string{"labels", "annotations"} {
		n := lookup(metadata, key)
		if n == nil || n.Kind != yaml.MappingNode || len(without(n, lastApplied).Content) == 0 {
			continue
		}
		notes = append(notes, Problem{File: file, Line: n.Line, Column: n.Column,
			Path: field.NewPath("metadata", key).String(), Message: "kcpctl does not pass them on"})
	}
	return notes
}
