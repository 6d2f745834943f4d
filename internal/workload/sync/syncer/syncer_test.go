package syncer

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeapi"
	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

// The paths of resources.
const (
	deployments = "apis/apps/v1/deployments"
	configMaps  = "api/v1/configmaps"
	secrets     = "api/v1/secrets"
	spaces      = "api/v1/namespaces"
	clusters    = "apis/workloads.kcp.dev/v1alpha1/clusters"
	exports     = "apis/apis.kcp.io/v1alpha1/apiexportendpointslices"
	bindings    = "apis/apis.kcp.io/v1alpha2/apibindings"
)

const compute = "root:compute"

// sides are a kcp and a physical cluster, with a syncer between them.
type sides struct {
	*testing.T
	kcp, physical *fakeapi.Server
	syncer        *syncer
	// now is the clock of syncers that start. Nil: time.Now.
	now func() time.Time
	// reported is the last state that the syncer of a sweeper has reported.
	reported atomic.Pointer[State]
}

func newSides(t *testing.T) *sides {
	t.Helper()
	s := &sides{T: t, kcp: fakeapi.New(t), physical: fakeapi.New(t)}
	system := s.physical.Apply(t, "", spaces, "{kind: Namespace, apiVersion: v1, metadata: {name: kube-system}}")
	s.kcp.Apply(t, compute, clusters, fmt.Sprintf(`
apiVersion: workloads.kcp.dev/v1alpha1
kind: Cluster
metadata: {name: c1}
status: {uid: %s, apis: [{group: apps, resource: deployments, version: v1, state: Published}, {group: batch, resource: jobs, version: v1, state: Incompatible}]}`, system.GetUID()))
	s.kcp.Apply(t, compute, exports, fmt.Sprintf(`
apiVersion: apis.kcp.io/v1alpha1
kind: APIExportEndpointSlice
metadata: {name: cluster-c1}
status: {endpoints: [{url: "%s/services/apiexport/xyz/cluster-c1"}]}`, s.kcp.URL))
	return s
}

// bind binds the APIExport of the cluster in a workspace.
func (s *sides) bind(cluster string) {
	s.Helper()
	s.kcp.Apply(s, cluster, bindings, `
apiVersion: apis.kcp.io/v1alpha2
kind: APIBinding
metadata: {name: cluster-c1}
status:
  conditions: [{type: PermissionClaimsApplied, status: "True"}]
  appliedPermissionClaims: [{group: "", resource: configmaps}, {group: "", resource: secrets}, {group: apps, resource: deployments, identityHash: id}]`)
}

// start runs a syncer until the returned function is called.
func (s *sides) start() (stop func()) {
	s.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	now := time.Now
	if s.now != nil {
		now = s.now
	}
	go func() {
		done <- Run(ctx, Options{
			KCP: &rest.Config{Host: s.kcp.URL}, Workspace: compute, Physical: &rest.Config{Host: s.physical.URL},
			Cluster: "c1", Setup: "demo-x", Now: now, Report: func(next State) { s.reported.Store(&next) },
		})
	}()
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			cancel()
			require.NoError(s, <-done)
		}
	}
	s.Cleanup(stop)
	return stop
}

func (s *sides) eventually(condition func() bool, what string) {
	s.Helper()
	require.Eventually(s, condition, time.Minute, 10*time.Millisecond, what)
}

