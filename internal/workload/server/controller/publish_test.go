package controller_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeapi"
	"github.com/kcpctl/kcpctl/internal/workload/server/controller"
)

// There can be many schemas, of hundreds of kilobytes each. Those that are not published are not read.
func TestReadsOnlyPublishedSchemas(t *testing.T) {
	k := newKCP(t)
	k.Refuse(func(r *http.Request) (int, string) {
		if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "apiresourceschemas") && !fakeapi.OnlyMetadata(r) &&
			(strings.HasSuffix(r.URL.Path, "apiresourceschemas") || strings.HasSuffix(r.URL.Path, "old.deployments.apps")) {
			return http.StatusInternalServerError, "too much"
		}
		return 0, ""
	})
	for name, by := range map[string]string{"old": api.ManagerController, "foreign": "someone"} {
		k.Apply(t, compute, schemas, fmt.Sprintf("{kind: APIResourceSchema, metadata: {name: %s.deployments.apps, labels: {%s: %s}}}", name, api.LabelManagedBy, by))
	}
	k.Apply(t, compute, endpointSlices, fmt.Sprintf(`
apiVersion: apis.kcp.io/v1alpha1
kind: APIExportEndpointSlice
metadata: {name: kubernetes}
status: {endpoints: [{url: "%s/services/apiexport/xyz/kubernetes"}]}`, k.URL))
	k.add("c1", kubeconfig(newCluster(t, "one", "1", "").URL))
	k.run()
	k.identify()
	k.eventually(func() bool { return k.condition("c1", "Ready") == "True Ready" }, "the cluster is ready")
	require.Contains(t, k.published(), "replicas")
	k.add("c2", kubeconfig(newCluster(t, "two", "2", "").URL))
	k.eventually(func() bool { return fmt.Sprint(k.apis("c2")) == "[deployments.apps v1 Published <nil>]" }, "the published schema is read")
	k.eventually(func() bool {
		// It publishes again: what workspaces use may not have been known before.
		k.Apply(t, compute, clusters, fmt.Sprintf("{metadata: {name: c2, annotations: {%s: deployments.apps}}}", api.AnnotationWidenSchema))
		return k.Get(compute, schemas, "", "old.deployments.apps") == nil
	}, "no APIExport uses it")
	require.NotNil(t, k.Get(compute, schemas, "", "foreign.deployments.apps"), "the controller has not made it")
}

// A cluster that does not answer may lack what the others have. The states say what a request to widen a schema waits for.
func TestWideningWaitsForAClusterThatWasNotRead(t *testing.T) {
	k := newKCP(t)
	c1 := newCluster(t, "one", "1", "")
	k.add("c1", kubeconfig(c1.URL))
	k.run()
	k.identify()
	state := func(want string) func() bool {
		return func() bool { return fmt.Sprint(k.apis("c1")) == "[deployments.apps v1 "+want+"]" }
	}
	k.eventually(state("Published <nil>"), "published")
	c2 := newCluster(t, "two", "2", ", paused: {type: boolean}")
	c2.Refuse(func(*http.Request) (int, string) { return http.StatusServiceUnavailable, "no" })
	k.add("c2", kubeconfig(c2.URL))
	k.eventually(func() bool { return strings.HasPrefix(k.condition("c2", "Ready"), "False ") }, "c2 does not answer")
	k.Apply(t, compute, clusters, fmt.Sprintf("{metadata: {name: c1, annotations: {%s: deployments.apps}}}", api.AnnotationWidenSchema))
	k.eventually(state("Published not widened: it is not known yet what these clusters serve: c2"), "it waits")
	require.NotEmpty(t, k.Get(compute, clusters, "", "c1").GetAnnotations()[api.AnnotationWidenSchema])
	c2.Refuse(nil)
	k.eventually(state("Published <nil>"), "c2 has what c1 has, and more")
	k.eventually(func() bool {
		return k.Get(compute, clusters, "", "c1").GetAnnotations()[api.AnnotationWidenSchema] == ""
	}, "the request ends")
}

// A restored backup of kcp has the states of another day. Nothing else has changed since they were negotiated.
func TestTheStatesOfABackupAreCorrected(t *testing.T) {
	k := newKCP(t)
	k.add("c1", kubeconfig(newCluster(t, "one", "1", "").URL))
	k.run()
	k.identify()
	const published = "[deployments.apps v1 Published <nil>]"
	k.eventually(func() bool {
		return k.condition("c1", "Ready") == "True Ready" && fmt.Sprint(k.apis("c1")) == published
	}, "published")
	k.Apply(t, compute, clusters, `{metadata: {name: c1}, status: {apis: [{group: apps, resource: deployments, version: v1, state: Incompatible}]}}`)
	k.eventually(func() bool { return fmt.Sprint(k.apis("c1")) == published }, "it is corrected")
}

// Pods that requested a resource are gone: the status loses it, and a second look writes nothing.
func TestStatusPatch(t *testing.T) {
	quantity := resource.MustParse("1")
	from := api.ClusterStatus{Version: "v1", Capacity: &api.Capacity{Requested: corev1.ResourceList{"cpu": quantity, "pods": quantity}}}
	to := api.ClusterStatus{Version: "v1", Capacity: &api.Capacity{Requested: corev1.ResourceList{"pods": quantity}}}
	patch, err := controller.StatusPatch(&from, &to)
	require.NoError(t, err)
	none := map[string]any{"cpu": nil}
	require.Equal(t, map[string]any{"status": map[string]any{"capacity": map[string]any{"requested": none}}}, patch)
	patch, err = controller.StatusPatch(&to, &to)
	require.NoError(t, err)
	require.Nil(t, patch)
}
