package controller_test

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeapi"
	"github.com/kcpctl/kcpctl/internal/workload/server/controller"
)

const configMaps = "api/v1/configmaps"

// join adds a Cluster whose syncer runs beside it.
func (k *kcp) join(name string, server *fakeapi.Server) {
	k.Helper()
	k.Apply(k, compute, clusters, fmt.Sprintf(`
apiVersion: workloads.kcp.dev/v1alpha1
kind: Cluster
metadata: {name: %s, creationTimestamp: "2026-01-0%dT00:00:00Z"}
spec: {syncMode: None}`, name, len(k.Names(compute, clusters))+1))
	k.Cleanup(k.attach(name, server))
}

// attach runs the syncer of a cluster, until the function that it returns is called.
func (k *kcp) attach(name string, server *fakeapi.Server) (stop func()) {
	k.Helper()
	return k.runMember(k.member(name, server))
}

func (k *kcp) member(name string, server *fakeapi.Server) controller.Member {
	return controller.HurriedMember(controller.Member{
		KCP: &rest.Config{Host: k.URL}, Physical: &rest.Config{Host: server.URL}, Workspace: compute, Cluster: name, Version: "v1", Holder: name, Now: time.Now,
	})
}

func (k *kcp) runMember(m controller.Member) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- controller.RunSyncer(ctx, m) }()
	return func() {
		cancel()
		require.NoError(k, <-done)
	}
}

// No cluster needs to be in push mode: what syncers report is published, compared, and changed on request, as of
// clusters that the controller reads.
func TestSyncersReportWhatTheirClustersServe(t *testing.T) {
	k := newKCP(t)
	k.run()
	k.join("c1", newCluster(t, "one", "1", ", paused: {type: boolean}"))
	k.identify()
	k.eventually(func() bool {
		return k.condition("c1", "Ready") == "True Ready" && fmt.Sprint(k.apis("c1")) == "[deployments.apps v1 Published <nil>]"
	}, "the cluster is ready")
	require.Contains(t, k.published(), "paused")
	o := k.Get(compute, configMaps, "default", "cluster-c1.deployments.apps")
	require.Equal(t, k.Get(compute, clusters, "", "c1").GetUID(), o.GetOwnerReferences()[0].UID, "it goes with the Cluster")

	k.join("c2", newCluster(t, "two", "2", ""))
	k.eventually(func() bool {
		return k.condition("c2", "APIsCompatible") == "False SchemaIncompatible: deployments.apps: spec.paused: the field is missing"
	}, "c2 would make it narrower")
	k.Apply(t, compute, clusters, fmt.Sprintf("{metadata: {name: c2, annotations: {workloads.kcp.dev/accept-schema: %q}}}", k.offer("c2").Value))
	k.eventually(func() bool { return k.condition("c2", "APIsCompatible") == "True Compatible" }, "c2 can serve it")
	require.NotContains(t, k.published(), "paused")

	require.Len(t, k.Names(compute, schemas), 2, "the one before stays while it may be in use")
}

// The controller adds the APIs to the status of a new Cluster when it sees it, and others when the setup has more. The
// syncer reports them as soon as they are there: in this test, no time passes for it.
func TestSyncersReportAPIsWhenTheStatusHasThem(t *testing.T) {
	k := newKCP(t)
	k.Apply(t, compute, clusters, "{apiVersion: workloads.kcp.dev/v1alpha1, kind: Cluster, "+
		"metadata: {name: c1, annotations: {workloads.kcp.dev/setup-id: compute}}, spec: {syncMode: None}}")
	c1 := newCluster(t, "one", "1", "")
	c1.Serve("/api/v1", "resources: []")
	looked := make(chan struct{}, 100)
	m := k.member("c1", c1)
	t.Cleanup(k.runMember(controller.WithAfter(m, func(time.Duration) <-chan time.Time {
		looked <- struct{}{}
		return nil
	})))
	<-looked
	for _, apis := range []string{"{group: apps, resource: deployments}", "{group: apps, resource: deployments}, {resource: services}"} {
		k.Apply(t, compute, clusters, "{metadata: {name: c1}, status: {uid: one, apis: ["+apis+"]}}")
		k.eventually(func() bool { return len(k.Names(compute, configMaps)) == strings.Count(apis, "resource") }, apis)
	}
}

// report writes the ConfigMap of a Cluster as its syncer would, and sends a heartbeat.
func (k *kcp) report(cluster string, uid types.UID, content string) {
	k.Helper()
	k.Apply(k, compute, configMaps, fmt.Sprintf(`
apiVersion: v1
kind: ConfigMap
metadata:
  name: cluster-%[1]s.deployments.apps
  namespace: default
  ownerReferences: [{apiVersion: workloads.kcp.dev/v1alpha1, kind: Cluster, name: %[1]s, uid: %[2]s}]
binaryData: {api.json.gz: %[3]s}`, cluster, uid, content))
	k.Apply(k, compute, leases, fmt.Sprintf(`
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: cluster-%[1]s, namespace: default, annotations: {workloads.kcp.dev/report: '{"clusterUID":"uid-of-%[1]s","clusterVersion":"v1"}'}}
spec: {holderIdentity: x}`, cluster))
}