func (s *sides) leaf(cluster, name, spec string) {
	s.Helper()
	s.kcp.Apply(s, cluster, deployments, fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: %s--c1, namespace: shop, labels: {workloads.kcp.dev/cluster: c1}, annotations: {workloads.kcp.dev/name: %s}}
spec: %s`, name, name, spec))
}

func namespaceOf(cluster string) string { return api.DownstreamNamespace("demo-x", cluster, "shop") }

func (s *sides) below(cluster, path, name string) *unstructured.Unstructured {
	return s.physical.Get("", path, namespaceOf(cluster), name)
}

func field(o *unstructured.Unstructured, path ...string) string {
	if o == nil {
		return ""
	}
	v, _, _ := unstructured.NestedFieldNoCopy(o.Object, path...)
	return fmt.Sprint(v)
}

func (s *sides) condition(cluster, name string) string {
	o := s.kcp.Get(cluster, deployments, "shop", name+"--c1")
	if o == nil {
		return ""
	}
	c := api.ConditionIn(o, api.ConditionSynced)
	if c == nil {
		return ""
	}
	return fmt.Sprint(c.Status, " ", c.Reason, ": ", c.Message)
}

func TestSyncsDownAndUpAndRemoves(t *testing.T) {
	s := newSides(t)
	s.start()
	s.leaf("1a", "web", "{replicas: 1}")
	s.leaf("2b", "web", "{replicas: 2}")
	s.kcp.Apply(t, "1a", configMaps, `
apiVersion: v1
kind: ConfigMap
metadata: {name: web--c1, namespace: shop, labels: {workloads.kcp.dev/cluster: c1}, annotations: {workloads.kcp.dev/name: web}}
data: {a: b}`)
	s.kcp.Apply(t, "1a", configMaps, `
apiVersion: v1
kind: ConfigMap
metadata: {name: other, namespace: shop, labels: {workloads.kcp.dev/cluster: c2}}`)
	s.eventually(func() bool {
		return field(s.below("1a", deployments, "web"), "spec", "replicas") == "1" && field(s.below("2b", deployments, "web"), "spec", "replicas") == "2" &&
			field(s.below("1a", configMaps, "web"), "data", "a") == "b"
	}, "objects of both workspaces are in namespaces of their own")
	require.Len(t, s.physical.Names("", configMaps), 1, "what is for another cluster stays where it is")
	require.Equal(t, map[string]string{
		api.LabelSetup: "demo-x", api.LabelWorkspace: "1a", api.LabelNamespace: "shop", api.LabelCluster: "c1",
		api.LabelPodSecurity: "baseline",
	}, s.physical.Get("", spaces, "", namespaceOf("1a")).GetLabels())

	s.physical.Apply(t, "", deployments, fmt.Sprintf(`
metadata: {name: web, namespace: %s}
status: {replicas: 1, readyReplicas: 1, observedGeneration: 1}`, namespaceOf("1a")))
	s.eventually(func() bool {
		return field(s.kcp.Get("1a", deployments, "shop", "web--c1"), "status", "readyReplicas") == "1"
	}, "the status comes up")
	s.eventually(func() bool { return s.condition("2b", "web") == "True Synced: " }, "Synced")

	s.leaf("1a", "web", "{replicas: 3}")
	s.eventually(func() bool { return field(s.below("1a", deployments, "web"), "spec", "replicas") == "3" }, "a change goes down")
	s.physical.Apply(t, "", deployments, fmt.Sprintf(`{metadata: {name: web, namespace: %s}, spec: {replicas: 9}}`, namespaceOf("1a")))
	s.eventually(func() bool { return field(s.below("1a", deployments, "web"), "spec", "replicas") == "3" }, "a change in the cluster is undone")

	s.kcp.Delete("1a", deployments, "shop", "web--c1")
	s.kcp.Delete("1a", configMaps, "shop", "web--c1")
	s.eventually(func() bool {
		return s.below("1a", deployments, "web") == nil && s.kcp.Get("1a", deployments, "shop", "web--c1") == nil &&
			s.below("1a", configMaps, "web") == nil && s.kcp.Get("1a", configMaps, "shop", "web--c1") == nil
	}, "a deletion goes down, and then the finalizer is removed")
	require.NotNil(t, s.below("2b", deployments, "web"))
}

// A write may be repeated while the syncer has not seen its result yet.
func TestWritesOnlyChanges(t *testing.T) {
	s := newSides(t)
	stop := s.start()
	s.leaf("1a", "web", "{replicas: 1}")
	s.eventually(func() bool { return s.condition("1a", "web") == "True Synced: " }, "synced")
	stop() // until the syncer has seen its own write, it can write the same again
	require.Equal(t, []string{
		"PATCH apis/apps/v1/deployments shop/web--c1", "PATCH apis/apps/v1/deployments shop/web--c1 status",
	}, slices.Compact(s.kcp.Writes()), "the finalizer and the status")
	require.Equal(t, []string{
		"POST api/v1/namespaces /" + namespaceOf("1a"), "PATCH apis/apps/v1/deployments " + namespaceOf("1a") + "/web",
	}, slices.Compact(s.physical.Writes()))
	s.start()
	s.leaf("1a", "second", "{replicas: 1}")
	s.eventually(func() bool { return s.condition("1a", "second") == "True Synced: " }, "synced by the next syncer")
	require.Equal(t, []string{
		"PATCH apis/apps/v1/deployments shop/second--c1", "PATCH apis/apps/v1/deployments shop/second--c1 status",
	}, slices.Compact(s.kcp.Writes()), "nothing is written for what is synced")
}

// A webhook of the cluster does not answer for the objects of one workspace. Those of others do not wait for it.
func TestAWorkspaceHoldsHalfOfTheWorkers(t *testing.T) {
	s := newSides(t)
	hang, held := make(chan struct{}), atomic.Int32{}
	defer close(hang)
	s.physical.Refuse(func(r *http.Request) (int, string) {
		if r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "/namespaces/"+namespaceOf("1a")+"/deployments/") {
			held.Add(1)
			<-hang
		}
		return 0, ""
	})
	s.start()
	for n := range 20 {
		s.leaf("1a", fmt.Sprint("web-", n), "{replicas: 1}")
	}
	s.eventually(func() bool { return held.Load() > 0 }, "they hang")
	time.Sleep(100 * time.Millisecond)
	s.leaf("2b", "web", "{replicas: 1}")
	require.Eventually(t, func() bool { return s.condition("2b", "web") == "True Synced: " }, 10*time.Second, 10*time.Millisecond)
	require.LessOrEqual(t, held.Load(), int32(4))
}

// kubectl replace --force deletes an object and creates another one, which has the same generation.
func TestAnObjectThatIsReplacedIsCorrected(t *testing.T) {
	s := newSides(t)
	s.start()
	s.leaf("1a", "web", "{replicas: 1}")
	s.eventually(func() bool { return s.condition("1a", "web") == "True Synced: " }, "synced")
	other := s.below("1a", deployments, "web")
	require.EqualValues(t, 1, other.GetGeneration())
	see := s.physical.Blind(deployments)
	s.physical.Delete("", deployments, namespaceOf("1a"), "web")
	require.NoError(t, unstructured.SetNestedField(other.Object, int64(9), "spec", "replicas"))
	other.SetUID("")
	other.SetResourceVersion("")
	raw, err := other.MarshalJSON()
	require.NoError(t, err)
	s.physical.Apply(t, "", deployments, string(raw))
	require.EqualValues(t, 1, s.below("1a", deployments, "web").GetGeneration())
	see()
	s.eventually(func() bool { return field(s.below("1a", deployments, "web"), "spec", "replicas") == "1" }, "corrected")
}

func TestRefusalsAreConditions(t *testing.T) {
	s := newSides(t)
	s.physical.Apply(t, "", spaces, `{apiVersion: v1, kind: Namespace, metadata: {name: `+namespaceOf("1a")+`}}`)
	refuse := atomic.Pointer[string]{}
	s.physical.Refuse(func(r *http.Request) (int, string) {
		if m := refuse.Load(); m != nil && r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "/deployments/") {
			return http.StatusForbidden, *m
		}
		return 0, ""
	})
	s.start()
	s.leaf("1a", "web", "{replicas: 1}")
	s.eventually(func() bool {
		return strings.HasPrefix(s.condition("1a", "web"), "False NamespaceCollision: namespace "+namespaceOf("1a"))
	}, "collision")
	require.Nil(t, s.below("1a", deployments, "web"), "nothing is written to it")

	quota := "deployments.apps \"web\" is forbidden: exceeded quota: compute"
	refuse.Store(&quota)
	s.leaf("2b", "web", "{replicas: 1}")
	s.eventually(func() bool { return strings.HasPrefix(s.condition("2b", "web"), "False QuotaExceeded: ") }, "quota")
	denied := "admission webhook denied the request: no root"
	refuse.Store(&denied)
	s.leaf("2b", "web", "{replicas: 2}")
	s.eventually(func() bool { return strings.HasPrefix(s.condition("2b", "web"), "False Denied: ") }, "denied")
	refuse.Store(nil)
	s.leaf("2b", "web", "{replicas: 3}")
	s.eventually(func() bool { return s.condition("2b", "web") == "True Synced: " }, "synced")

	s.physical.Apply(t, "", deployments, fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: taken, namespace: %s, annotations: {workloads.kcp.dev/leaf: "2b|shop/other"}}`, namespaceOf("2b")))
	s.leaf("2b", "taken", "{replicas: 1}")
	s.eventually(func() bool { return strings.HasPrefix(s.condition("2b", "taken"), "False NameCollision: ") }, "name")
}

