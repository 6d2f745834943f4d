package kube

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/client/retry"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/runtime/kube/inventory"
)

// answer is how a scripted server answers a request.
type answer struct {
	code int
	body string
}

// refuse is an answer that says no.
func refuse(code int, reason string) answer {
	return answer{code, fmt.Sprintf(`{"apiVersion": "v1", "kind": "Status", "code": %d, "reason": %q}`, code, reason)}
}

// scripted is a runtime whose API server answers each request with the next of its answers; the last one stays. It
// returns besides the requests that were made, with what they have sent.
func scripted(t *testing.T, answers map[string][]answer) (*Runtime, *[]string) {
	t.Helper()
	var made []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := r.Method + " " + r.URL.Path
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		made = append(made, key+" "+string(body))
		next := answers[key]
		if len(next) == 0 {
			t.Errorf("unexpected request: %s", key)
			return
		}
		if len(next) > 1 {
			answers[key] = next[1:]
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(next[0].code)
		_, _ = io.WriteString(w, next[0].body)
	}))
	t.Cleanup(srv.Close)
	c := topology.Cluster{Name: "eu", Namespace: "kcp"}
	r, err := New(&topology.Topology{Name: "demo", Home: c, Clusters: []topology.Cluster{c}}, Options{
		Version: "test", Now: time.Now, API: func(topology.Cluster) (*API, error) {
			d, err := dynamic.NewForConfig(&rest.Config{Host: srv.URL})
			return &API{Context: "c", Dynamic: d, HTTP: srv.Client()}, err
		},
	})
	require.NoError(t, err)
	return r, &made
}

// A namespace belongs to the setup also if another run has created it, or an earlier request of this one.
func TestCreateNamespace(t *testing.T) {
	const create, read = "POST /api/v1/namespaces", "GET /api/v1/namespaces/kcp"
	namespace := func(setup string) answer {
		return answer{http.StatusOK, fmt.Sprintf(
			`{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kcp", "annotations": {%q: %q}}}`, annotationCreatedBy, setup)}
	}
	there := refuse(http.StatusConflict, "AlreadyExists")
	for name, tc := range map[string]struct {
		answers map[string][]answer
		made    bool
	}{
		"made":                   {map[string][]answer{create: {namespace("demo")}}, true},
		"made, the answer lost":  {map[string][]answer{create: {refuse(http.StatusInternalServerError, "InternalError"), there}, read: {namespace("demo")}}, true},
		"made by another run":    {map[string][]answer{create: {there}, read: {namespace("demo")}}, true},
		"made for another setup": {map[string][]answer{create: {there}, read: {namespace("other")}}, false},
		"gone again":             {map[string][]answer{create: {there}, read: {refuse(http.StatusNotFound, "NotFound")}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := scripted(t, tc.answers)
			owned, err := r.applier.createNamespace(t.Context(), r.clusters.home)
			require.NoError(t, err)
			require.Equal(t, tc.made, owned)
		})
	}
}

// A user who may create the namespace and not patch it gets one without labels.
func TestANamespaceIsCreatedWithoutThePermissionToPatchIt(t *testing.T) {
	const path = "/api/v1/namespaces"
	denied := answer{http.StatusForbidden, `{"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden",
		"message": "namespaces \"kcp\" is forbidden: User \"ann\" cannot patch resource \"namespaces\""}`}
	r, made := scripted(t, map[string][]answer{
		"GET " + path + "/kube-system": {refuse(http.StatusForbidden, "Forbidden")},
		"POST " + path:                 {{http.StatusCreated, `{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kcp"}}`}},
		"PATCH " + path + "/kcp":       {denied},
	})
	ns := &unstructured.Unstructured{}
	ns.SetGroupVersionKind(kind.Namespace.GroupVersionKind)
	ns.SetName("kcp")
	ref := plan.RefOf("eu", ns)
	require.NoError(t, r.Apply(t.Context(), []plan.Item{{Ref: ref, Action: plan.Create, Want: ns}}, run.PlanOptions{}))
	require.Len(t, *made, 3)
}

// Another writer of the Secret of an inventory does not end a run.
func TestUpdateOfAnInventoryIsRepeated(t *testing.T) {
	const path = "/api/v1/namespaces/kcp/secrets"
	stored := func(version string) answer {
		return answer{http.StatusOK, fmt.Sprintf(
			`{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "demo-inventory", "namespace": "kcp", "resourceVersion": %q}}`, version)}
	}
	conflict := refuse(http.StatusConflict, "Conflict")
	change := func(i *inventory.Inventory) { i.Applying = "now" }

	r, made := scripted(t, map[string][]answer{
		"GET " + path + "/demo-inventory": {stored("1"), stored("2")},
		"PUT " + path + "/demo-inventory": {conflict, stored("3")},
	})
	require.NoError(t, r.installation.inventories.Update(t.Context(), r.clusters.home, change))
	require.Len(t, *made, 4)
	require.Contains(t, (*made)[3], `"resourceVersion":"2"`)
	require.Contains(t, (*made)[3], `"now"`)

	r, made = scripted(t, map[string][]answer{
		"GET " + path + "/demo-inventory": {stored("1")},
		"PUT " + path + "/demo-inventory": {conflict},
	})
	require.True(t, retry.IsWriteConflict(r.installation.inventories.Update(t.Context(), r.clusters.home, change)))
	require.Len(t, *made, 2*5)
}