// The controller watches the ConfigMaps: a change counts without a heartbeat. One that is gone says nothing, and one of
// another Cluster that had the name says nothing either.
func TestReportsAreWatched(t *testing.T) {
	k := newKCP(t)
	k.serves()
	k.run()
	add := func(name string) types.UID {
		return k.Apply(t, compute, clusters, "{apiVersion: workloads.kcp.dev/v1alpha1, kind: Cluster, metadata: {name: "+name+"}, spec: {syncMode: None}}").GetUID()
	}
	content := func(name string) string {
		text, _, _ := unstructured.NestedString(k.Get(compute, configMaps, "default", "cluster-"+name+".deployments.apps").Object, "binaryData", "api.json.gz")
		return text
	}
	add("c1")
	leave := k.attach("c1", newCluster(t, "one", "1", ", paused: {type: boolean}"))
	k.identify()
	k.eventually(func() bool {
		report := k.Get(compute, leases, "default", "cluster-c1").GetAnnotations()["workloads.kcp.dev/report"]
		return fmt.Sprint(k.apis("c1")) == "[deployments.apps v1 Published <nil>]" &&
			strings.Contains(report, "clusterVersion") && !strings.Contains(report, "schemasProblem")
	}, "c1 is read, and its syncer has nothing else to report")
	leave()
	const missing = "False SchemaIncompatible: deployments.apps: spec.paused: the field is missing"
	add("c2")
	leave = k.attach("c2", newCluster(t, "two", "2", ""))
	k.eventually(func() bool { return k.condition("c2", "APIsCompatible") == missing }, "c2 has less")
	leave()

	narrow := content("c2")
	k.Apply(t, compute, configMaps, "{metadata: {name: cluster-c1.deployments.apps, namespace: default}, binaryData: {api.json.gz: "+narrow+"}}")
	k.eventually(func() bool { return k.condition("c1", "APIsCompatible") == missing }, "c1 has less")
	k.Delete(compute, configMaps, "default", "cluster-c1.deployments.apps")
	k.settled("c1")
	require.Equal(t, missing, k.condition("c1", "APIsCompatible"))
	k.run()
	k.settled("c1")
	require.Equal(t, missing, k.condition("c1", "APIsCompatible"), "also after a restart")

	k.Delete(compute, clusters, "", "c2")
	k.eventually(func() bool { return k.Get(compute, clusters, "", "c2") == nil }, "c2 is removed")
	k.report("c2", "earlier", narrow)
	uid := add("c2")
	k.settled("c2")
	require.Equal(t, []string{"deployments.apps <nil> Ignored the syncer has not reported the API yet"}, k.apis("c2"), "another one under the name")
	k.report("c2", uid, narrow)
	k.eventually(func() bool { return k.condition("c2", "APIsCompatible") == missing }, "it reports")
}

// A cluster has no APIs before its syncer has reported all of them: the command that adds it prints what it can serve.
func TestAFirstReportIsComplete(t *testing.T) {
	k := newKCP(t)
	k.start(deploymentAPI, schema.GroupResource{Resource: "services"})
	k.join("c1", newCluster(t, "one", "1", ""))
	k.identify()
	published := "deployments.apps v1 Published <nil>"
	k.eventually(func() bool { return slices.Contains(k.apis("c1"), published) }, "c1 is read")
	contentOf := func(api string) string {
		o := k.Get(compute, configMaps, "default", "cluster-c1."+api)
		text, _, _ := unstructured.NestedString(o.Object, "binaryData", "api.json.gz")
		return text
	}
	k.report("c2", "earlier", contentOf("deployments.apps")) // an earlier Cluster had the name
	uid := k.Apply(t, compute, clusters, "{apiVersion: workloads.kcp.dev/v1alpha1, kind: Cluster, metadata: {name: c2}, spec: {syncMode: None}}").GetUID()
	k.eventually(func() bool { return len(k.apis("c2")) == 2 }, "the controller has seen it")
	k.report("c2", uid, contentOf("deployments.apps"))
	k.settled("c2")
	require.NotContains(t, k.apis("c2"), published)
	k.Apply(t, compute, configMaps, fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, binaryData: {api.json.gz: %s}, metadata: {name: cluster-c2.services, "+
		"namespace: default, ownerReferences: [{apiVersion: workloads.kcp.dev/v1alpha1, kind: Cluster, name: c2, uid: %s}]}}", contentOf("services"), uid))
	k.eventually(func() bool { return slices.Contains(k.apis("c2"), published) }, "it is complete")
}

