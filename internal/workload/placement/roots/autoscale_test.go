package roots_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
)

// A controller that starts does not know the autoscaler of a workload, or its volume, yet.
func TestAControllerThatStartsWaitsForWhatItDependsOn(t *testing.T) {
	for path, publish := range map[string]func(*scheduler, ...*api.Cluster){
		autoscalers: (*scheduler).publish, claims: (*scheduler).clusters,
	} {
		t.Run(path, func(t *testing.T) {
			s := start(t)
			publish(s, cluster("c1", true, 0), cluster("c2", true, 0))
			s.autoscale(11)
			s.deploy(labelled)
			seen := func() string {
				leaf := s.Get("1a", deployments, "shop", "web--c1")
				return leaf.GetLabels()["seen"] + " " + leaf.GetAnnotations()[api.AnnotationScaled]
			}
			scaled := map[string]string{autoscalers: "true"}[path]
			s.eventually(func() bool { return s.leaves() == "c1=2 c2=2" && seen() == " "+scaled }, "scheduled")
			s.stop()
			unreadable := atomic.Bool{}
			unreadable.Store(true)
			s.Refuse(func(r *http.Request) (int, string) {
				if unreadable.Load() && strings.Contains(r.URL.Path, path[strings.LastIndex(path, "/"):]) {
					return http.StatusInternalServerError, "try again"
				}
				return 0, ""
			})
			s.run()
			publish(s, cluster("c1", true, 0), cluster("c2", true, 0))
			s.deploy(`{metadata: {name: web, namespace: shop, labels: {seen: "yes"}}}`)
			time.Sleep(2 * time.Second)
			require.Equal(t, " "+scaled, seen(), "it is not known")
			unreadable.Store(false)
			s.eventually(func() bool { return seen() == "yes "+scaled }, "now it is")
		})
	}
}

// An autoscaler is deleted: the replicas that it has made stay, and the root has them. The user can change them then.
func TestAnAutoscalerIsDeleted(t *testing.T) {
	for name, replicas := range map[string]string{"no replicas": "", "the default of the API": "replicas: 1, "} {
		t.Run(name, func(t *testing.T) { deleteAutoscaler(t, replicas) })
	}
}

func deleteAutoscaler(t *testing.T, replicas string) {
	s := start(t)
	s.publish(cluster("c1", true, 0), cluster("c2", true, 0))
	s.autoscale(40)
	s.deploy(strings.Replace(labelled, "replicas: 4, ", replicas, 1))
	s.eventually(func() bool { return s.leaves() == "c1=1 c2=1" && s.bounds() == "c1=1-20 c2=1-20" }, "divided")
	s.object(deployments, `{metadata: {name: web--c1, namespace: shop}, status: {replicas: 3, availableReplicas: 3}}`)
	s.object(deployments, `{metadata: {name: web--c2, namespace: shop}, status: {replicas: 9, availableReplicas: 9}}`)
	s.eventually(func() bool {
		return s.Get("1a", deployments, "shop", "web").GetAnnotations()[api.AnnotationPlacement] == `{"c1":{"replicas":3},"c2":{"replicas":9}}`
	}, "the controller has seen them")
	s.Delete("1a", autoscalers, "shop", "web")
	s.eventually(func() bool { return s.leaves() == "c1=3 c2=9" }, "they stay")
	for _, c := range []string{"c1", "c2"} { // the owner of the annotation has left it out
		s.object(deployments, `{metadata: {name: web--`+c+`, namespace: shop, annotations: {workloads.kcp.dev/scaled: null}}}`)
	}
	s.restart()
	s.publish(cluster("c1", true, 0), cluster("c2", true, 0))
	s.deploy(`{metadata: {name: web, namespace: shop, labels: {seen: "true"}}}`)
	s.eventually(func() bool {
		return s.Get("1a", deployments, "shop", "web--c2").GetLabels()["seen"] == "true"
	}, "scheduled again")
	require.Equal(t, "c1=3 c2=9", s.leaves(), "they stay")
	n, _, _ := unstructured.NestedFieldNoCopy(s.Get("1a", deployments, "shop", "web").Object, "spec", "replicas")
	require.EqualValues(t, 12, n)
	s.deploy(`{metadata: {name: web, namespace: shop}, spec: {replicas: 1}}`)
	s.eventually(func() bool { return s.leaves() == "c2=1" }, "the user wants one")
}