func TestKindsWithoutConditions(t *testing.T) {
	s := newSides(t)
	k := s.sweeper(s.kcp.URL)
	r := schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"}
	path := "apis/networking.k8s.io/v1/ingresses"
	leaf := s.kcp.Apply(t, "1a", path, `
{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: web, namespace: shop, labels: {workloads.kcp.dev/cluster: c1}}}`)
	write := func(o outcome) {
		i := item{r, watch.Key{Cluster: "1a", Namespace: "shop", Name: "web"}}
		require.NoError(t, k.writeStatus(t.Context(), i, watch.Object{Unstructured: s.kcp.Get("1a", path, "shop", "web"), Endpoint: s.kcp.URL}, leaf, o))
	}
	write(outcome{api.ReasonDenied, "the name is reserved"})
	got := s.kcp.Get("1a", path, "shop", "web")
	require.Equal(t, "Denied: the name is reserved", got.GetAnnotations()[api.AnnotationSyncError])
	require.NotContains(t, got.Object, "status", "its status has no conditions")
	write(synced())
	require.Empty(t, s.kcp.Get("1a", path, "shop", "web").GetAnnotations()[api.AnnotationSyncError])
}

// A kind can require more of each condition than kcpctl knows: only the outcome is in an annotation instead.
func TestConditionsThatNeedMoreFields(t *testing.T) {
	s := newSides(t)
	s.kcp.Refuse(fakeapi.NeedsUpdateTimes)
	deny := atomic.Bool{}
	s.physical.Refuse(func(r *http.Request) (int, string) {
		if deny.Load() && r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "/deployments/") {
			return http.StatusForbidden, "denied the request: no"
		}
		return 0, ""
	})
	s.start()
	s.leaf("1a", "web", "{replicas: 1}")
	leaf := func() *unstructured.Unstructured { return s.kcp.Get("1a", deployments, "shop", "web--c1") }
	for n := range 2 {
		deny.Store(n == 1)
		s.leaf("1a", "web", fmt.Sprintf("{replicas: %d}", n+1))
		s.eventually(func() bool { return s.below("1a", deployments, "web") != nil }, "it is there")
		s.physical.Apply(t, "", deployments, fmt.Sprintf(`
{metadata: {name: web, namespace: %s}, status: {readyReplicas: %d, conditions: [{type: Available, status: "True", lastUpdateTime: now}]}}`, namespaceOf("1a"), n+1))
		s.eventually(func() bool {
			return field(leaf(), "status", "readyReplicas") == fmt.Sprint(n+1) &&
				strings.HasPrefix(leaf().GetAnnotations()[api.AnnotationSyncError], "Denied: ") == deny.Load()
		}, "the status comes up")
		require.Equal(t, "[map[lastUpdateTime:now status:True type:Available]]", field(leaf(), "status", "conditions"))
	}
}

