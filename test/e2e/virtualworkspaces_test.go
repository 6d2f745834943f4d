//go:build e2e && long

package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// servers has a server of virtual workspaces for the root shard, and one for another shard.
const servers = "  virtualWorkspaces: [{name: vr, shard: root}, {name: va, shard: alpha}]\n"

// TestLocalVirtualWorkspaces adds servers of virtual workspaces to shards that run, and removes them again, with the
// cache that is embedded in the root shard and with a cache server.
func TestLocalVirtualWorkspaces(t *testing.T) {
	for name, cache := range map[string]string{"embedded cache": "", "cache server": "  cacheServer: {}\n"} {
		t.Run(name, func(t *testing.T) {
			s := newLocal(t, "minimal", "--base-port", strconv.Itoa(30000+100*rand.IntN(20)))
			s.text += "spec:\n  shards: [{name: alpha}]\n" + cache
			s.write(t, s.text)
			s.up(t)
			require.Equal(t, []string{"root-shard", "shard/alpha"}, s.servesExports(t))
			s.write(t, s.text+servers)
			s.up(t)
			isReady(t, s)
			require.Equal(t, []string{"virtual-workspaces/va", "virtual-workspaces/vr"}, s.servesExports(t))
			s.createWorkspaces(t, "root", "alpha")
			changesNothing(t, s)
			s.write(t, s.text)
			s.up(t)
			isReady(t, s)
			require.Equal(t, []string{"root-shard", "shard/alpha"}, s.servesExports(t))
			leavesNothing(t, s)
		})
	}
}

// servesExports reads workspaces at the URLs of the virtual workspaces of an APIExport, and returns the components
// that serve them.
func (s *setup) servesExports(t *testing.T) []string {
	t.Helper()
	ports := map[string]string{}
	for _, c := range s.status(t).Components {
		if u, err := url.Parse(c.URL); err == nil && u.Port() != "" {
			ports[u.Port()] = c.ID
		}
	}
	var found []string
	eventually(t.Context(), t, func() error { // kcp writes the URLs of shards into the slice after they have registered
		found = nil
		r := s.kubectl(t, "get", "apiexportendpointslice", "tenancy.kcp.io", "--output", "jsonpath={.status.endpoints[*].url}").ok(t)
		for _, endpoint := range strings.Fields(r.stdout) {
			u, err := url.Parse(endpoint)
			require.NoError(t, err)
			read := s.kubectl(t, "get", "--server", "https://"+u.Host, "--raw", u.Path+"/clusters/*/apis/tenancy.kcp.io/v1alpha1/workspaces")
			if read.code != 0 || !strings.Contains(read.stdout, "WorkspaceList") {
				return fmt.Errorf("%s: %s%s", endpoint, read.stdout, read.stderr)
			}
			found = append(found, ports[u.Port()])
		}
		if len(found) != 2 {
			return fmt.Errorf("virtual workspaces are served by %v", found)
		}
		return nil
	})
	slices.Sort(found)
	return found
}
