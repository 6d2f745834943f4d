//go:build e2e && long

package e2e

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// servers has a server of virtual workspaces for the root shard, and one for another shard.
const servers = "  virtualWorkspaces: [{name: vr, shard: root}, {name: va, shard: alpha}]\n"

// TestLocalVirtualWorkspaces adds servers of virtual workspaces to shards that run, and removes them again, with the
// cache that is embedded in the root shard and with a cache server.
func TestLocalVirtualWorkspaces(t *testing.T) {
	for _, cache := range []struct{ name, spec string }{{"embedded cache", ""}, {"cache server", "  cacheServer: {}\n"}} {
		t.Run(cache.name, func(t *testing.T) {
			s := newLocal(t, "minimal")
			s.text += "spec:\n  shards: [{name: alpha}]\n" + cache.spec
			s.write(t, s.text)
			s.up(t)
			s.serveExports(t, "root-shard", "shard/alpha")
			s.write(t, s.text+servers)
			s.up(t)
			isReady(t, s)
			s.serveExports(t, "virtual-workspaces/va", "virtual-workspaces/vr")
			s.createWorkspaces(t, "root", "alpha")
			changesNothing(t, s)
			s.write(t, s.text)
			s.up(t)
			isReady(t, s)
			s.serveExports(t, "root-shard", "shard/alpha")
			leavesNothing(t, s)
		})
	}
}

// serveExports waits until these components serve the virtual workspaces of an APIExport, and workspaces can be read
// at their URLs.
func (s *setup) serveExports(t *testing.T, want ...string) {
	t.Helper()
	ports := map[string]string{}
	for _, c := range s.becomesReady(t).Components {
		if u, err := url.Parse(c.URL); err == nil && u.Port() != "" {
			ports[u.Port()] = c.ID
		}
	}
	eventually(t.Context(), t, func() error { // kcp writes the URLs of shards into the slice after they have registered
		var found []string
		out, err := s.kubectl(t, "get", "apiexportendpointslice", "tenancy.kcp.io", "--output", "jsonpath={.status.endpoints[*].url}").output()
		if err != nil {
			return err
		}
		for _, endpoint := range strings.Fields(out) {
			u, err := url.Parse(endpoint)
			if err != nil {
				return err
			}
			read := s.kubectl(t, "get", "--server", "https://"+u.Host, "--raw", u.Path+"/clusters/*/apis/tenancy.kcp.io/v1alpha1/workspaces")
			if read.code != 0 || !strings.Contains(read.stdout, "WorkspaceList") {
				return fmt.Errorf("%s: %s%s", endpoint, read.stdout, read.stderr)
			}
			found = append(found, ports[u.Port()])
		}
		if slices.Sort(found); !slices.Equal(found, want) {
			return fmt.Errorf("virtual workspaces are served by %v, not %v", found, want)
		}
		return nil
	})
}
