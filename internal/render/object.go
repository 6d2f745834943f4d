package render

import (
	"fmt"

	"go.yaml.in/yaml/v2"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/topology"
)

// Object is a rendered object, with the cluster and the component that it belongs to.
type Object struct {
	// Cluster is the name of the cluster that the object is applied to. It is empty on this machine.
	Cluster string
	// Component is the component that the object belongs to.
	Component topology.ID
	*unstructured.Unstructured
}

// Redacted returns a copy of the object without the values of its data.
func (o Object) Redacted() Object {
	c := o.DeepCopy()
	if values, ok := c.Object["data"].(map[string]any); ok {
		for k := range values {
			values[k] = "***"
		}
	}
	o.Unstructured = c
	return o
}

// YAML returns the object as a YAML document, with sorted keys.
func (o Object) YAML() ([]byte, error) {
	out, err := yaml.Marshal(o.Object)
	if err != nil {
		return nil, fmt.Errorf("encode %s %s: %w", o.GetKind(), o.GetName(), err)
	}
	return out, nil
}
