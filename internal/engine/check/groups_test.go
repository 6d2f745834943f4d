package check

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

func TestIssuersOfGroups(t *testing.T) {
	const oidc = "oidc: {issuerURL: https://login.example.com, clientID: kcp, groupsClaim: groups"
	const warning = "https://login.example.com can put its users into any group, such as system:kcp:admin, at "
	structured := func(groups, more string) string {
		return "{config: {jwt: [{issuer: {url: https://login.example.com, audiences: [kcp]}, claimMappings: {username: {claim: sub, prefix: ''}, groups: " + groups + "}" + more + "}]}}"
	}
	for name, tc := range map[string]struct {
		authentication string
		status         Status
		causes         []string
	}{
		"no issuer":                {"{}", "", nil},
		"no groups":                {"{oidc: {issuerURL: https://login.example.com, clientID: kcp}}", "", nil},
		"a prefix":                 {"{" + oidc + ", groupsPrefix: 'oidc:'}}", "", nil},
		"no prefix":                {"{" + oidc + "}}", Warn, []string{warning + "front-proxy/main"}},
		"on shards too":            {"{mode: Everywhere, " + oidc + "}}", Warn, []string{warning + "front-proxy/main, root-shard"}},
		"a structured one":         {structured("{claim: groups, prefix: ''}", ""), Warn, []string{warning + "front-proxy/main"}},
		"with a prefix":            {structured("{claim: groups, prefix: 'oidc:'}", ""), "", nil},
		"an expression":            {structured("{expression: claims.groups}", ""), "", nil},
		"rules that refuse groups": {structured("{claim: groups, prefix: ''}", ", userValidationRules: [{expression: \"!user.groups.exists(g, g.startsWith('system:'))\"}]"), "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			top := topologytest.Build(t, topologytest.Header+"spec: {authentication: "+tc.authentication+"}\n")
			o := issuersOfGroups(t.Context(), &Subject{Topology: top})
			require.Equal(t, tc.status, o.status)
			require.Equal(t, tc.causes, o.causes)
		})
	}
}
