package agent

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Filter selects the objects of a kind that an agent copies: by their labels, and by the labels of their namespaces.
// The selectors are as kubectl writes them. An empty one selects all.
type Filter struct {
	Labels          string `json:"labels,omitempty"`
	NamespaceLabels string `json:"namespaceLabels,omitempty"`
}

// Selects reports whether the agent copies an object with these labels, in a namespace with those (api-syncagent:
// internal/controller/sync/controller.go, objectMatchesFilter).
func (f Filter) Selects(object, namespace map[string]string) bool {
	return selects(f.Labels, object) && selects(f.NamespaceLabels, namespace)
}

func selects(selector string, set map[string]string) bool {
	s, err := labels.Parse(selector)
	return err == nil && s.Matches(labels.Set(set))
}

// selectorOf returns a selector as text. The agent takes no selector for one that selects all. For one that is not
// valid, which Validate reports, the text is empty, too.
func selectorOf(s *metav1.LabelSelector) string {
	if s == nil {
		return ""
	}
	parsed, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return ""
	}
	return parsed.String()
}
