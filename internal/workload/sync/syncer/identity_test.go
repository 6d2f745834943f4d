package syncer

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

// The cluster was registered under another name: it runs on under the new one, and nothing is made a second time.
func TestAClusterWithAnotherName(t *testing.T) {
	s := newSides(t)
	ns := namespaceOf("1a")
	s.physical.Apply(t, "", spaces, fmt.Sprintf(`
{kind: Namespace, apiVersion: v1, metadata: {name: %s, annotations: {has.workloads.kcp.dev/deployments.apps: "true"}, labels: {workloads.kcp.dev/setup: demo-x,
  workloads.kcp.dev/cluster: old, workloads.kcp.dev/workspace: 1a, workloads.kcp.dev/namespace: shop, pod-security.kubernetes.io/enforce: privileged}}}`, ns))
	for name, leaf := range map[string]string{"web": "1a|shop/web--old", "other": "1a|shop/something-else"} {
		s.physical.Apply(t, "", deployments, fmt.Sprintf(`
{kind: Deployment, apiVersion: apps/v1, metadata: {name: %s, namespace: %s, labels: {workloads.kcp.dev/setup: demo-x, workloads.kcp.dev/cluster: old},
  annotations: {workloads.kcp.dev/leaf: %q}}, spec: {replicas: 3}}`, name, ns, leaf))
	}
	before := s.below("1a", deployments, "web").GetUID()
	s.kcp.Apply(t, compute, clusters, `{metadata: {name: c1}, spec: {podSecurity: baseline}}`)
	s.leaf("1a", "web", "{replicas: 1}")
	s.leaf("1a", "other", "{replicas: 1}")
	s.start()
	s.eventually(func() bool { return s.condition("1a", "web") == "True Synced: " }, "it is the same workload")
	web := s.below("1a", deployments, "web")
	require.Equal(t, before, web.GetUID())
	require.Equal(t, "1", field(web, "spec", "replicas"))
	require.Equal(t, "c1", web.GetLabels()[api.LabelCluster])
	s.eventually(func() bool { return strings.HasPrefix(s.condition("1a", "other"), "False NameCollision") }, "another leaf's")
	require.Equal(t, "3", field(s.below("1a", deployments, "other"), "spec", "replicas"))

	k := s.listed()
	k.cluster.Store(s.cluster())
	k.namespacer.secure(t.Context())
	labels := s.physical.Get("", spaces, "", ns).GetLabels()
	require.Equal(t, []string{"c1", "baseline"}, []string{labels[api.LabelCluster], labels[api.LabelPodSecurity]})
}

// An object that another client has created in the cluster is neither overwritten nor deleted.
func TestObjectsOfAdministratorsAreNotTouched(t *testing.T) {
	s := newSides(t)
	ns := namespaceOf("1a")
	s.physical.Apply(t, "", deployments, fmt.Sprintf(`
{kind: Deployment, apiVersion: apps/v1, metadata: {name: web, namespace: %s, labels: {app.kubernetes.io/managed-by: kyverno}}, spec: {replicas: 3}}`, ns))
	s.physical.Apply(t, "", "api/v1/serviceaccounts", fmt.Sprintf(`{kind: ServiceAccount, apiVersion: v1, metadata: {name: default, namespace: %s}}`, ns))
	s.kcp.Apply(t, "1a", "api/v1/serviceaccounts", `
{kind: ServiceAccount, apiVersion: v1, metadata: {name: default--c1, namespace: shop, labels: {workloads.kcp.dev/cluster: c1}, annotations: {workloads.kcp.dev/name: default}},
  imagePullSecrets: [{name: pull}]}`)
	s.leaf("1a", "web", "{replicas: 1}")
	s.start()
	s.eventually(func() bool {
		return strings.Contains(s.condition("1a", "web"), "False NameCollision: Deployment "+ns+"/web of cluster c1 was created by kyverno in the cluster")
	}, "refused")
	s.kcp.Delete("1a", deployments, "shop", "web--c1")
	s.eventually(func() bool { return s.kcp.Get("1a", deployments, "shop", "web--c1") == nil }, "the leaf is gone")
	require.Equal(t, "3", field(s.below("1a", deployments, "web"), "spec", "replicas"))
	s.eventually(func() bool {
		return field(s.below("1a", "api/v1/serviceaccounts", "default"), "imagePullSecrets") != "<nil>"
	}, "each namespace has this one")
}