// A cluster is drained: the replicas that an autoscaler has made are replaced, and not only the fewest that it can
// choose.
func TestAWorkloadWithAnAutoscalerLeavesACluster(t *testing.T) {
	s := start(t)
	drained := cluster("c1", true, 0)
	s.publish(cluster("c1", true, 0), cluster("c2", true, 0))
	s.autoscale(40)
	s.deploy(strings.Replace(labelled, "replicas: 4, ", "", 1))
	s.eventually(func() bool { return s.leaves() == "c1=1 c2=1" && s.bounds() == "c1=1-20 c2=1-20" }, "divided")
	for _, c := range []string{"c1", "c2"} {
		s.object(deployments, `{metadata: {name: web--`+c+`, namespace: shop}, status: {replicas: 10, availableReplicas: 10}}`)
	}
	s.deploy(`{metadata: {name: web, namespace: shop, labels: {runs: "true"}}}`)
	s.eventually(func() bool {
		return s.Get("1a", deployments, "shop", "web--c2").GetLabels()["runs"] == "true"
	}, "the controller has seen what runs: it watches leaves and roots together")
	drained.Spec.Unschedulable = true
	drained.Annotations = map[string]string{api.AnnotationDrain: "true"}
	s.publish(drained, cluster("c2", true, 0))
	s.eventually(func() bool {
		return s.leaves() == "c1=10 c2=12" && s.bounds() == "c1=10-10 c2=12-22"
	}, "a tenth of what runs moves")
	s.deploy(`{metadata: {name: web, namespace: shop, labels: {seen: "true"}}}`)
	s.eventually(func() bool {
		return s.Get("1a", deployments, "shop", "web--c2").GetLabels()["seen"] == "true"
	}, "scheduled again")
	require.Equal(t, "c1=10 c2=12", s.leaves(), "the autoscaler of c2 has not made them yet")
	s.object(deployments, `{metadata: {name: web--c2, namespace: shop}, status: {replicas: 12, availableReplicas: 12}}`)
	s.eventually(func() bool {
		return strings.HasPrefix(s.leaves(), "c1=8 ") && strings.HasPrefix(s.bounds(), "c1=8-8 ")
	}, "they are replaced")
	s.object(deployments, `{metadata: {name: web--c1, namespace: shop}, status: {replicas: 8, availableReplicas: 8}}`)
	s.publish(cluster("c1", true, 0), cluster("c2", true, 0))
	s.eventually(func() bool {
		return s.leaves() == "c1=1 c2=1" && s.bounds() == "c1=1-20 c2=1-20"
	}, "the autoscaler has the replicas")
}

// bounds returns those of the autoscaler web, by cluster.
func (s *scheduler) bounds() string {
	var out []string
	for _, c := range strings.Fields(s.on(autoscalers, "web")) {
		spec, _, _ := unstructured.NestedMap(s.Get("1a", autoscalers, "shop", "web--"+c).Object, "spec")
		out = append(out, fmt.Sprintf("%s=%v-%v", c, spec["minReplicas"], spec["maxReplicas"]))
	}
	return strings.Join(out, " ")
}

// autoscale makes an autoscaler for web.
func (s *scheduler) autoscale(most int) {
	s.object(autoscalers, fmt.Sprintf(`
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web, namespace: shop}
spec: {scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}, minReplicas: 2, maxReplicas: %d}`, most))
}
