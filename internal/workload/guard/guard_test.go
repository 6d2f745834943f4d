package guard_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	kjson "sigs.k8s.io/json"

	"github.com/kcpctl/kcpctl/internal/workload/guard"
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

func TestPoliciesWithoutResourcesAreLeftOut(t *testing.T) {
	require.Empty(t, guard.Objects(nil))
	require.Len(t, guard.Objects([]schema.GroupResource{{Group: "example.com", Resource: "widgets"}}), 2)
}