// A user deletes an object of an API that has become incompatible, that the setup no longer has, or whose schema cannot
// be read at the moment. What its user does not delete continues to run, and is synced again afterwards.
func TestDeletionsNeedNoSchema(t *testing.T) {
	for _, state := range []api.APIState{api.APIIncompatible, api.APIRemoved, api.APIIgnored} {
		t.Run(string(state), func(t *testing.T) {
			s := newSides(t)
			s.start()
			s.leaf("1a", "web", "{replicas: 1}")
			s.leaf("1a", "stays", "{replicas: 1}")
			s.eventually(func() bool {
				return s.condition("1a", "web") == "True Synced: " && s.condition("1a", "stays") == "True Synced: "
			}, "synced")
			s.kcp.Apply(t, compute, clusters, fmt.Sprintf(`{metadata: {name: c1}, status: {apis: [{group: apps, resource: deployments, version: v1, state: %s}]}}`, state))
			s.kcp.Delete("1a", deployments, "shop", "web--c1")
			s.eventually(func() bool { return s.below("1a", deployments, "web") == nil }, "it is deleted in the cluster")
			s.eventually(func() bool { return s.kcp.Get("1a", deployments, "shop", "web--c1") == nil }, "and in kcp")
			require.NotNil(t, s.below("1a", deployments, "stays"))
			s.leaf("1a", "stays", "{replicas: 2}")
			s.kcp.Apply(t, compute, clusters, `{metadata: {name: c1}, status: {apis: [{group: apps, resource: deployments, version: v1, state: Published}]}}`)
			s.eventually(func() bool { return field(s.below("1a", deployments, "stays"), "spec", "replicas") == "2" }, "it is synced again")
		})
	}
}

// The credentials are for another cluster than before.
func TestAnotherClusterIsNotUsed(t *testing.T) {
	s := newSides(t)
	uid := s.cluster().Status.UID
	s.kcp.Apply(t, compute, clusters, `{metadata: {name: c1}, status: {uid: another}}`)
	s.leaf("1a", "web", "{replicas: 1}")
	stop := s.start()
	s.eventually(func() bool {
		state := s.reported.Load()
		return state != nil && state.Objects > 0 && strings.Contains(strings.Join(state.Failures, "\n"), "this is another physical cluster than Cluster c1 was registered for")
	}, "it reports that")
	require.Nil(t, s.below("1a", deployments, "web"))
	require.Empty(t, s.kcp.Get("1a", deployments, "shop", "web--c1").GetFinalizers())
	stop()
	s.kcp.Apply(t, compute, clusters, fmt.Sprintf(`{metadata: {name: c1}, status: {uid: %s}}`, uid))
	s.start()
	s.eventually(func() bool { return s.below("1a", deployments, "web") != nil }, "it is the right one")
}

// Nothing is written to a cluster whose UID is not recorded, such as after the status of its Cluster was lost.
func TestAClusterWithoutARecordedUIDWaits(t *testing.T) {
	s := newSides(t)
	uid := s.cluster().Status.UID
	s.kcp.Apply(t, compute, clusters, `{metadata: {name: c1}, status: {uid: ""}}`)
	s.leaf("1a", "web", "{replicas: 1}")
	s.start()
	s.eventually(func() bool {
		state := s.reported.Load()
		return state != nil && state.Objects > 0 && strings.Contains(strings.Join(state.Failures, "\n"), "the status of Cluster c1 has no UID yet")
	}, "it reports that")
	require.Empty(t, s.physical.Writes())
	require.Empty(t, s.kcp.Get("1a", deployments, "shop", "web--c1").GetFinalizers())
	s.kcp.Apply(t, compute, clusters, fmt.Sprintf(`{metadata: {name: c1}, status: {uid: %s}}`, uid))
	s.eventually(func() bool { return s.condition("1a", "web") == "True Synced: " }, "the controller has recorded it")
}

