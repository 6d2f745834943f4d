package day2

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

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

// TestLocalCustomServer adds a server of virtual workspaces that is the user's own: front-proxies send the requests for
// its path to it, with the identity of the client, and it reads kcp with its own kubeconfig.
func TestLocalCustomServer(t *testing.T) {
	s := framework.NewLocal(t, "minimal")
	local := s.Runtime.(*framework.Local)
	programs := t.TempDir()
	for _, name := range []string{"cache-server", "kcp", "kcp-front-proxy", "virtual-workspaces"} {
		require.NoError(t, os.Symlink(filepath.Join(local.Binaries, name), filepath.Join(programs, name)))
	}
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", programs, "../customserver").CombinedOutput()
	require.NoError(t, err, "%s", out)
	local.Binaries = programs
	s.Up(t)
	urls := func() string {
		return s.Kubectl(t, "get", "apiexportendpointslice", "tenancy.kcp.io", "--output", "jsonpath={.status.endpoints[*].url}").OK(t).Stdout
	}
	before := urls()

	s.Beside(t, "secrets/reader/kubeconfig", s.Kcpctl(t, "kubeconfig", "--user", "reader", "--group", "system:kcp:admin").OK(t).Stdout)
	s.Write(t, s.Text+"spec:\n  virtualWorkspaces: [{name: custom, command: [/customserver], path: /services/custom/, kubeconfigSecret: reader}]\n")
	s.Up(t)
	framework.IsReady(t, s)
	framework.ChangesNothing(t, s)
	require.Equal(t, before, urls(), "the virtual workspaces of the shard stay where they are")
	proxy := ""
	for _, c := range s.BecomesReady(t).Components {
		if c.ID == "front-proxy/main" {
			proxy = c.URL
		}
	}
	read := func(path string) string {
		return s.KubectlAs(t, []string{"--user", "tenant", "--group", "system:authenticated"}, "get", "--server", proxy, "--raw", path).OK(t).Stdout
	}
	require.Equal(t, "tenant", read("/services/custom/user"))
	require.Contains(t, read("/services/custom/workspaces"), "WorkspaceList")

	s.Write(t, s.Text)
	s.Up(t)
	framework.IsReady(t, s)
	framework.LeavesNothing(t, s)
}
