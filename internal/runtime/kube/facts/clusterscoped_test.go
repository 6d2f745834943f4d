package facts

import (
	"encoding/json"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// authorizer is an API server that answers reviews, and has a CustomResourceDefinition or not.
type authorizer struct {
	// allows are permissions such as "create clusterroles.rbac.authorization.k8s.io". "*" allows everything.
	allows  []string
	defined bool

	mu      sync.Mutex
	reviews int
}

func (a *authorizer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if path.Base(r.URL.Path) != "selfsubjectaccessreviews" {
		a.definition(w)
		return
	}
	var review authorizationv1.SelfSubjectAccessReview
	_ = json.NewDecoder(r.Body).Decode(&review)
	p := review.Spec.ResourceAttributes
	asked := permission{verb: p.Verb, group: p.Group, resource: p.Resource, subresource: p.Subresource, namespace: p.Namespace, name: p.Name}
	review.Status.Allowed = slices.Contains(a.allows, "*") || slices.Contains(a.allows, asked.String())
	a.mu.Lock()
	a.reviews++
	a.mu.Unlock()
	_ = json.NewEncoder(w).Encode(review)
}

func (a *authorizer) definition(w http.ResponseWriter) {
	if !a.defined {
		w.WriteHeader(http.StatusNotFound)
		_ = json.NewEncoder(w).Encode(metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
		})
		return
	}
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(kind.CustomResourceDefinition.GroupVersionKind)
	o.SetName("widgets.example.com")
	_ = json.NewEncoder(w).Encode(o.Object)
}

// ofAgent are the objects of an agent that have no namespace.
func ofAgent() []render.Object {
	var out []render.Object
	for _, k := range []kind.Kind{kind.CustomResourceDefinition, kind.ClusterRole, kind.ClusterRoleBinding, kind.PublishedResource} {
		o := &unstructured.Unstructured{Object: map[string]any{}}
		o.SetGroupVersionKind(k.GroupVersionKind)
		o.SetName("widgets")
		if k.Kind == "ClusterRole" {
			o.Object["rules"] = []any{
				map[string]any{"apiGroups": []any{"example.com"}, "resources": []any{"widgets", "widgets/status"}, "verbs": []any{"get", "patch"}},
				map[string]any{"apiGroups": []any{""}, "resources": []any{"secrets"}, "resourceNames": []any{"one"}, "verbs": []any{"get"}},
			}
		}
		out = append(out, render.Object{Cluster: "eu", Unstructured: o})
	}
	return out
}

func TestClusterScopedObjects(t *testing.T) {
	const rbac = ".rbac.authorization.k8s.io"
	all := func(resource string, verbs ...string) (out []string) {
		for _, v := range verbs {
			out = append(out, v+" "+resource)
		}
		return out
	}
	definitions := all("customresourcedefinitions.apiextensions.k8s.io", "get", "create", "patch")
	objects := slices.Concat(
		all("clusterroles"+rbac, "get", "list", "create", "patch", "delete"),
		all("clusterrolebindings"+rbac, "get", "list", "create", "patch", "delete"),
		all("publishedresources.syncagent.kcp.io", "get", "list", "create", "patch", "delete"))
	granted := []string{
		"get widgets.example.com", "patch widgets.example.com", "get widgets.example.com/status", "patch widgets.example.com/status", "get secrets one",
	}
	grant := all("clusterroles"+rbac, "escalate", "bind")
	for name, tc := range map[string]struct {
		allows  []string
		defined bool
		want    []string
	}{
		"an administrator":                         {[]string{"*"}, false, nil},
		"all that is needed":                       {slices.Concat(definitions, objects, grant), false, nil},
		"what the role grants":                     {slices.Concat(definitions, objects, granted), false, nil},
		"the definition exists":                    {slices.Concat(objects, grant), true, nil},
		"the definition is missing":                {slices.Concat(objects, grant), false, definitions},
		"an administrator of a namespace":          {nil, true, append(slices.Clone(objects), "escalate clusterroles"+rbac+" and bind clusterroles"+rbac+", or what the ClusterRoles grant: "+strings.Join(granted, ", "))},
		"a user who may create roles, not grant":   {slices.Concat(objects, granted[:4]), true, []string{"escalate clusterroles" + rbac + " and bind clusterroles" + rbac + ", or what the ClusterRoles grant: get secrets one"}},
		"a user who may change roles but not bind": {slices.Concat(objects, grant[:1]), true, []string{"bind clusterroles" + rbac + ", or what the ClusterRoles grant: " + strings.Join(granted, ", ")}},
	} {
		t.Run(name, func(t *testing.T) {
			a := &authorizer{allows: tc.allows, defined: tc.defined}
			err := (&Cluster{client: clientOf(t, a)}).MayApplyClusterScoped(t.Context(), ofAgent())
			if tc.want == nil {
				require.NoError(t, err)
				assert.True(t, name != "an administrator" || a.reviews == 1, "%d reviews", a.reviews)
				return
			}
			require.EqualError(t, err, "not allowed (context c, namespace kcp):\n  "+strings.Join(tc.want, "\n  "))
			require.Contains(t, clierr.Hint(err), "cluster-admin")
		})
	}
}

// The policy of a physical cluster needs permissions as well.
func TestPoliciesNeedPermissions(t *testing.T) {
	const group = ".admissionregistration.k8s.io"
	var objects []render.Object
	var want []string
	for _, k := range kind.OnPhysical {
		o := &unstructured.Unstructured{Object: map[string]any{}}
		o.SetGroupVersionKind(k.GroupVersionKind)
		objects = append(objects, render.Object{Unstructured: o})
		for _, verb := range []string{"get", "list", "create", "patch", "delete"} {
			want = append(want, verb+" "+k.Resource+group)
		}
	}
	err := (&Cluster{client: clientOf(t, &authorizer{})}).MayApplyClusterScoped(t.Context(), objects)
	require.EqualError(t, err, "not allowed (context c, namespace kcp):\n  "+strings.Join(want, "\n  "))
	require.NoError(t, (&Cluster{client: clientOf(t, &authorizer{allows: want})}).MayApplyClusterScoped(t.Context(), objects))
}