// Another cluster answers at the address of the first one, with the same authorities, such as after a loss of its etcd.
func TestAClusterThatAnswersInsteadIsNotFilled(t *testing.T) {
	t.Parallel() // a sweep reports it
	s := newSides(t)
	s.start()
	s.leaf("1a", "web", "{replicas: 1}")
	s.eventually(func() bool { return s.condition("1a", "web") == "True Synced: " }, "synced")
	see, see2 := s.physical.Blind(deployments), s.physical.Blind(spaces)
	s.physical.Delete("", deployments, namespaceOf("1a"), "web")
	s.physical.Delete("", spaces, "", namespaceOf("1a"))
	s.physical.Delete("", spaces, "", "kube-system")
	s.physical.Apply(t, "", spaces, "{kind: Namespace, apiVersion: v1, metadata: {name: kube-system}}")
	see()
	see2()
	s.eventually(func() bool {
		state := s.reported.Load()
		return state != nil && strings.Contains(strings.Join(state.Failures, "\n"), "this is another physical cluster than Cluster c1 was registered for")
	}, "it reports that")
	require.Nil(t, s.below("1a", deployments, "web"))
	require.Nil(t, s.physical.Get("", spaces, "", namespaceOf("1a")))
}

// The compute workspace was created again, so that the setup has another ID: its workspaces run in the cluster already.
func TestNothingRunsTwice(t *testing.T) {
	s := newSides(t)
	s.physical.Apply(t, "", spaces, `
{kind: Namespace, apiVersion: v1, metadata: {name: before, labels: {workloads.kcp.dev/setup: another, workloads.kcp.dev/workspace: 1a, workloads.kcp.dev/namespace: shop}}}`)
	k := s.listed()
	k.identify(t.Context())
	require.ErrorContains(t, k.member.blocked(), "namespace before of cluster c1 has objects of workspace 1a under the ID another of a setup, and this one is demo-x: they would run twice")
	require.NoError(t, k.member.replaced(), "deletions are carried out")
	s.leaf("1a", "web", "{replicas: 1}")
	s.eventually(func() bool { return k.queue.Len() > 0 }, "a leaf comes")
	for k.queue.Len() > 0 {
		i, _ := k.queue.Get()
		require.NoError(t, k.sync(t.Context(), i))
		k.queue.Done(i)
	}
	s.physical.Delete("", spaces, "", "before")
	k.identify(t.Context())
	require.NoError(t, k.member.blocked())
	require.NotZero(t, k.queue.Len(), "it comes back")
}

// The syncer has just started, and kcp has not applied the claims of the binding when the first leaf comes.
func TestNothingRunsTwiceBeforeBindingsAreKnown(t *testing.T) {
	s := newSides(t)
	s.start()
	s.leaf("2b", "web", "{replicas: 1}")
	s.eventually(func() bool { return s.condition("2b", "web") == "True Synced: " }, "the syncer has looked, and works")
	s.physical.Apply(t, "", spaces, `
{kind: Namespace, apiVersion: v1, metadata: {name: before, labels: {workloads.kcp.dev/setup: another, workloads.kcp.dev/workspace: 1a, workloads.kcp.dev/namespace: shop}}}`)
	s.leaf("1a", "web", "{replicas: 1}")
	s.eventually(func() bool {
		return strings.HasPrefix(s.condition("1a", "web"), "False OtherSetup: namespace before of cluster c1")
	}, "refused")
	require.Nil(t, s.below("1a", deployments, "web"))
}

// An API server that does not know a resource says nothing about an object.
func TestIsUnserved(t *testing.T) {
	gr := schema.GroupResource{Group: "apps", Resource: "deployments"}
	require.True(t, isUnserved(apierrors.NewGenericServerResponse(http.StatusNotFound, "get", gr, "web", "404 page not found", 0, true)))
	require.False(t, isUnserved(apierrors.NewNotFound(gr, "web")))
	require.False(t, isUnserved(nil))
}

// A namespace that appears between the look and the creation belongs to another client.
func TestANamespaceThatSomebodyElseCreatesMeanwhile(t *testing.T) {
	s := newSides(t)
	k := s.listed()
	s.physical.Apply(t, "", spaces, fmt.Sprintf("{kind: Namespace, apiVersion: v1, metadata: {name: %s}}", namespaceOf("1a")))
	client, err := k.below(namespaces, "")
	require.NoError(t, err)
	i := item{api.Dependencies()[0], keyOf("1a", "web--c1")}
	err = k.namespacer.create(t.Context(), client, namespaceOf("1a"), api.DownstreamLabels("demo-x", "1a", "shop"), i)
	require.ErrorContains(t, err, "does not belong to namespace shop of workspace 1a")
}

func keyOf(cluster, name string) watch.Key {
	return watch.Key{Cluster: cluster, Namespace: "shop", Name: name}
}
