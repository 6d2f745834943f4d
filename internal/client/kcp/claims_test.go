package kcp_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/kcpctl/kcpctl/internal/client/kcp"
)

func claim(resource string, verbs ...string) kcp.Claim {
	return kcp.Claim{GroupResource: schema.GroupResource{Resource: resource}, Verbs: verbs}
}

func TestAccept(t *testing.T) {
	foreign := claim("secrets", "*")
	foreign.IdentityHash = "0123"
	for name, tc := range map[string]struct{ allowed, asked, accepted, beyond []kcp.Claim }{
		"the same":               {[]kcp.Claim{claim("secrets", "*")}, []kcp.Claim{claim("secrets", "*")}, []kcp.Claim{claim("secrets", "*")}, nil},
		"not asked for":          {[]kcp.Claim{claim("secrets", "*")}, nil, nil, nil},
		"not allowed":            {nil, []kcp.Claim{claim("secrets", "get")}, nil, []kcp.Claim{claim("secrets", "get")}},
		"another identity":       {[]kcp.Claim{claim("secrets", "*")}, []kcp.Claim{foreign}, nil, []kcp.Claim{foreign}},
		"some of all verbs":      {[]kcp.Claim{claim("secrets", "*")}, []kcp.Claim{claim("secrets", "get")}, []kcp.Claim{claim("secrets", "get")}, nil},
		"more verbs":             {[]kcp.Claim{claim("a", "get")}, []kcp.Claim{claim("a", "get", "list")}, []kcp.Claim{claim("a", "get")}, []kcp.Claim{claim("a", "get", "list")}},
		"all verbs, not allowed": {[]kcp.Claim{claim("a", "get")}, []kcp.Claim{claim("a", "*")}, []kcp.Claim{claim("a", "get")}, []kcp.Claim{claim("a", "*")}},
		"fewer verbs":            {[]kcp.Claim{claim("a", "get", "list")}, []kcp.Claim{claim("a", "list")}, []kcp.Claim{claim("a", "list")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.accepted, kcp.Accept(tc.allowed, tc.asked))
			require.ElementsMatch(t, tc.beyond, kcp.Beyond(tc.asked, tc.allowed))
		})
	}
}

func TestClaimManager(t *testing.T) {
	o := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte(`
metadata:
  managedFields:
  - {manager: kcpctl, time: "2026-01-03T00:00:00Z", fieldsV1: {"f:metadata": {}}}
  - {manager: api-syncagent, time: "2026-01-01T00:00:00Z", fieldsV1: {"f:spec": {"f:permissionClaims": {
      'k:{"group":"","resource":"events"}': {}, 'k:{"group":"","resource":"secrets"}': {}}}}}
  - {manager: kubectl-patch, time: "2026-01-02T00:00:00Z", fieldsV1: {"f:spec": {"f:permissionClaims": {'k:{"group":"","resource":"secrets"}': {}}}}}
  - {manager: kcp, subresource: status, fieldsV1: {"f:spec": {"f:permissionClaims": {}}}}
`), &o.Object))
	for resource, want := range map[string]string{"events": "api-syncagent", "secrets": "kubectl-patch", "configmaps": ""} {
		require.Equal(t, want, kcp.ClaimManager(o, claim(resource, "*")), resource)
	}
}