// What syncers write is not trusted: a report that cannot be read is a condition, and changes nothing.
func TestReportsThatCannotBeRead(t *testing.T) {
	k := newKCP(t)
	k.run()
	k.join("c1", newCluster(t, "one", "1", ""))
	k.identify()
	before := []string{"deployments.apps v1 Published <nil>"}
	k.eventually(func() bool { return fmt.Sprint(k.apis("c1")) == fmt.Sprint(before) }, "the cluster is read")

	k.Apply(t, compute, clusters, "{apiVersion: workloads.kcp.dev/v1alpha1, kind: Cluster, metadata: {name: bad}, spec: {syncMode: None}}")
	k.report("bad", k.Get(compute, clusters, "", "bad").GetUID(), "AAAA")
	k.eventually(func() bool {
		return strings.HasPrefix(k.condition("bad", "APIsCompatible"), "Unknown SchemasUnreadable: ConfigMap default/cluster-bad.deployments.apps: key api.json.gz: ")
	}, "the condition has the cause")
	require.Equal(t, []string{"deployments.apps <nil> Ignored the syncer has not reported the API yet"}, k.apis("bad"))
	require.Equal(t, before, k.apis("c1"))

	// kcp checks the schemas: one that it refuses concerns its cluster only.
	k.Refuse(func(r *http.Request) (int, string) {
		if r.Method == http.MethodPost && r.URL.Query().Get("dryRun") == "All" {
			return http.StatusUnprocessableEntity, "spec.versions[0].schema: Invalid value"
		}
		return 0, ""
	})
	k.join("refused", newCluster(t, "two", "2", ", replicaz: {type: integer}"))
	k.eventually(func() bool {
		return fmt.Sprint(k.apis("refused")) == "[deployments.apps v1 Ignored kcp refuses its schema: spec.versions[0].schema: Invalid value]"
	}, "the status has the cause")
	require.Equal(t, before, k.apis("c1"))
	k.Refuse(nil)
}

// The heartbeat of a syncer whose report kcp does not accept has the reason.
func TestReportsThatCannotBeWritten(t *testing.T) {
	k := newKCP(t)
	k.run()
	k.Refuse(func(r *http.Request) (int, string) {
		if r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "configmaps") {
			return http.StatusForbidden, "no"
		}
		return 0, ""
	})
	k.join("c1", newCluster(t, "one", "1", ""))
	k.eventually(func() bool {
		return k.condition("c1", "APIsCompatible") == "Unknown SchemasUnreadable: the syncer cannot report the APIs of the cluster: "+
			"apply ConfigMap default/cluster-c1.deployments.apps in workspace compute: no"
	}, "the condition has the cause")
	require.Equal(t, []string{"deployments.apps <nil> Ignored the syncer has not reported the API yet"}, k.apis("c1"))
}

// A syncer that does not know which cluster it is in reports no APIs, but the reason.
func TestReportsOfAClusterThatIsNotKnown(t *testing.T) {
	k := newKCP(t)
	k.run()
	c1 := newCluster(t, "one", "1", "")
	c1.Refuse(func(r *http.Request) (int, string) {
		if strings.HasSuffix(r.URL.Path, "/namespaces/kube-system") {
			return http.StatusForbidden, "no"
		}
		return 0, ""
	})
	k.join("c1", c1)
	k.eventually(func() bool {
		return k.condition("c1", "APIsCompatible") == "Unknown SchemasUnreadable: the syncer cannot report the APIs of the cluster: read namespace kube-system: no"
	}, "the condition has the cause")
	require.Empty(t, k.Names(compute, configMaps))
	c1.Refuse(nil)
	k.identify()
	k.eventually(func() bool { return k.condition("c1", "APIsCompatible") == "True Compatible" }, "it is known")
}

// The controller reads the ConfigMaps when it starts, also if the syncers do not.
func TestReportsThatAreDeletedOrChangedComeBack(t *testing.T) {
	k := newKCP(t)
	k.run()
	content := func(cluster string) any {
		if o := k.Get(compute, configMaps, "default", "cluster-"+cluster+".deployments.apps"); o != nil {
			return o.Object["binaryData"]
		}
		return nil
	}
	k.join("c1", newCluster(t, "one", "1", ""))
	k.join("c2", newCluster(t, "two", "2", ""))
	k.identify()
	for _, name := range []string{"c1", "c2"} {
		k.eventually(func() bool { return fmt.Sprint(k.apis(name)) == "[deployments.apps v1 Published <nil>]" }, "the API is published")
	}
	deleted, changed := content("c1"), content("c2")
	k.Delete(compute, configMaps, "default", "cluster-c1.deployments.apps")
	k.Apply(t, compute, configMaps, "{metadata: {name: cluster-c2.deployments.apps, namespace: default}, binaryData: {api.json.gz: AAAA}}")
	k.eventually(func() bool { return reflect.DeepEqual(content("c1"), deleted) }, "it is written again")
	k.eventually(func() bool { return reflect.DeepEqual(content("c2"), changed) }, "the change is reverted")
}

