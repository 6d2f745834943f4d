package controller_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"

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

// refuseSchemas makes kcp refuse the creation of schemas whose content has a text: in a dry run, or else.
func (k *kcp) refuseSchemas(dryRun bool, text, message string) {
	k.Refuse(func(r *http.Request) (int, string) {
		if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/apiresourceschemas") || dryRun != r.URL.Query().Has("dryRun") {
			return 0, ""
		}
		body, err := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		if err == nil && bytes.Contains(body, []byte(text)) {
			return http.StatusForbidden, `apiresourceschemas.apis.kcp.io "v1.x" is forbidden: ` + message
		}
		return 0, ""
	})
}

// kcp refuses a schema that is not valid with Forbidden. That concerns this API only, and is tried again: the rules of
// kcp can change.
func TestASchemaThatIsRefusedLeavesOutItsAPIOnly(t *testing.T) {
	const invalid = "[spec.versions[0].schema: Invalid value]"
	for name, tc := range map[string]struct {
		dryRun bool
		want   string
	}{
		"as the cluster serves it": {true, "statefulsets.apps <nil> Ignored kcp refuses its schema: "},
		"what is in common":        {false, "statefulsets.apps <nil> Ignored the API is not published: kcp refuses the schema that its clusters have in common: "},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKCP(t)
			k.refuseSchemas(tc.dryRun, "statefulsets", invalid)
			c1 := newCluster(t, "one", "1", "")
			c1.Serve("/apis/apps/v1", `resources: [{name: deployments, kind: Deployment, namespaced: true}, {name: statefulsets, kind: StatefulSet, namespaced: true}]`)
			c1.Serve("/openapi?hash=1", fmt.Sprintf(openAPI, "")+`
    StatefulSet:
      type: object
      x-kubernetes-group-version-kind: [{group: apps, version: v1, kind: StatefulSet}]
      properties: {metadata: {type: object}, spec: {type: object}}`)
			k.add("c1", kubeconfig(c1.URL))
			k.start(deploymentAPI, schema.GroupResource{Group: "apps", Resource: "statefulsets"})
			k.identify()
			const published = "deployments.apps v1 Published <nil>"
			want := fmt.Sprint([]string{published, tc.want + `apiresourceschemas.apis.kcp.io "v1.x" is forbidden: ` + invalid})
			k.eventually(func() bool { return fmt.Sprint(k.apis("c1")) == want }, "the other one is published")
			k.eventually(func() bool { return k.condition("c1", "Ready") == "True Ready" }, "the cluster is used")
			k.Refuse(nil)
			k.eventually(func() bool {
				return fmt.Sprint(k.apis("c1")) == fmt.Sprint([]string{published, "statefulsets.apps v1 Published <nil>"})
			}, "kcp accepts it now")
		})
	}
}

// That the controller lacks rights says nothing about the schemas. The status has it until it passes.
func TestAControllerThatLacksRights(t *testing.T) {
	for dryRun, want := range map[bool]string{
		true:  "Unknown SchemasUnreadable: check the schema of deployments.apps of cluster c1: create APIResourceSchema ",
		false: "Unknown PublicationRefused: the controller lacks the rights to publish the APIs: run kcpctl up, which gives them. create APIResourceSchema ",
	} {
		k := newKCP(t)
		k.refuseSchemas(dryRun, "deployments", `User "test" cannot create resource "apiresourceschemas"`)
		k.add("c1", kubeconfig(newCluster(t, "one", "1", "").URL))
		k.run()
		k.eventually(func() bool { return strings.HasPrefix(k.condition("c1", "APIsCompatible"), want) }, want)
		require.Contains(t, k.condition("c1", "APIsCompatible"), `User "test" cannot create`)
		k.Refuse(nil)
		k.identify()
		k.eventually(func() bool {
			return k.condition("c1", "APIsCompatible") == "True Compatible" && fmt.Sprint(k.apis("c1")) == "[deployments.apps v1 Published <nil>]"
		}, "it has them")
		k.stop()
	}
}

// A cluster that does not answer may lack what the others have. The states say what a request to widen a schema waits
// for.
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

// Texts of others do not fill the status of a Cluster.
func TestTheTextsOfAStatusAreLimited(t *testing.T) {
	k := newKCP(t)
	k.add("c1", kubeconfig(newCluster(t, "one", "1", ", state: {type: string, enum: [a]}").URL))
	k.run()
	k.identify()
	k.eventually(func() bool { return fmt.Sprint(k.apis("c1")) == "[deployments.apps v1 Published <nil>]" }, "published")
	long := strings.Repeat("x", 100000)
	k.add("c2", kubeconfig(newCluster(t, "two", "2", ", state: {type: string, enum: ["+long+"]}").URL))
	k.eventually(func() bool {
		return strings.HasPrefix(k.condition("c2", "APIsCompatible"), "False SchemaIncompatible: deployments.apps: spec.state: no value is in the enums of both")
	}, "the enums have nothing in common")
	require.Less(t, len(fmt.Sprint(k.Get(compute, clusters, "", "c2").Object["status"])), 5000)

	c3 := newCluster(t, "three", "3", "")
	c3.Refuse(func(r *http.Request) (int, string) {
		if r.URL.Path == "/openapi/v3" {
			return http.StatusInternalServerError, long
		}
		return 0, ""
	})
	k.add("c3", kubeconfig(c3.URL))
	k.eventually(func() bool { return strings.HasPrefix(k.condition("c3", "Ready"), "False SchemasUnreadable: ") }, "its API server fails")
	require.Less(t, len(fmt.Sprint(k.Get(compute, clusters, "", "c3").Object["status"])), 20000)
	k.eventually(func() bool { return strings.HasSuffix(k.condition("c3", "Ready"), "xxx ...") }, "it is cut")
}
