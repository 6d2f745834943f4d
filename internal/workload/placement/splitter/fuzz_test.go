package splitter_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kcpctl/kcpctl/internal/workload/placement/splitter"
)

// Objects whose fields have other types than their kinds permit are no reason to crash: workspaces of many users share
// a controller.
func FuzzObjects(f *testing.F) {
	for _, text := range []string{
		web, "{apiVersion: v1, kind: Pod, spec: " + "{volumes: [{configMap: {name: 1, optional: 2}}, 3], containers: {}}}",
		"{apiVersion: apps/v1, kind: Deployment, metadata: {labels: 1}, spec: {replicas: x, template: []}, status: {replicas: x, conditions: [1, {type: 1}]}}",
		"{apiVersion: v1, kind: Service, status: {loadBalancer: [{ingress: 1}]}, spec: {selector: [a]}}",
		"{apiVersion: networking.k8s.io/v1, kind: Ingress, spec: {rules: [{http: {paths: [{backend: 1}]}}], tls: 1}, status: 1}",
		"{apiVersion: batch/v1, kind: Job, spec: 1, status: {startTime: 1, active: 1.5}}",
		"{apiVersion: example.com/v1, kind: Widget, status: [1]}",
	} {
		data, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	n := int64(1)
	f.Fuzz(func(_ *testing.T, data []byte) {
		u := &unstructured.Unstructured{}
		if u.UnmarshalJSON(data) != nil {
			return
		}
		leaves, err := splitter.Leaves(u, map[string]splitter.Share{"c1": {}, "c2": {Replicas: &n}})
		if err == nil {
			splitter.Compare(u, leaves, append(leaves, u))
		}
		both := map[string]*unstructured.Unstructured{"c1": u, "c2": u, "c3": nil}
		splitter.Aggregate(u, both)
		splitter.Aggregate(u, map[string]*unstructured.Unstructured{"c1": u})
		splitter.PlacementOf(both)
		for _, d := range splitter.Dependencies(u) {
			objects := map[splitter.Ref]*unstructured.Unstructured{d.Ref: u}
			splitter.FindNeeds([]splitter.Placed{{Ref: splitter.Ref{Name: "w"}, Object: u, Clusters: []string{"c1"}}}, objects)
		}
		splitter.Selects(u, u)
	})
}
