package facts

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kcpctl/kcpctl/internal/client/cluster"
	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

func TestGrantedBy(t *testing.T) {
	rules := []rbacv1.PolicyRule{
		{Verbs: []string{"get", "list"}, APIGroups: []string{"apps"}, Resources: []string{"deployments"}},
		{Verbs: []string{"*"}, APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"one"}},
		{Verbs: []string{"create"}, APIGroups: []string{""}, Resources: []string{"pods/portforward"}},
	}
	for name, tc := range map[string]struct {
		permission permission
		want       bool
	}{
		"granted":             {permission{verb: "get", group: "apps", resource: "deployments", namespace: "kcp"}, true},
		"another verb":        {permission{verb: "patch", group: "apps", resource: "deployments", namespace: "kcp"}, false},
		"another group":       {permission{verb: "get", group: "", resource: "deployments", namespace: "kcp"}, false},
		"some objects":        {permission{verb: "get", resource: "secrets", namespace: "kcp"}, false},
		"subresource":         {permission{verb: "create", resource: "pods", subresource: "portforward", namespace: "kcp"}, true},
		"not the subresource": {permission{verb: "create", resource: "pods", namespace: "kcp"}, false},
		"of the cluster":      {permission{verb: "get", group: "apps", resource: "deployments"}, false},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, tc.want, tc.permission.grantedBy(rules)) })
	}
}

func TestPermissionsFollowTheObjects(t *testing.T) {
	service := render.Object{Unstructured: &unstructured.Unstructured{}}
	service.SetGroupVersionKind(kind.Service.GroupVersionKind)
	has := func(all []permission, text string) bool {
		for _, p := range all {
			if p.String() == text {
				return true
			}
		}
		return false
	}
	all := toApply("kcp", []render.Object{service}, true)
	require.True(t, has(all, "patch services in namespace kcp"))
	require.False(t, has(all, "patch statefulsets.apps in namespace kcp"))
	require.False(t, has(all, "create namespaces"))
	require.False(t, has(all, "delete leases.coordination.k8s.io in namespace kcp"))
	published := render.Object{Unstructured: &unstructured.Unstructured{}}
	published.SetGroupVersionKind(kind.PublishedResource.GroupVersionKind)
	all = toApply("kcp", []render.Object{service, published}, true)
	require.True(t, has(all, "delete leases.coordination.k8s.io in namespace kcp"), "agents have some")
	all = toApply("kcp", nil, false)
	require.True(t, has(all, "create namespaces"))
	require.True(t, has(all, "patch statefulsets.apps in namespace kcp"))
	require.True(t, has(all, "create pods/portforward in namespace kcp"))
	require.False(t, has(all, "create clusterroles.rbac.authorization.k8s.io"), "few setups have some")
}

func TestHint(t *testing.T) {
	require.Contains(t, hint("kcp", false), "kubectl create namespace kcp")
	require.NotContains(t, hint("kcp", true), "create")
}

// clientOf returns a client of an API server.
func clientOf(t *testing.T, server http.Handler) *cluster.Client {
	srv := httptest.NewServer(server)
	t.Cleanup(srv.Close)
	cl, err := cluster.New(topology.Cluster{Name: "eu", Namespace: "kcp"}, cluster.Options{Now: time.Now, Notify: t.Logf, API: func(topology.Cluster) (*cluster.API, error) {
		d, err := dynamic.NewForConfig(&rest.Config{Host: srv.URL, QPS: -1})
		return &cluster.API{Context: "c", Dynamic: d, HTTP: srv.Client()}, err
	}})
	require.NoError(t, err)
	return cl
}

