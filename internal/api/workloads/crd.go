package workloads

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kcpctl/kcpctl/templates"
)

// CRD returns the CustomResourceDefinition of Cluster for the compute workspace.
func CRD() (*unstructured.Unstructured, error) {
	data, err := templates.FS.ReadFile("workload/clusters.yaml")
	if err != nil {
		return nil, fmt.Errorf("read the CRD of Cluster: %w", err)
	}
	crd := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(data, &crd.Object); err != nil {
		return nil, fmt.Errorf("read the CRD of Cluster: %w", err)
	}
	return crd, nil
}
