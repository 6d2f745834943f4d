package render

import (
	"fmt"

	"go.yaml.in/yaml/v2"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// Object is a rendered object, with its place and the component that it belongs to.
type Object struct {
	// Cluster is the name of the cluster that the object is applied to. It is empty on this machine.
	Cluster string
	// Workspace is the full path of the workspace of kcp that the object is applied to, such as root:team-a, or a place
	// on a cluster that is not one of the setup (topology.IsKubernetes). It is empty for objects of the setup's
	// clusters.
	Workspace string
	// Component is the component that the object belongs to.
	Component topology.ID
	*unstructured.Unstructured
}

// Ref returns the reference to the object.
func (o Object) Ref() plan.Ref {
	if o.Workspace != "" {
		return plan.RefIn(o.Workspace, o.Unstructured)
	}
	return plan.RefOf(o.Cluster, o.Unstructured)
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