// A user who may do everything in any namespace, but may not read or create one, learns before the run that it does not
// exist.
func TestNamespaceThatMayNotBeRead(t *testing.T) {
	status := func(code int, reason metav1.StatusReason) *metav1.Status {
		return &metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(code), Reason: reason,
		}
	}
	for name, tc := range map[string]struct {
		dryRun *metav1.Status
		want   string
	}{
		"it does not exist": {status(http.StatusNotFound, metav1.StatusReasonNotFound), "not allowed (context c, namespace kcp):\n  create namespaces"},
		"it exists":         {&metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}}, ""},
		"it does not say":   {status(http.StatusForbidden, metav1.StatusReasonForbidden), ""},
	} {
		t.Run(name, func(t *testing.T) {
			cl := clientOf(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var answer any
				switch path.Base(r.URL.Path) {
				case "selfsubjectrulesreviews":
					all := []string{"*"}
					answer = &authorizationv1.SelfSubjectRulesReview{
						TypeMeta: metav1.TypeMeta{APIVersion: "authorization.k8s.io/v1", Kind: "SelfSubjectRulesReview"},
						Status:   authorizationv1.SubjectRulesReviewStatus{ResourceRules: []authorizationv1.ResourceRule{{Verbs: all, APIGroups: all, Resources: all}}},
					}
				case "selfsubjectaccessreviews":
					answer = &authorizationv1.SelfSubjectAccessReview{TypeMeta: metav1.TypeMeta{APIVersion: "authorization.k8s.io/v1", Kind: "SelfSubjectAccessReview"}}
				case "configmaps":
					assert.Equal(t, []string{"All"}, r.URL.Query()["dryRun"], "nothing is written")
					answer = tc.dryRun
				default: // the namespaces
					answer = status(http.StatusForbidden, metav1.StatusReasonForbidden)
				}
				w.Header().Set("Content-Type", "application/json")
				if st, ok := answer.(*metav1.Status); ok && st.Code != 0 {
					w.WriteHeader(int(st.Code))
				}
				assert.NoError(t, json.NewEncoder(w).Encode(answer))
			}))
			err := MayApply(t.Context(), cl, nil, false)
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, tc.want)
			require.Contains(t, clierr.Hint(err), "kubectl create namespace kcp")
		})
	}
}

func TestPodReferences(t *testing.T) {
	o := &unstructured.Unstructured{Object: map[string]any{"kind": "Deployment", "metadata": map[string]any{"name": "d"}, "spec": map[string]any{
		"template": map[string]any{"spec": map[string]any{
			"imagePullSecrets": []any{map[string]any{"name": "pull"}},
			"volumes": []any{
				map[string]any{"name": "all", "secret": map[string]any{"secretName": "s1"}},
				map[string]any{"name": "opt", "configMap": map[string]any{"name": "c1", "optional": true}},
				map[string]any{"name": "mix", "projected": map[string]any{"sources": []any{
					map[string]any{"secret": map[string]any{"name": "s2", "items": []any{map[string]any{"key": "k", "path": "p"}}}},
					map[string]any{"configMap": map[string]any{"name": "c2"}},
				}}},
			},
			"containers": []any{map[string]any{"name": "kcp",
				"env":     []any{map[string]any{"name": "A", "valueFrom": map[string]any{"secretKeyRef": map[string]any{"name": "s3", "key": "k"}}}, map[string]any{"name": "B", "value": "x"}},
				"envFrom": []any{map[string]any{"configMapRef": map[string]any{"name": "c3"}}},
			}},
		}}}}}
	refs, err := podReferences(o)
	require.NoError(t, err)
	require.Equal(t, []reference{
		{kind.Secret, "pull", "", "Deployment/d (imagePullSecrets)"},
		{kind.Secret, "s1", "", "Deployment/d (volume all)"},
		{kind.Secret, "s2", "k", "Deployment/d (volume mix)"},
		{kind.ConfigMap, "c2", "", "Deployment/d (volume mix)"},
		{kind.Secret, "s3", "k", "Deployment/d (variable A of container kcp)"},
		{kind.ConfigMap, "c3", "", "Deployment/d (variables of container kcp)"},
	}, refs)
	none, err := podReferences(&unstructured.Unstructured{Object: map[string]any{"kind": "Secret"}})
	require.NoError(t, err)
	require.Empty(t, none)
}
