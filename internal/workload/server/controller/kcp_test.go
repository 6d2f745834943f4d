package controller_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeapi"
	"github.com/kcpctl/kcpctl/internal/workload/server/connect"
	"github.com/kcpctl/kcpctl/internal/workload/server/controller"
	"github.com/kcpctl/kcpctl/internal/workload/server/probe"
)

// The paths of resources.
const (
	compute        = "compute"
	clusters       = "apis/workloads.kcp.dev/v1alpha1/clusters"
	exports        = "apis/apis.kcp.io/v1alpha2/apiexports"
	schemas        = "apis/apis.kcp.io/v1alpha1/apiresourceschemas"
	endpointSlices = "apis/apis.kcp.io/v1alpha1/apiexportendpointslices"
	workspaceTypes = "apis/tenancy.kcp.io/v1alpha1/workspacetypes"
	secrets        = "api/v1/secrets"
	deployments    = "apis/apps/v1/deployments"
)

var deploymentAPI = schema.GroupResource{Group: "apps", Resource: "deployments"}

const openAPI = `
components:
  schemas:
    Deployment:
      type: object
      x-kubernetes-group-version-kind: [{group: apps, version: v1, kind: Deployment}]
      properties: {metadata: {type: object}, spec: {type: object, properties: {replicas: {type: integer}%s}}, status: {type: object, properties: {replicas: {type: integer}}}}`

// newCluster is a physical cluster that serves Deployments, with more fields in their spec.
func newCluster(t *testing.T, uid, hash, more string) *fakeapi.Server {
	t.Helper()
	s := fakeapi.New(t)
	s.Serve("/version", "gitVersion: v1.36.3")
	s.Serve("/apis", `groups: [{name: apps, versions: [{version: v1}], preferredVersion: {version: v1}}]`)
	s.Serve("/api/v1", "resources: []")
	s.Serve("/apis/apps/v1", `resources: [{name: deployments, kind: Deployment, namespaced: true}, {name: deployments/status, kind: Deployment}]`)
	s.Serve("/api/v1/namespaces/kube-system", fmt.Sprintf(`{apiVersion: v1, kind: Namespace, metadata: {name: kube-system, uid: %q}}`, uid))
	s.Serve("/openapi/v3", fmt.Sprintf(`paths: {apis/apps/v1: {serverRelativeURL: "/openapi?hash=%s"}}`, hash))
	s.Serve("/openapi?hash="+hash, fmt.Sprintf(openAPI, more))
	return s
}

// kcp is a kcp with a controller.
type kcp struct {
	*testing.T
	*fakeapi.Server
	// setup is the ID of the setup, if the controller gets one.
	setup string
	probe *probe.Probe
	// ahead is how far the clock of the controller is ahead.
	ahead atomic.Int64
	// connects counts the kubeconfigs that the controller has read.
	connects atomic.Int64
	// stop stops the controller.
	stop func()
}

func newKCP(t *testing.T) *kcp {
	t.Helper()
	return &kcp{T: t, Server: fakeapi.New(t), probe: &probe.Probe{}, stop: func() {}}
}

func (k *kcp) now() time.Time { return time.Now().Add(time.Duration(k.ahead.Load())) }

func (k *kcp) run() {
	k.Helper()
	k.start(deploymentAPI)
}

// start runs the controller with the APIs to publish, instead of the one that runs.
func (k *kcp) start(apis ...schema.GroupResource) {
	k.Helper()
	k.stop()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- controller.Run(ctx, controller.Hurried(controller.Options{
			KCP: &rest.Config{Host: k.URL}, Workspace: compute, WorkspaceType: "workload", APIs: apis, Setup: k.setup,
			Holder: "test", Now: k.now, Probe: k.probe,
			Connect: func(kubeconfig []byte) (*rest.Config, error) { k.connects.Add(1); return connect.Content(kubeconfig) },
		}))
	}()
	k.stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(k, <-done)
	})
	k.Cleanup(k.stop)
}

// add adds a Cluster in push mode, with the kubeconfig of a server.
func (k *kcp) add(name, kubeconfig string) {
	k.Helper()
	k.Apply(k, compute, secrets, fmt.Sprintf(`
apiVersion: v1
kind: Secret
metadata: {name: %s, namespace: default}
data: {kubeconfig: %s}`, name, base64.StdEncoding.EncodeToString([]byte(kubeconfig))))
	k.Apply(k, compute, clusters, fmt.Sprintf(`
apiVersion: workloads.kcp.dev/v1alpha1
kind: Cluster
metadata: {name: %s, creationTimestamp: "2026-01-0%dT00:00:00Z"}
spec: {syncMode: Push, kubeconfigSecretRef: {namespace: default, name: %s}}`, name, len(k.Names(compute, clusters))+1, name))
}

// metrics returns the metrics of the controller.
func (k *kcp) metrics() string {
	k.Helper()
	w := httptest.NewRecorder()
	k.probe.Handler().ServeHTTP(w, httptest.NewRequestWithContext(k.Context(), http.MethodGet, "/metrics", nil))
	return w.Body.String()
}

func kubeconfig(url string) string {
	return fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u}], clusters: [{name: c, cluster: {server: %q}}]}`, url)
}

func (k *kcp) eventually(condition func() bool, what string) {
	k.Helper()
	require.Eventually(k, condition, time.Minute, 20*time.Millisecond, what)
}

// condition returns a condition of a Cluster as Status Reason: Message. It is empty while there is no Cluster.
func (k *kcp) condition(name, kind string) string {
	o := k.Get(compute, clusters, "", name)
	if o == nil {
		return ""
	}
	all, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range all {
		if m := c.(map[string]any); m["type"] == kind {
			return strings.TrimSuffix(fmt.Sprint(m["status"], " ", m["reason"], ": ", m["message"]), ": ")
		}
	}
	return ""
}

func (k *kcp) apis(name string) []string {
	o := k.Get(compute, clusters, "", name)
	all, _, _ := unstructured.NestedSlice(o.Object, "status", "apis")
	var out []string
	for _, a := range all {
		m := a.(map[string]any)
		out = append(out, fmt.Sprint(m["resource"], ".", m["group"], " ", m["version"], " ", m["state"], " ", m["message"]))
	}
	return out
}

// identify gives the APIExport an identity, as kcp does.
func (k *kcp) identify() {
	k.Helper()
	k.eventually(func() bool { return k.Get(compute, exports, "", api.ExportWorkloads) != nil }, "the APIs are published")
	k.Apply(k, compute, exports, `{metadata: {name: kubernetes}, status: {identityHash: abc}}`)
}
