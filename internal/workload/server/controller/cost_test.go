package controller

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/rest"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeapi"
	"github.com/kcpctl/kcpctl/internal/workload/sync/heartbeat"
	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

// newIdle returns a controller that watches Clusters and Leases, whose loop does not run. changes has the resources
// that it was told about.
func newIdle(t *testing.T, resources ...schema.GroupVersionResource) (c *controller, kcp *fakeapi.Server, changes chan schema.GroupVersionResource) {
	t.Helper()
	kcp = fakeapi.New(t)
	changes = make(chan schema.GroupVersionResource, 1000)
	w := &workspace{cluster: "compute", path: "compute", accepted: cache.NewLRUExpireCache(mostAccepted)}
	c = &controller{Options: Options{Now: time.Now}, wake: make(chan struct{}, 1), workspace: w}
	c.reports = &reports{workspace: w}
	c.members = &members{workspace: w, reports: c.reports}
	c.publisher = &publisher{workspace: w, reports: c.reports}
	var err error
	c.set, err = watch.New(t.Context(), watch.Options{
		Config: &rest.Config{Host: kcp.URL}, Now: time.Now,
		Changed: func(r schema.GroupVersionResource, k watch.Key) { c.changed(r, k); changes <- r },
	})
	require.NoError(t, err)
	t.Cleanup(c.set.Stop)
	require.NoError(t, c.set.Update([]string{kcp.URL + "/clusters/compute"}, resources))
	return c, kcp, changes
}

// woken reports whether a pass was requested since the last time.
func (c *controller) woken() bool {
	select {
	case <-c.wake:
		return true
	default:
		return false
	}
}

const clusterPath, leasePath = "apis/workloads.kcp.dev/v1alpha1/clusters", "apis/coordination.k8s.io/v1/leases"

// Only the Clusters that have changed are converted.
func TestClustersAreConvertedOnce(t *testing.T) {
	c, kcp, changes := newIdle(t, api.ClusterGVR())
	change := func(name, version string) {
		kcp.Apply(t, "compute", clusterPath, "{apiVersion: workloads.kcp.dev/v1alpha1, kind: Cluster, metadata: {name: "+name+"}, status: {version: "+version+"}}")
		<-changes
	}
	change("c1", "v1")
	change("c2", "v1")
	c.clusters(t.Context())
	before := slices.Collect(maps.Values(c.converted))
	change("c1", "v2")
	all := c.clusters(t.Context())
	require.Equal(t, "v2", all[0].Status.Version)
	again := slices.DeleteFunc(slices.Collect(maps.Values(c.converted)), func(cl *api.Cluster) bool { return slices.Contains(before, cl) })
	require.Len(t, again, 1, "only one is converted again")
	require.Equal(t, "c1", again[0].Name)
	all[1].Status.Version = "other"
	require.Equal(t, "v1", c.clusters(t.Context())[1].Status.Version, "a pass changes its own copy")
}

// The APIBindings of all workspaces are only read if something is to be published.
func TestAnUnchangedInputIsNotMade(t *testing.T) {
	c, _, _ := newIdle(t)
	ids := identities{[]*api.Cluster{{}}, func(string) types.UID { return "" }}
	c.publisher.negotiated = c.publisher.version(ids) + exported(nil)
	require.Nil(t, c.publisher.bound, "it would fail")
	require.NoError(t, c.publisher.publish(t.Context(), ids))
}

// Of a hundred clusters, ten send a heartbeat each second.
func TestARenewedLeaseNeedsNoPass(t *testing.T) {
	c, kcp, changes := newIdle(t, heartbeat.Leases)
	beat := func(renewed, report string) {
		kcp.Apply(t, "compute", leasePath, `{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: cluster-c1, namespace: default, annotations: {workloads.kcp.dev/report: '`+report+
			`'}}, spec: {holderIdentity: one, renewTime: "`+renewed+`"}}`)
		<-changes
	}
	cl := &api.Cluster{}
	cl.Name = "c1"
	c.judge.Evaluate(cl, nil, c.Now())
	beat("1", "{}")
	require.True(t, c.woken(), "the first one")
	for _, renewed := range []string{"2", "3", "4"} {
		beat(renewed, "{}")
		require.False(t, c.woken())
	}
	capacity := func(allocatable, requested string) string {
		return `{"capacity":{"allocatable":{"cpu":"` + allocatable + `"},"requested":{"cpu":"` + requested + `"}}}`
	}
	beat("4.1", capacity("8", "1"))
	require.True(t, c.woken(), "a capacity")
	beat("4.2", capacity("8", "2"))
	require.False(t, c.woken(), "pods come and go all the time")
	beat("4.3", capacity("16", "2"))
	require.True(t, c.woken(), "a node joins")
	require.Equal(t, "2", c.judge.Evaluate(cl, nil, c.Now()).Report.Capacity.Requested.Cpu().String(), "the next pass sees it")
	beat("5", `{"reason":"Unreachable"}`)
	require.True(t, c.woken(), "another report")
	kcp.Apply(t, "compute", leasePath, "{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: other, namespace: default}, spec: {holderIdentity: one}}")
	<-changes
	require.False(t, c.woken(), "not the Lease of a cluster")
	lease, _ := c.set.Get(heartbeat.Leases, watch.Key{Cluster: "compute", Namespace: "default", Name: "cluster-c1"})
	held, _, _ := unstructured.NestedString(lease.Object, "spec", "renewTime")
	require.Equal(t, "5", held)
}

// A controller whose compute workspace is created again while it runs uses no cluster of it. It ends, and starts again.
func TestAComputeWorkspaceIsCreatedAgain(t *testing.T) {
	c, kcp, changes := newIdle(t, api.ClusterGVR())
	kcp.Apply(t, "compute", clusterPath, "{apiVersion: workloads.kcp.dev/v1alpha1, kind: Cluster, metadata: {name: c1}}")
	<-changes
	require.NoError(t, c.same())
	c.cluster = "earlier"
	require.ErrorContains(t, c.loop(t.Context()), "was created again: it is the logical cluster compute, and was earlier")
}

// A pass looks at the ConfigMaps of all clusters: there are thousands of them.
func TestAnUnchangedReportIsNotUnpacked(t *testing.T) {
	c, kcp, changes := newIdle(t, configMaps)
	gr := schema.GroupResource{Group: "apps", Resource: "deployments"}
	name := api.ConfigMapCluster("c1", gr)
	kcp.Apply(t, "compute", "api/v1/configmaps", `{apiVersion: v1, kind: ConfigMap, metadata: {name: `+name+`, namespace: default, ownerReferences: [{kind: Cluster, name: c1, uid: one}]}}`)
	<-changes
	reports := c.members.reports
	reports.apis = []schema.GroupResource{gr}
	cl := &api.Cluster{}
	cl.Name, cl.UID = "c1", "one"
	r := &reported{apis: map[schema.GroupResource]content{}}
	require.NoError(t, reports.readCluster(t.Context(), cl, r))
	require.ErrorContains(t, r.problem, "it has no key")
	r.apis[gr] = content{version: r.apis[gr].version}
	require.Less(t, testing.AllocsPerRun(10, func() { _ = reports.readCluster(t.Context(), cl, r) }), 10.0)
}
