package fakekcp

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// The operations on CustomResourceDefinitions of a shard.
const (
	WatchCRDs    = "watch customresourcedefinitions"
	UpdateStatus = "update customresourcedefinitions"

	crdsPath = "apis/apiextensions.k8s.io/v1/customresourcedefinitions"
)

// CRD is a CustomResourceDefinition of a shard.
type CRD struct {
	Cluster, Name              string
	NamesAccepted, Established bool
}

// Define adds CustomResourceDefinitions to all shards.
func (k *Kcp) Define(crds ...CRD) {
	condition := func(kind string, is bool) any {
		return map[string]any{"type": kind, "status": map[bool]string{true: "True", false: "False"}[is]}
	}
	for _, c := range crds {
		k.api.Merge(c.Cluster, crdsPath, "", c.Name, map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
			"status": map[string]any{"conditions": []any{condition("NamesAccepted", c.NamesAccepted), condition("Established", c.Established)}},
		})
	}
}

// Established returns the sorted names of the CustomResourceDefinitions that are established, "cluster:name".
func (k *Kcp) Established() []string {
	var out []string
	for _, o := range k.api.Objects(crdsPath) {
		conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
		if slices.ContainsFunc(conditions, func(c any) bool {
			return c.(map[string]any)["type"] == "Established" && c.(map[string]any)["status"] == "True"
		}) {
			out = append(out, o.GetAnnotations()["kcp.io/cluster"]+":"+o.GetName())
		}
	}
	return out
}
