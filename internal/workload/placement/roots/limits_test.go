package roots_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/placement/roots"
)

// filed is a Deployment with a ConfigMap.
const filed = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec: {replicas: 2, template: {spec: {volumes: [{name: v, configMap: {name: files}}]}}}`

// limited is start with limits.
func limited(t *testing.T, l roots.Limits) *scheduler {
	t.Helper()
	s := start(t)
	s.limits = l
	s.restart()
	return s
}

// reason returns the annotation with the reason why a ConfigMap is not scheduled.
func (s *scheduler) reason(configMap string) string {
	o := s.Get("1a", configMaps, "shop", configMap)
	return o.GetAnnotations()[api.AnnotationScheduleError]
}

// A workspace that has as many scheduled objects as it may have gets none for other ones, until some are gone.
func TestTooManyObjects(t *testing.T) {
	s := limited(t, roots.Limits{Objects: 3})
	two := []*api.Cluster{cluster("c1", true, 0), cluster("c2", true, 0)}
	s.clusters(two...)
	s.deploy(strings.ReplaceAll(web, "web", "first"))
	s.eventually(func() bool { return len(s.Names("1a", deployments)) == 3 }, "first has two leaves")
	s.deploy(web)
	const refused = "False TooManyObjects: 2 objects of this workspace are scheduled to clusters, and this one would be 2 more: a workspace may have 3 of them. " +
		"Delete objects that are not needed, or ask an administrator for a higher limit"
	s.eventually(func() bool { return s.scheduled() == refused }, "the reason")
	s.restart()
	s.clusters(two...)
	time.Sleep(300 * time.Millisecond)
	require.Empty(t, s.leaves(), "the next controller refuses it, too")
	require.Equal(t, refused, s.scheduled())
	s.Server.Delete("1a", deployments, "shop", "first")
	for _, c := range []string{"c1", "c2"} {
		s.Server.Delete("1a", deployments, "shop", "first--"+c)
	}
	s.eventually(func() bool {
		s.clusters(two...)
		return s.leaves() == "c1=2 c2=2" && s.scheduled() == "True Scheduled: "
	}, "there is room")
}

// What is scheduled stays, is updated, and moves, whatever the limits are.
func TestLimitsLeaveWhatIsScheduled(t *testing.T) {
	s := start(t)
	c1, c2, c3 := cluster("c1", true, 0), cluster("c2", true, 0), cluster("c3", true, 0)
	s.clusters(c1, c2)
	s.object(configMaps, `{apiVersion: v1, kind: ConfigMap, metadata: {name: files, namespace: shop}}`)
	s.deploy(filed)
	s.eventually(func() bool { return s.on(configMaps, "files") == "c1 c2" && s.leaves() == "c1=1 c2=1" }, "scheduled")
	s.limits = roots.Limits{Objects: 1, Bytes: 1}
	s.restart()
	s.clusters(c1, c2)
	s.deploy(strings.Replace(filed, "replicas: 2", "replicas: 4", 1))
	s.eventually(func() bool { return s.leaves() == "c1=2 c2=2" }, "updated")
	drained := cluster("c2", true, 0)
	drained.Annotations, drained.Spec.Unschedulable = map[string]string{api.AnnotationDrain: ""}, true
	s.clusters(c1, drained, c3)
	s.eventually(func() bool {
		for _, c := range []string{"c1", "c2", "c3"} {
			if s.Get("1a", deployments, "shop", "web--"+c) != nil {
				s.object(deployments, "{metadata: {name: web--"+c+", namespace: shop}, status: {availableReplicas: 4}}")
			}
		}
		return !strings.Contains(s.leaves(), "c2")
	}, "moved")
	require.NotEmpty(t, s.on(configMaps, "files"))
	require.NotContains(t, s.scheduled(), "Too")
}

// An object that is too large for the clusters on which it is to be has the reason, until it is smaller.
func TestTooLarge(t *testing.T) {
	s := limited(t, roots.Limits{Bytes: 64 << 10})
	s.clusters(cluster("c1", true, 0), cluster("c2", true, 0))
	text := func(data string) string {
		return `{apiVersion: v1, kind: ConfigMap, metadata: {name: files, namespace: shop, annotations: {workloads.kcp.dev/spread: Duplicate}}, data: {a: ` + data + `}}`
	}
	s.object(configMaps, text(strings.Repeat("x", 40<<10)))
	s.eventually(func() bool {
		return s.reason("files") == "TooLarge: it would have 81Ki in 2 clusters, and all objects of a workspace may have 64Ki: make it smaller, or schedule it to fewer clusters"
	}, "the reason")
	require.Empty(t, s.on(configMaps, "files"))
	s.object(configMaps, text("small"))
	s.eventually(func() bool { return s.on(configMaps, "files") == "c1 c2" && s.reason("files") == "" }, "there is room")
}

// What a workload needs counts, too. The workload names what it lacks.
func TestADependencyThatIsTooMuch(t *testing.T) {
	s := limited(t, roots.Limits{Bytes: 32 << 10})
	s.clusters(cluster("c1", true, 0))
	s.object(configMaps, `{apiVersion: v1, kind: ConfigMap, metadata: {name: files, namespace: shop}, data: {a: `+strings.Repeat("x", 20<<10)+`}}`)
	s.deploy(filed)
	s.eventually(func() bool {
		return strings.HasPrefix(s.reason("files"), "TooLarge: the objects of this workspace have 2") &&
			strings.Contains(s.reason("files"), "Ki, and this one would have 21Ki more: a workspace may have 32Ki. Delete objects")
	}, "the reason")
	s.eventually(func() bool {
		return s.scheduled() == "False DependencyMissing: configmaps/files is on no cluster: its reason is TooLarge"
	}, "the workload says it")
	s.object(configMaps, `{apiVersion: v1, kind: ConfigMap, metadata: {name: files, namespace: shop}, data: {a: small}}`)
	s.eventually(func() bool { return s.on(configMaps, "files") == "c1" && s.scheduled() == "True Scheduled: " }, "there is room")
	require.Empty(t, s.reason("files"))
}

// A workload of which one instance may run ends before it starts elsewhere. In between it has no leaf, and is still
// scheduled.
func TestLimitsDoNotEndAMove(t *testing.T) {
	s := start(t)
	c1, c2 := cluster("c1", true, 0), cluster("c2", true, 0)
	s.clusters(c1)
	s.deploy(strings.Replace(web, "namespace: shop", "namespace: shop, annotations: {workloads.kcp.dev/spread: Single}", 1))
	s.eventually(func() bool { return s.leaves() == "c1=4" && s.scheduled() == "True Scheduled: " }, "scheduled")
	s.limits = roots.Limits{Objects: 1, Bytes: 1}
	s.restart()
	c1.Annotations, c1.Spec.Unschedulable = map[string]string{api.AnnotationDrain: ""}, true
	s.clusters(c1, c2)
	s.eventually(func() bool { return s.leaves() == "c2=4" && s.scheduled() == "True Scheduled: " }, "moved")
}
