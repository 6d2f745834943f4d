package guard_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/kcpctl/kcpctl/internal/workload/apis/guard"
)

// kcp accepts strategic merge patches for the groups of this scheme.
func TestBuiltInGroupsAreThoseOfTheScheme(t *testing.T) {
	for _, gv := range scheme.Scheme.PrioritizedVersionsAllGroups() {
		group := gv.Group
		// imagepolicy.k8s.io has no objects that are stored.
		require.True(t, guard.IsBuiltIn(group) || group == "imagepolicy.k8s.io" || group == "internal.apiserver.k8s.io", group)
	}
	require.False(t, guard.IsBuiltIn("example.com"))
	require.False(t, guard.IsBuiltIn("gateway.networking.k8s.io"))
}

func TestObjects(t *testing.T) {
	objects := guard.Objects([]schema.GroupResource{
		{Resource: "services"}, {Group: "apps", Resource: "daemonsets"}, {Group: "apps", Resource: "deployments"},
		{Group: "example.com", Resource: "widgets"},
	})
	covered := map[string][]string{}
	bound := map[string]bool{}
	for _, o := range objects {
		data, err := json.Marshal(o)
		require.NoError(t, err)
		if o.GetKind() == "ValidatingAdmissionPolicyBinding" {
			var b admissionv1.ValidatingAdmissionPolicyBinding
			strict, err := kjson.UnmarshalStrict(data, &b)
			require.NoError(t, err)
			require.Empty(t, strict)
			require.Equal(t, []admissionv1.ValidationAction{admissionv1.Deny}, b.Spec.ValidationActions)
			bound[b.Spec.PolicyName] = true
			require.Equal(t, "validatingadmissionpolicybindings", guard.Resource(o).Resource)
			continue
		}
		require.Equal(t, admissionv1.SchemeGroupVersion.WithResource("validatingadmissionpolicies"), guard.Resource(o))
		var p admissionv1.ValidatingAdmissionPolicy
		strict, err := kjson.UnmarshalStrict(data, &p)
		require.NoError(t, err)
		require.Empty(t, strict)
		require.Equal(t, admissionv1.Fail, *p.Spec.FailurePolicy)
		for _, r := range p.Spec.MatchConstraints.ResourceRules {
			for _, name := range r.Resources {
				covered[p.Name] = append(covered[p.Name], schema.GroupResource{Group: r.APIGroups[0], Resource: name}.String())
			}
		}
	}
	require.Equal(t, map[string][]string{
		guard.PolicyPatches:  {"services", "services/status", "daemonsets.apps", "daemonsets/status.apps", "deployments.apps", "deployments/status.apps"},
		guard.PolicyLabel:    {"services", "daemonsets.apps", "deployments.apps", "widgets.example.com"},
		guard.PolicySelector: {"daemonsets.apps", "deployments.apps"},
		guard.PolicyReplicas: {"deployments.apps"},
	}, covered)
	require.Len(t, bound, len(covered))
}

// Users name only clusters that every workspace may use. The controller is known by its user, and by its identity
// provider: a workspace can trust an identity provider that gives a user the same name.
func TestPlacement(t *testing.T) {
	exported := []schema.GroupResource{{Group: "apps", Resource: "deployments"}, {Group: "example.com", Resource: "widgets"}}
	for _, tc := range []struct {
		user string
		by   guard.User
		want string
	}{
		{"{username: kcpctl:controller:x}", guard.User{Name: "kcpctl:controller:x"}, "(request.userInfo.username == 'kcpctl:controller:x' && " +
			"!(has(request.userInfo.extra) && 'authentication.kcp.io/cluster-name' in request.userInfo.extra))"},
		{"{username: system:serviceaccount:a:b, extra: {authentication.kcp.io/cluster-name: [1a]}}", guard.User{Name: "system:serviceaccount:a:b", Cluster: "1a"},
			"(request.userInfo.username == 'system:serviceaccount:a:b' && (has(request.userInfo.extra) && 'authentication.kcp.io/cluster-name' in request.userInfo.extra) && " +
				"request.userInfo.extra['authentication.kcp.io/cluster-name'] == ['1a'])"},
		{`{username: "o'b"}`, guard.User{Name: "o'b"}, `request.userInfo.username == 'o\'b' && `},
	} {
		review := &unstructured.Unstructured{Object: map[string]any{}}
		require.NoError(t, yaml.Unmarshal([]byte("status: {userInfo: "+tc.user+"}"), &review.Object))
		require.Equal(t, tc.by, guard.UserOf(review))
		objects := guard.Placement(exported, []string{"c2", "c1"}, tc.by)
		require.Len(t, objects, 2)
		data, err := json.Marshal(objects[0])
		require.NoError(t, err)
		var p admissionv1.ValidatingAdmissionPolicy
		strict, err := kjson.UnmarshalStrict(data, &p)
		require.NoError(t, err)
		require.Empty(t, strict)
		require.Equal(t, guard.PolicyPlacement, p.Name)
		require.Len(t, p.Spec.MatchConstraints.ResourceRules, 2)
		for _, r := range p.Spec.MatchConstraints.ResourceRules {
			require.Equal(t, []admissionv1.OperationType{admissionv1.Create, admissionv1.Update}, r.Operations)
		}
		expression := p.Spec.Validations[0].Expression
		require.Contains(t, expression, tc.want)
		require.Contains(t, expression, "object.metadata.labels['workloads.kcp.dev/cluster'] in ['c1','c2']")
		require.NotContains(t, p.Spec.Validations[0].Message, "c1", "it does not tell which clusters there are")
	}
	none := guard.Placement(exported, nil, guard.User{Name: "x"})[0]
	raw, err := json.Marshal(none)
	require.NoError(t, err)
	require.Contains(t, string(raw), "in [] ||", "no cluster is open")
}

func TestPoliciesWithoutResourcesAreLeftOut(t *testing.T) {
	require.Empty(t, guard.Members(nil, guard.User{Name: "x"}))
	require.Len(t, guard.Members([]schema.GroupResource{{Group: "example.com", Resource: "widgets"}}, guard.User{Name: "x"}), 2)
	require.Empty(t, guard.Placement(nil, []string{"c1"}, guard.User{Name: "x"}))
	require.Empty(t, guard.Objects(nil))
	require.Len(t, guard.Objects([]schema.GroupResource{{Group: "example.com", Resource: "widgets"}}), 2)
}
