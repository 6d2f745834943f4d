package roots_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeapi"
)

// The leaf of a Deployment that was deleted stays until its pods are gone.
func TestARootWaitsForTheLeafOfAnEarlierOne(t *testing.T) {
	s := start(t)
	s.Server.Apply(t, "1a", deployments, `
kind: Deployment
metadata: {name: web--c1, namespace: shop, finalizers: [stays], labels: {workloads.kcp.dev/cluster: c1}, annotations: {workloads.kcp.dev/name: web},
  ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: web, uid: earlier}]}
spec: {replicas: 7}
status: {replicas: 7, readyReplicas: 7, observedGeneration: 1}`)
	s.Server.Delete("1a", deployments, "shop", "web--c1")
	s.clusters(cluster("c1", true, 0))
	s.deploy(web)
	s.eventually(func() bool { return s.scheduled() == "True Scheduled: " }, "it is scheduled")
	status, _, _ := unstructured.NestedMap(s.Get("1a", deployments, "shop", "web").Object, "status")
	require.NotContains(t, status, "readyReplicas", "these are not its pods")
	require.Equal(t, "c1=7", s.leaves())
	s.Server.Apply(t, "1a", deployments, `{metadata: {name: web--c1, namespace: shop, finalizers: []}}`)
	s.eventually(func() bool { return s.leaves() == "c1=4" }, "it has a leaf")
}

// kcp drops fields that the schema of a kind does not have, without an error.
func TestAKindWithoutConditionsHasTheReasonInAnAnnotation(t *testing.T) {
	s := start(t)
	s.Drop(deployments, "conditions")
	s.clusters(cluster("c1", false, 0))
	s.deploy(web)
	reason := func() string {
		return s.Get("1a", deployments, "shop", "web").GetAnnotations()[api.AnnotationScheduleError]
	}
	s.eventually(func() bool { return strings.HasPrefix(reason(), "NoCluster: none of 1 clusters can run it") }, "the reason")
	s.clusters(cluster("c1", true, 0))
	s.eventually(func() bool { return s.leaves() == "c1=4" && reason() == "" }, "scheduled")
}

// A kind can require more of each condition than kcpctl knows: the status comes up, and an annotation has the reason.
func TestConditionsThatNeedMoreFields(t *testing.T) {
	s := start(t)
	s.Refuse(fakeapi.NeedsUpdateTimes)
	s.clusters(cluster("c1", true, 0))
	s.deploy(web)
	s.eventually(func() bool { return s.leaves() == "c1=4" }, "it has a leaf")
	s.Server.Apply(t, "1a", deployments, `
{metadata: {name: web--c1, namespace: shop}, status: {replicas: 4, conditions: [{type: Available, status: "True", lastUpdateTime: now}]}}`)
	root := func() *unstructured.Unstructured { return s.Get("1a", deployments, "shop", "web") }
	s.eventually(func() bool {
		status, _, _ := unstructured.NestedMap(root().Object, "status")
		return fmt.Sprint(status["replicas"], status["conditions"]) == "4 [map[lastUpdateTime:now status:True type:Available]]"
	}, "the status comes up")
	s.deploy(strings.Replace(web, "name: web", "name: far, annotations: {workloads.kcp.dev/cluster-selector: a=b}", 1))
	s.eventually(func() bool {
		return s.Get("1a", deployments, "shop", "far").GetAnnotations()[api.AnnotationScheduleError] != ""
	}, "the reason")
}

// A status that is written while the watch is late would otherwise be one that never was, such as as many replicas as
// updated ones while an old one runs: kubectl rollout status ends with it.
func TestAStatusIsNeverPartlyAnOldOne(t *testing.T) {
	s := start(t)
	s.clusters(cluster("c1", true, 0))
	s.deploy(web)
	s.eventually(func() bool { return s.leaves() == "c1=4" }, "it has a leaf")
	report := func(name string, replicas, updated int) {
		s.Server.Apply(t, "1a", deployments, fmt.Sprintf(`
{metadata: {name: %s, namespace: shop}, status: {replicas: %d, updatedReplicas: %d}}`, name, replicas, updated))
	}
	counts := func() string {
		status, _, _ := unstructured.NestedMap(s.Get("1a", deployments, "shop", "web").Object, "status")
		return fmt.Sprint(status["replicas"], " ", status["updatedReplicas"])
	}
	report("web--c1", 5, 3)
	s.eventually(func() bool { return counts() == "5 3" }, "reported")
	var writes atomic.Int32
	var seen atomic.Value
	s.Refuse(func(r *http.Request) (int, string) {
		if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/deployments/web/status") {
			switch writes.Add(1) {
			case 1:
				report("web", 4, 3) // it was written, and the watch has not shown it
			case 2:
				seen.Store(counts())
			}
		}
		return 0, ""
	})
	report("web--c1", 5, 4)
	s.eventually(func() bool { return writes.Load() > 1 && counts() == "5 4" }, "reported")
	require.Equal(t, "4 3", seen.Load(), "4 4 was never reported")
}

// A root is deleted and created again, and the watch has shown neither. What was decided about the first one is not
// written into the second one.
func TestARootOfTheSameNameIsAnotherOne(t *testing.T) {
	s := start(t)
	s.clusters(cluster("c1", true, 0))
	s.deploy(web)
	s.eventually(func() bool { return s.leaves() == "c1=4" && s.scheduled() == "True Scheduled: " }, "scheduled")
	see := s.Blind(deployments)
	s.Server.Delete("1a", deployments, "shop", "web")
	s.deploy(web)
	writes := &atomic.Int64{}
	s.Refuse(func(r *http.Request) (int, string) {
		if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/deployments/web") {
			writes.Add(1)
		}
		return 0, ""
	})
	s.clusters(cluster("c1", false, 0))
	s.eventually(func() bool { return writes.Load() > 1 }, "the reason is another one")
	require.NotContains(t, s.Get("1a", deployments, "shop", "web").GetAnnotations(), api.AnnotationExplain)
	see()
	s.clusters(cluster("c1", true, 0))
	s.eventually(func() bool { return s.leaves() == "c1=4" }, "scheduled")
}
