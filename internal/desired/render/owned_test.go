package render_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/api/release"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// tunable are the flags that kcpctl sets and extraArgs may replace: nothing else follows from them. The authentication
// of tokens is among them, because shards can differ in it.
var tunable = []string{
	"v", "log-debug", "feature-gates", "enable-leader-election", "service-account-lookup",
	"shutdown-watch-termination-grace-period", "authentication-skip-lookup", "authentication-config", "token-auth-file",
	"oidc-", "authentication-token-webhook-", "mount-proxy-client-", "audit-log-path",
}

// Each flag that kcpctl sets is one of its program, and has an owner or is known to be tunable.
func TestFlagsHaveOwners(t *testing.T) {
	top, _, objects := rendered(t, topologytest.EveryKind)
	kinds := map[topology.Kind]bool{}
	for _, c := range top.Components {
		if !c.Runs() || c.Kind == topology.Physical { // a syncer has no extraArgs
			continue
		}
		kinds[c.Kind] = true
		for _, arg := range argsOf(t, objects, c.Object()) {
			name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
			// Help does not list the flag root-directory of cache-server.
			if known := release.Flags(c.Kind.Program(), release.Newest); known != nil && name != "root-directory" {
				require.True(t, !strings.HasPrefix(arg, "--") || slices.Contains(known, name), "%s has no flag %s", c.ID(), arg)
			}
			_, owned := topology.OwnerOf(c.Kind, name)
			free := slices.ContainsFunc(tunable, func(p string) bool { return p == name || strings.HasSuffix(p, "-") && strings.HasPrefix(name, p) })
			require.True(t, !strings.HasPrefix(arg, "--") || owned || free, "%s: %s", c.ID(), arg)
		}
	}
	require.Len(t, kinds, 8)
}
