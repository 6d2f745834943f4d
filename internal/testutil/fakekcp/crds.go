package fakekcp

import (
	"net/http"
	"path"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// The operations on CustomResourceDefinitions of a shard.
const (
	WatchCRDs    = "watch customresourcedefinitions"
	UpdateStatus = "update customresourcedefinitions"
)

// CRD is a CustomResourceDefinition of a shard.
type CRD struct {
	Cluster, Name              string
	NamesAccepted, Established bool
}

// Define adds CustomResourceDefinitions to all shards.
func (k *Kcp) Define(crds ...CRD) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.crds = append(k.crds, crds...)
}

// Established returns the names of the CustomResourceDefinitions that are established, "cluster:name".
func (k *Kcp) Established() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var out []string
	for _, c := range k.crds {
		if c.Established {
			out = append(out, c.Cluster+":"+c.Name)
		}
	}
	return out
}

// watchCRDs is the response with the existing CustomResourceDefinitions.
func (k *Kcp) watchCRDs() Answer {
	out := events{}
	for _, c := range k.crds {
		out = append(out, c.object())
	}
	return Answer{http.StatusOK, out}
}

// updateStatus changes the conditions of a CustomResourceDefinition.
func (k *Kcp) updateStatus(cluster string, r *http.Request) Answer {
	name := path.Base(path.Dir(r.URL.Path))
	at := slices.IndexFunc(k.crds, func(c CRD) bool { return c.Cluster == cluster && c.Name == name })
	if at < 0 {
		return Refuse(http.StatusNotFound, "NotFound", name+" not found")
	}
	conditions, _, _ := unstructured.NestedSlice(k.read(r).Object, "status", "conditions")
	is := func(kind string) bool {
		return slices.ContainsFunc(conditions, func(c any) bool {
			m := c.(map[string]any)
			return m["type"] == kind && m["status"] == "True"
		})
	}
	k.crds[at].NamesAccepted, k.crds[at].Established = is("NamesAccepted"), is("Established")
	return Answer{http.StatusOK, k.crds[at].object()}
}

func (c CRD) object() map[string]any {
	condition := func(kind string, is bool) any {
		return map[string]any{"type": kind, "status": map[bool]string{true: "True", false: "False"}[is]}
	}
	return map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": c.Name, "annotations": map[string]any{"kcp.io/cluster": c.Cluster}},
		"status": map[string]any{"conditions": []any{
			condition("NamesAccepted", c.NamesAccepted), condition("Established", c.Established),
		}},
	}
}
