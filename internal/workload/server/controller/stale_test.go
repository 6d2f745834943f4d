package controller

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/placement/roots"
)

// The watch may still show a removed Cluster when another one has its name: that one keeps its Lease.
func TestTheRemovalOfAnEarlierCluster(t *testing.T) {
	c, kcp, _ := newIdle(t)
	var err error
	c.client, err = dynamic.NewForConfig(&rest.Config{Host: kcp.URL + "/clusters/compute"})
	require.NoError(t, err)
	c.leaves = func() map[string]roots.Leaves { return map[string]roots.Leaves{"c1": {Complete: true}} }
	live := kcp.Apply(t, "compute", clusterPath, "{apiVersion: workloads.kcp.dev/v1alpha1, kind: Cluster, metadata: {name: c1, finalizers: ["+api.FinalizerCluster+"]}}")
	lease := func() any { return kcp.Get("compute", leasePath, api.NamespaceLeases, api.LeaseCluster("c1")) }
	kcp.Apply(t, "compute", leasePath, "{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: "+api.LeaseCluster("c1")+", namespace: "+api.NamespaceLeases+"}}")

	removed := &api.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c1", UID: "earlier", DeletionTimestamp: new(metav1.Now()),
		Finalizers: []string{api.FinalizerCluster}}}
	require.NoError(t, c.guardRemoval(t.Context(), removed))
	require.NotNil(t, lease())
	require.NotNil(t, kcp.Get("compute", clusterPath, "", "c1"))

	removed.UID, removed.ResourceVersion = live.GetUID(), live.GetResourceVersion()
	require.NoError(t, c.guardRemoval(t.Context(), removed))
	require.Nil(t, lease())
}

// The watch may still show the Lease of a removed Cluster when another one has its name: the physical cluster of that
// one is another one.
func TestTheIdentityInTheLeaseOfAnEarlierCluster(t *testing.T) {
	c, kcp, _ := newIdle(t)
	var err error
	c.client, err = dynamic.NewForConfig(&rest.Config{Host: kcp.URL + "/clusters/compute"})
	require.NoError(t, err)
	cl := &api.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c1", UID: "second"}}
	c.reports.of = map[string]*reported{"c1": {record: record{uid: "one"}}}
	ids := identities{[]*api.Cluster{cl}, c.uid}
	recorded := func() types.UID {
		d := &draft{Cluster: cl}
		c.record(t.Context(), d, ids)
		require.NoError(t, d.problem)
		return d.next.UID
	}
	report := func(content string) {
		kcp.Apply(t, "compute", leasePath, "{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: "+api.LeaseCluster("c1")+
			", namespace: default, annotations: {workloads.kcp.dev/report: '"+content+"'}}}")
	}
	require.Empty(t, recorded(), "the Lease is gone")
	report(`{"clusterUID":"two"}`)
	require.Empty(t, recorded(), "it is the Lease of the next one")
	report(`{"clusterUID":"one","cluster":"first"}`)
	require.Empty(t, recorded(), "the syncer of the first one still runs")
	report(`{"clusterUID":"one","cluster":"second"}`)
	require.EqualValues(t, "one", recorded())
	cl.Annotations = map[string]string{api.AnnotationPhysicalUID: "two"}
	require.Empty(t, recorded(), "it was registered for another one")
}