// A status that is written while the watch is late would otherwise be partly an old one.
func TestAStatusIsForTheVersionThatWasRead(t *testing.T) {
	s := newSides(t)
	k := s.sweeper(s.kcp.URL)
	r := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	object := func(name string, replicas, updated int) *unstructured.Unstructured {
		return s.kcp.Apply(t, "1a", deployments, fmt.Sprintf(`
{apiVersion: apps/v1, kind: Deployment, metadata: {name: %s, namespace: shop, labels: {workloads.kcp.dev/cluster: c1}}, spec: {replicas: 4},
  status: {replicas: %d, updatedReplicas: %d}}`, name, replicas, updated))
	}
	write := func(leaf *unstructured.Unstructured) error {
		i := item{r, watch.Key{Cluster: "1a", Namespace: "shop", Name: "web"}}
		return k.writeStatus(t.Context(), i, watch.Object{Unstructured: leaf, Endpoint: s.kcp.URL}, object("below", 5, 4), synced())
	}
	counts := func() string {
		status, _, _ := unstructured.NestedMap(s.kcp.Get("1a", deployments, "shop", "web").Object, "status")
		return fmt.Sprint(status["replicas"], " ", status["updatedReplicas"])
	}
	old := object("web", 5, 3)
	current := object("web", 4, 3)
	require.True(t, apierrors.IsConflict(write(old)))
	require.Equal(t, "4 3", counts())
	require.NoError(t, write(current))
	require.Equal(t, "5 4", counts())
}
