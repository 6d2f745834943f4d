package controller_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeapi"
	"github.com/kcpctl/kcpctl/internal/workload/server/controller"
)

const policies = "apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"

// serves makes the syncers of clusters find their leaves.
func (k *kcp) serves(names ...string) {
	k.Helper()
	for _, name := range append(names, api.ExportWorkloads) {
		export := name
		if name != api.ExportWorkloads {
			export = api.ExportCluster(name)
		}
		k.Apply(k, compute, endpointSlices, fmt.Sprintf(`
apiVersion: apis.kcp.io/v1alpha1
kind: APIExportEndpointSlice
metadata: {name: %s}
status: {endpoints: [{url: "%s/services/apiexport/xyz/%s"}]}`, export, k.URL, export))
	}
}

// leaf creates a Deployment for a cluster.
func (k *kcp) leaf(name, cluster string) {
	k.Helper()
	k.Apply(k, "1a", deployments, fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: %s, namespace: shop, labels: {workloads.kcp.dev/cluster: %s}}
spec: {replicas: 2}`, name, cluster))
}

func in(s *fakeapi.Server, setup, name string) bool {
	return s.Get("", deployments, api.DownstreamNamespace(setup, "1a", "shop"), name) != nil
}

// replace makes the API server of a cluster that of another one.
func replace(s *fakeapi.Server, uid string) {
	s.Serve("/api/v1/namespaces/kube-system", fmt.Sprintf(`{apiVersion: v1, kind: Namespace, metadata: {name: kube-system, uid: %q}}`, uid))
}

func TestAClusterThatIsReplacedIsNotUsed(t *testing.T) {
	k := newKCP(t)
	c1 := newCluster(t, "one", "1", "")
	k.add("c1", kubeconfig(c1.URL))
	k.add("c2", kubeconfig(newCluster(t, "two", "2", "").URL))
	k.serves("c1", "c2")
	k.run()
	k.identify()
	k.eventually(func() bool {
		return k.condition("c1", "Ready") == "True Ready" && k.field("c1", "status", "uid") == "one"
	}, "its UID is recorded")
	k.leaf("first", "c1")
	k.eventually(func() bool { return in(c1, compute, "first") }, "it is used")

	replace(c1, "other")
	k.eventually(func() bool { return k.reason("c1", "Ready") == api.ReasonClusterReplaced }, "it is noticed")
	require.Equal(t, "False ClusterReplaced: it was the physical cluster with the UID one, and another one with the UID other answers now: "+
		"kcpctl cluster remove c1 --force, and add it again", k.condition("c1", "Ready"))
	k.leaf("second", "c1")
	k.start(deploymentAPI)
	k.settled("c2")
	k.eventually(func() bool { return k.reason("c1", "Ready") == api.ReasonClusterReplaced }, "also after a restart")
	k.settled("c2")
	require.Equal(t, api.ReasonCredentialsRefused, k.reason("c1", "Evicted"))
	require.False(t, in(c1, compute, "second"), "nothing is written to it")
	require.Equal(t, "one", k.field("c1", "status", "uid"))
	require.Equal(t, []string{"deployments.apps v1 Published <nil>"}, k.apis("c1"), "what is scheduled to it stays")

	// It is removed by force, and added again: it is another Cluster under the name.
	k.Apply(t, compute, clusters, `{metadata: {name: c1, annotations: {workloads.kcp.dev/force-removal: "true"}}}`)
	k.Delete(compute, clusters, "", "c1")
	k.eventually(func() bool { return k.Get(compute, clusters, "", "c1") == nil }, "it is removed")
	k.add("c1", kubeconfig(c1.URL))
	k.eventually(func() bool {
		return k.condition("c1", "Ready") == "True Ready" && k.field("c1", "status", "uid") == "other"
	}, "it is used")
	require.Nil(t, k.Get("1a", deployments, "shop", "second"), "what was scheduled to it was given up")
}

// In pull mode, the syncer of the other cluster waits, and reports it.
func TestASyncerOfAnotherClusterWaits(t *testing.T) {
	k := newKCP(t)
	k.run()
	one, other := newCluster(t, "one", "1", ""), newCluster(t, "other", "1", "")
	k.serves("c1")
	k.Apply(t, compute, clusters, "{apiVersion: workloads.kcp.dev/v1alpha1, kind: Cluster, metadata: {name: c1}, spec: {syncMode: None}}")
	leave := k.attach("c1", one)
	k.identify()
	k.eventually(func() bool {
		return k.condition("c1", "Ready") == "True Ready" && k.field("c1", "status", "uid") == "one"
	}, "its UID is recorded")
	k.leaf("web", "c1")
	k.eventually(func() bool { return in(one, compute, "web") }, "it is used")
	leave()

	leave = k.attach("c1", other)
	k.eventually(func() bool { return k.reason("c1", "Ready") == api.ReasonClusterReplaced }, "it is reported")
	k.settled("c1")
	require.False(t, in(other, compute, "web"))
	leave()
}

// A name is not a cluster: a cluster that is added under the name of a removed one is another one, whatever the removed
// one has left.
func TestAClusterUnderTheNameOfARemovedOne(t *testing.T) {
	k := newKCP(t)
	k.add("c2", kubeconfig(newCluster(t, "two", "2", "").URL))
	k.add("c1", kubeconfig(newCluster(t, "one", "1", "").URL))
	k.serves("c1", "c2")
	k.run()
	k.identify()
	k.eventually(func() bool {
		return k.condition("c1", "Ready") == "True Ready" && len(k.Get(compute, clusters, "", "c1").GetFinalizers()) == 1
	}, "the cluster is ready")
	lease := k.Get(compute, leases, "default", "cluster-c1")
	k.Delete(compute, clusters, "", "c1")
	k.eventually(func() bool { return k.Get(compute, clusters, "", "c1") == nil }, "it is removed")

	gone := newCluster(t, "three", "3", "")
	gone.Close()
	raw, err := lease.MarshalJSON()
	require.NoError(t, err)
	k.Apply(t, compute, leases, string(raw))
	k.add("c1", kubeconfig(gone.URL))
	k.settled("c1")
	k.eventually(func() bool { return k.reason("c1", "Ready") == api.ReasonUnreachable }, "the old Lease does not count")
	require.Equal(t, "<nil>", k.field("c1", "status", "uid"))
	k.add("c1", kubeconfig(newCluster(t, "three", "3", "").URL))
	k.eventually(func() bool {
		return k.condition("c1", "Ready") == "True Ready" && k.field("c1", "status", "uid") == "three"
	}, "another one")
}

// A Cluster is removed, and one of another physical cluster is added under its name, while the syncer of the first one
// still runs: it works no longer, also if it is started again, and the right one does not wait for it.
func TestTheSyncerOfARemovedCluster(t *testing.T) {
	k := newKCP(t)
	k.serves("c1")
	k.run()
	one, two := newCluster(t, "one", "1", ""), newCluster(t, "two", "1", "")
	ended := map[string]chan error{}
	start := func(holder string, server *fakeapi.Server) {
		m := k.member("c1", server)
		m.Holder = holder
		done := make(chan error, 1)
		ended[holder] = done
		go func() { done <- controller.RunSyncer(t.Context(), m) }()
	}
	add := func(annotations string) {
		k.Apply(t, compute, clusters, "{apiVersion: workloads.kcp.dev/v1alpha1, kind: Cluster, metadata: {name: c1, annotations: {"+annotations+"}}, spec: {syncMode: None}}")
	}
	add("")
	start("old", one)
	k.identify()
	ready := func(uid string) func() bool {
		return func() bool {
			return k.condition("c1", "Ready") == "True Ready" && k.field("c1", "status", "uid") == uid
		}
	}
	k.eventually(ready("one"), "its UID is recorded")

	k.Delete(compute, clusters, "", "c1")
	k.eventually(func() bool { return k.Get(compute, clusters, "", "c1") == nil }, "it is removed")
	add("workloads.kcp.dev/physical-uid: two")
	require.ErrorContains(t, <-ended["old"], "was removed, and another one has its name")
	start("old again", one)
	const want = "False ClusterReplaced: it was registered for the physical cluster with the UID two, and another one with the UID one answers: " +
		"stop the syncer that runs there, or correct its kubeconfig"
	k.eventually(func() bool { return k.condition("c1", "Ready") == want }, "it is not used")
	k.leaf("web", "c1")
	start("new", two)
	k.eventually(ready("two"), "the right one works")
	require.ErrorContains(t, <-ended["old again"], "the syncer new works for cluster c1 now")
	k.eventually(func() bool { return in(two, compute, "web") }, "it runs there")
	require.False(t, in(one, compute, "web"))
}

// A Cluster is deleted and added again under its name while the controller writes the status of the first one. The
// second one is another physical cluster.
func TestAnIdentityIsNotWrittenToTheNextCluster(t *testing.T) {
	k := newKCP(t)
	k.add("c1", kubeconfig(newCluster(t, "one", "1", "").URL))
	var once sync.Once
	k.Refuse(func(r *http.Request) (int, string) {
		if r.Method != http.MethodPatch || !strings.HasSuffix(r.URL.Path, "/clusters/c1/status") {
			return 0, ""
		}
		body, err := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		if err == nil && bytes.Contains(body, []byte(`"uid":"one"`)) {
			once.Do(func() {
				k.Apply(t, compute, clusters, "{metadata: {name: c1, finalizers: []}}")
				k.Delete(compute, clusters, "", "c1")
				k.add("c1", kubeconfig(newCluster(t, "two", "2", "").URL))
			})
		}
		return 0, ""
	})
	k.serves()
	k.run()
	k.identify()
	k.eventually(func() bool {
		return k.condition("c1", "Ready") == "True Ready" && k.field("c1", "status", "uid") == "two"
	}, "it is another one")
}

// The one that works continues, also while the controller cannot reach it.
func TestTheSameClusterUnderAnotherName(t *testing.T) {
	k := newKCP(t)
	c1 := newCluster(t, "one", "1", "")
	k.add("c1", kubeconfig(c1.URL))
	k.run()
	k.identify()
	k.eventually(func() bool { return k.field("c1", "status", "uid") == "one" }, "its UID is recorded")
	k.add("c1", "nothing")
	k.eventually(func() bool { return k.reason("c1", "Ready") == api.ReasonKubeconfigInvalid }, "it is not reached")
	k.Apply(t, compute, clusters, `{metadata: {name: c1, creationTimestamp: "2026-01-09T00:00:00Z"}}`)
	k.add("again", kubeconfig(c1.URL))
	want := "False DuplicateCluster: Cluster c1 is the same physical cluster: delete one of them"
	k.eventually(func() bool { return k.condition("again", "Ready") == want }, "it is not used")
	require.Equal(t, "<nil>", k.field("again", "status", "uid"), "a kubeconfig that is corrected is not that of another cluster")
	k.add("again", kubeconfig(newCluster(t, "two", "2", "").URL))
	k.eventually(func() bool { return k.condition("again", "Ready") == "True Ready" }, "it is corrected")

	k.add("c1", kubeconfig(newCluster(t, "two", "2", "").URL))
	k.eventually(func() bool {
		return strings.HasSuffix(k.condition("c1", "Ready"), "what answers now is that of Cluster again: correct its kubeconfig, or its syncer")
	}, "it is that of another Cluster")
}

// All syncers use the ID of the setup that the controller has.
func TestTheIDOfTheSetup(t *testing.T) {
	k := newKCP(t)
	k.setup = "my-setup"
	k.run()
	c1, c2 := newCluster(t, "one", "1", ""), newCluster(t, "two", "2", "")
	k.serves("c1", "c2")
	k.Apply(t, compute, clusters, "{apiVersion: workloads.kcp.dev/v1alpha1, kind: Cluster, metadata: {name: c1}, spec: {syncMode: None}}")
	t.Cleanup(k.attach("c1", c1))
	k.identify()
	k.add("c2", kubeconfig(c2.URL))
	k.leaf("web-1", "c1")
	k.leaf("web-2", "c2")
	k.eventually(func() bool { return in(c1, "my-setup", "web-1") }, "the syncer uses it")
	k.eventually(func() bool { return in(c2, "my-setup", "web-2") }, "the controller uses it")
	require.Equal(t, "my-setup", k.Get(compute, clusters, "", "c1").GetAnnotations()[api.AnnotationSetup])
}

// Users schedule to a cluster by its label only if all workspaces may use it.
func TestUsersNameOpenClusters(t *testing.T) {
	k := newKCP(t)
	for i, name := range []string{"c1", "c2", "c3"} {
		k.add(name, kubeconfig(newCluster(t, fmt.Sprint("uid-", i), fmt.Sprint(i), "").URL))
	}
	k.run()
	k.identify()
	open := func(list string) func() bool {
		return func() bool {
			o := k.Get(compute, policies, "", "placement.workloads.kcp.dev")
			if o == nil {
				return false
			}
			all, _, _ := unstructured.NestedSlice(o.Object, "spec", "validations")
			text := fmt.Sprint(all)
			return strings.Contains(text, "in ["+list+"] ||") && strings.Contains(text, "username == '"+fakeapi.User+"'")
		}
	}
	k.eventually(open("'c1','c2','c3'"), "all are open")
	k.Apply(t, compute, clusters, "{metadata: {name: c1}, spec: {unschedulable: true}}")
	k.eventually(open("'c2','c3'"), "one is cordoned")
	k.Apply(t, compute, clusters, "{metadata: {name: c2}, spec: {workspaceSelector: {paths: ['root:team']}}}")
	k.eventually(open("'c3'"), "one is restricted")
	k.eventually(func() bool { return len(k.Get(compute, clusters, "", "c3").GetFinalizers()) == 1 }, "the controller has seen it")
	k.Refuse(func(r *http.Request) (int, string) {
		if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/clusters/c3") {
			return http.StatusInternalServerError, "no"
		}
		return 0, ""
	})
	k.Delete(compute, clusters, "", "c3")
	k.eventually(open(""), "one is removed")
	k.Refuse(nil)
	k.Apply(t, compute, clusters, "{metadata: {name: c1}, spec: {unschedulable: false}}")
	k.eventually(open("'c1'"), "it is open again")
	require.True(t, slices.Contains(k.Names(compute, policies), "/cluster-label.workloads.kcp.dev"), "the others stay")
}
