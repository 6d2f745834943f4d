package main

import (
	"context"
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kcpctl/kcpctl/internal/api/kinds"
	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/apis/negotiate"
	"github.com/kcpctl/kcpctl/internal/workload/apis/served"
	"github.com/kcpctl/kcpctl/internal/workload/sync/heartbeat"
)

const (
	fleetClusters = "apis/workloads.kcp.dev/v1alpha1/clusters"
	fleetLeases   = "apis/coordination.k8s.io/v1/leases"
	fleetExports  = "apis/apis.kcp.io/v1alpha2/apiexports"
	// beatsPerReport is how many heartbeats a syncer sends until it has looked at the capacity again: what pods request
	// has always changed then.
	beatsPerReport = 3
)

// register creates the Clusters, and what their syncers report of the APIs.
func (f *fleetKCP) register() error {
	for i := range f.clusters {
		k := fleetKey{fleetClusters, fleetCompute, "", fleetCluster(i)}
		if err := f.put(k, "", map[string]any{
			"apiVersion": api.ClusterGVK().GroupVersion().String(), "kind": api.KindCluster,
			"metadata": map[string]any{"labels": map[string]any{"region": fleetCluster(i)[:2]}},
			"spec":     map[string]any{"syncMode": string(v1alpha1.SyncModeNone)},
		}); err != nil {
			return err
		}
		var cluster metav1.PartialObjectMetadata
		if err := json.Unmarshal(f.get(k).raw, &cluster); err != nil {
			return err
		}
		for _, name := range api.DefaultAPIs() {
			if err := f.serve(k.name, cluster.UID, schema.ParseGroupResource(name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// serve reports that a cluster serves an API.
func (f *fleetKCP) serve(cluster string, uid types.UID, gr schema.GroupResource) error {
	kind, _ := kinds.OfResource(gr)
	keeps := true
	field := apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &keeps}
	a := negotiate.API{
		Group: gr.Group, Version: "v1", Scope: apiextensionsv1.NamespaceScoped,
		Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: gr.Resource, Kind: kind.Kind},
		Schema: &apiextensionsv1.JSONSchemaProps{
			Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": field, "status": field},
		},
		Subresources: apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
	}
	content, err := served.Encode(served.API{Versions: []negotiate.API{a}})
	if err != nil {
		return err
	}
	o := served.Object(cluster, uid, gr, content)
	return f.put(fleetKey{fleetConfigMaps, fleetCompute, o.GetNamespace(), o.GetName()}, "", o.Object)
}

// beat sends a heartbeat of a cluster, once the controller has seen its Cluster: its syncer waits for that.
func (f *fleetKCP) beat(cluster string) error {
	f.state.Lock()
	n, begun := f.beats[cluster]
	if begun {
		f.beats[cluster]++
	}
	cores := resource.NewQuantity(int64(2000+f.joined[cluster]), resource.DecimalSI)
	f.state.Unlock()
	if !begun {
		return nil
	}
	report, err := json.Marshal(heartbeat.Report{
		Mode: v1alpha1.SyncModeNone, Version: "v1.0.0", ClusterVersion: "v1.36.3", ClusterUID: types.UID("uid-of-" + cluster),
		Capacity: &api.Capacity{
			Allocatable: corev1.ResourceList{corev1.ResourceCPU: *cores, corev1.ResourceMemory: resource.MustParse("8Ti")},
			Requested:   corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(int64(100000+n/beatsPerReport%7*100), resource.DecimalSI)},
		},
	})
	if err != nil {
		return err
	}
	return f.put(fleetKey{fleetLeases, fleetCompute, api.NamespaceLeases, api.LeaseCluster(cluster)}, "", map[string]any{
		"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
		"metadata": map[string]any{"annotations": map[string]any{api.Group + "/report": string(report)}},
		"spec":     map[string]any{"holderIdentity": "syncer", "renewTime": time.Now().UTC().Format(metav1.RFC3339Micro)},
	})
}

// beatAll sends the heartbeats of all clusters, one after another.
func (f *fleetKCP) beatAll(ctx context.Context) {
	for n := 0; pause(ctx, heartbeat.Interval/time.Duration(f.clusters)) == nil; n++ {
		_ = f.beat(fleetCluster(n % f.clusters)) // it fails with what cannot be encoded
	}
}

// join adds a node to a cluster, whose syncer reports it at once.
func (f *fleetKCP) join() error {
	cluster := fleetCluster(f.clusters / 2)
	f.state.Lock()
	f.joined[cluster] += 16
	f.state.Unlock()
	return f.beat(cluster)
}

// begin starts the syncer of a Cluster that the controller has seen. The store is locked.
func (f *fleetKCP) begin(k fleetKey, created bool) {
	f.state.Lock()
	defer f.state.Unlock()
	if _, begun := f.beats[k.name]; !created && !begun {
		f.beats[k.name] = 0
		go func() { _ = f.beat(k.name) }()
	}
}

// identify gives a new APIExport its identity, a moment later.
func (f *fleetKCP) identify(k fleetKey, created bool) {
	if !created {
		return
	}
	time.AfterFunc(claimsAfter, func() {
		_, _ = f.change(k, false, "", func(o map[string]any) { o["status"] = map[string]any{"identityHash": "identity-of-" + k.name} })
	})
}