// The controller reports what a cluster in push mode serves, as the syncer did before.
func TestAClusterIsPushedFromNowOn(t *testing.T) {
	k := newKCP(t)
	k.run()
	server := newCluster(t, "one", "1", "")
	k.Apply(t, compute, clusters, "{apiVersion: workloads.kcp.dev/v1alpha1, kind: Cluster, metadata: {name: c1}, spec: {syncMode: None}}")
	leave := k.attach("c1", server)
	k.identify()
	published := func() bool { return fmt.Sprint(k.apis("c1")) == "[deployments.apps v1 Published <nil>]" }
	k.eventually(published, "the syncer reports")
	leave()
	k.add("c1", kubeconfig(server.URL))
	k.eventually(func() bool {
		m, _, _ := unstructured.NestedString(k.Get(compute, clusters, "", "c1").Object, "status", "syncer", "mode")
		return m == "Push"
	}, "the controller syncs")
	require.True(t, published())
	k.Delete(compute, configMaps, "default", "cluster-c1.deployments.apps")
	k.eventually(func() bool { return k.Get(compute, configMaps, "default", "cluster-c1.deployments.apps") != nil }, "it is written again")
	require.True(t, published())
}

// kcp does not allow a syncer to report an API that the setup no longer has. The cluster is not the worse for that.
func TestAnAPIThatTheSetupNoLongerHas(t *testing.T) {
	k := newKCP(t)
	k.run()
	c1 := newCluster(t, "one", "1", "")
	c1.Serve("/api/v1", "resources: []")
	k.join("c1", c1)
	k.identify()
	k.eventually(func() bool { return fmt.Sprint(k.apis("c1")) == "[deployments.apps v1 Published <nil>]" }, "the API is published")
	k.Refuse(func(r *http.Request) (int, string) {
		if strings.HasSuffix(r.URL.Path, "configmaps/cluster-c1.deployments.apps") {
			return http.StatusForbidden, "no"
		}
		return 0, ""
	})
	k.start(schema.GroupResource{Resource: "services"})
	k.eventually(func() bool {
		apis := k.apis("c1")
		return len(apis) == 2 && apis[0] == "services. <nil> Ignored the cluster does not serve services" && strings.HasPrefix(apis[1], "deployments.apps v1 Removed the setup no longer has the API.")
	}, "the status has the reason, and the syncer reports the others")
	k.eventually(func() bool { return k.condition("c1", "APIsCompatible") == "True Compatible" }, "the cluster is well")
	require.Contains(t, fmt.Sprint(k.Get(compute, exports, "", "kubernetes").Object["spec"]), "deployments", "objects of users can be reached")

	k.Refuse(nil)
	k.Delete(compute, configMaps, "default", "cluster-c1.deployments.apps")
	k.Apply(t, compute, clusters, fmt.Sprintf("{metadata: {name: c1, annotations: {%s: deployments.apps}}}", api.AnnotationAcceptSchema))
	k.eventually(func() bool {
		return k.Get(compute, clusters, "", "c1").GetAnnotations()[api.AnnotationAcceptSchema] == ""
	}, "a request about it does not wait")
	k.run()
	k.eventually(func() bool { return fmt.Sprint(k.apis("c1")) == "[deployments.apps v1 Published <nil>]" }, "the syncer reports it again")
}

// A cluster that is registered a second time is not used, also if its syncer reads it.
func TestSyncersOfTheSameCluster(t *testing.T) {
	k := newKCP(t)
	c1, c3 := newCluster(t, "one", "1", ""), newCluster(t, "three", "3", "")
	k.add("c1", kubeconfig(c1.URL))
	k.run()
	k.identify()
	k.eventually(func() bool { return k.condition("c1", "Ready") == "True Ready" }, "the cluster is ready")
	for name, server := range map[string]*fakeapi.Server{"c2": c1, "c3": c3} {
		k.join(name, server)
	}
	k.eventually(func() bool { return k.condition("c3", "Ready") == "True Ready" }, "another cluster is used")
	k.join("c4", c3)
	for name, older := range map[string]string{"c2": "c1", "c4": "c3"} {
		want := fmt.Sprintf("False DuplicateCluster: Cluster %s is the same physical cluster: delete one of them", older)
		k.eventually(func() bool { return k.condition(name, "Ready") == want }, name)
		require.NotContains(t, fmt.Sprint(k.apis(name)), "Published")
	}
}
