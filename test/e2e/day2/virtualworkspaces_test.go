package day2

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/kcpctl/kcpctl/test/e2e/framework"
)

// servers has a server of virtual workspaces for the root shard, and one for another shard.
const servers = "  virtualWorkspaces: [{name: vr, shard: root}, {name: va, shard: alpha}]\n"

// TestLocalVirtualWorkspaces adds servers of virtual workspaces to shards that run, and removes them again, with the
// cache that is embedded in the root shard and with a cache server.
func TestLocalVirtualWorkspaces(t *testing.T) {
	for _, cache := range []struct{ name, spec string }{{"embedded cache", ""}, {"cache server", "  cacheServer: {}\n"}} {
		t.Run(cache.name, func(t *testing.T) {
			s := framework.NewLocal(t, "minimal")
			s.Text += "spec:\n  shards: [{name: alpha}]\n" + cache.spec
			s.Write(t, s.Text)
			s.Up(t)
			serveExports(t, s, "root-shard", "shard/alpha")
			s.Write(t, s.Text+servers)
			s.Up(t)
			framework.IsReady(t, s)
			serveExports(t, s, "virtual-workspaces/va", "virtual-workspaces/vr")
			s.CreateWorkspaces(t, "root", "alpha")
			framework.ChangesNothing(t, s)
			s.Write(t, s.Text)
			s.Up(t)
			framework.IsReady(t, s)
			serveExports(t, s, "root-shard", "shard/alpha")
			framework.LeavesNothing(t, s)
		})
	}
}

// serveExports waits until these components serve the virtual workspaces of an APIExport, and workspaces can be read
// at their URLs.
func serveExports(t *testing.T, s *framework.Setup, want ...string) {
	t.Helper()
	ports := map[string]string{}
	for _, c := range s.BecomesReady(t).Components {
		if u, err := url.Parse(c.URL); err == nil && u.Port() != "" {
			ports[u.Port()] = c.ID
		}
	}
	framework.Eventually(t.Context(), t, func() error { // kcp writes the URLs of shards into the slice after they have registered
		var found []string
		out, err := s.Kubectl(t, "get", "apiexportendpointslice", "tenancy.kcp.io", "--output", "jsonpath={.status.endpoints[*].url}").Output()
		if err != nil {
			return err
		}
		for _, endpoint := range strings.Fields(out) {
			u, err := url.Parse(endpoint)
			if err != nil {
				return err
			}
			read := s.Kubectl(t, "get", "--server", "https://"+u.Host, "--raw", u.Path+"/clusters/*/apis/tenancy.kcp.io/v1alpha1/workspaces")
			if read.Code != 0 || !strings.Contains(read.Stdout, "WorkspaceList") {
				return fmt.Errorf("%s: %s%s", endpoint, read.Stdout, read.Stderr)
			}
			found = append(found, ports[u.Port()])
		}
		if slices.Sort(found); !slices.Equal(found, want) {
			return fmt.Errorf("virtual workspaces are served by %v, not %v", found, want)
		}
		return nil
	})
}
