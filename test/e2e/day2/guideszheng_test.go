package day2

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/test/e2e/framework"
)

// TestClusterGuideZheng runs examples/zheng.yaml: three regions, of which one is on the second node. The clusters share
// no network, so everything between them goes through load balancers.
func TestClusterGuideZheng(t *testing.T) {
	b := os.Getenv("E2E_KUBECONFIG_B")
	if b == "" {
		t.Skip("E2E_KUBECONFIG_B is not set: this test needs a second cluster")
	}
	g := newGuide(t, "zheng", map[string]string{"us": b})
	const server = "https://api.zheng.example.com:6443"
	for _, part := range []struct {
		name string
		do   func(t *testing.T)
	}{
		{"up shows the DNS records while it waits for them", func(t *testing.T) {
			require.Equal(t, []string{"alpha.zheng.example.com", "api.zheng.example.com", "beta.zheng.example.com", "root.zheng.example.com"},
				g.upWithRecords(t))
			g.Lead(t, map[string]string{
				"api.zheng.example.com:6443": "front-proxy-main", "root.zheng.example.com:6443": "root",
				"alpha.zheng.example.com:6443": "shard-alpha", "beta.zheng.example.com:6443": "shard-beta",
			})
			require.Equal(t, []string{"front-proxy-main", "root", "shard-alpha", "shard-beta"}, g.openly(t))
		}},
		{"status", func(t *testing.T) { framework.IsReady(t, g.Setup) }},
		{"checks pass", func(t *testing.T) {
			g.Setup.Passes(t, nil, "KCP114") // who reaches whom
		}},
		{"regions select shards", func(t *testing.T) {
			regions(t, g.Setup, map[string]string{"eu": "root", "us": "alpha", "asia": "beta"})
		}},
		{"virtual workspaces are reached from outside", func(t *testing.T) {
			require.Equal(t, server, g.Connect(t, "--user", "e2e", "--group", "system:kcp:admin", "--workspace", "root"))
			const path = ".zheng.example.com:6443/services/apiexport/root/tenancy.kcp.io"
			g.hasVirtualWorkspaces(t, "https://alpha"+path, "https://beta"+path, "https://root"+path)
		}},
		{"users log in, and reach a shard of another region", func(t *testing.T) {
			g.access(t)
			g.logsIn(t, server)
		}},
		{"a second up writes nothing", func(t *testing.T) { framework.ChangesNothing(t, g.Setup) }},
		{"diff is empty", func(t *testing.T) { require.Empty(t, g.Kcpctl(t, "diff").OK(t).Stdout) }},
		{"down --purge leaves nothing", func(t *testing.T) { framework.LeavesNothing(t, g.Setup) }},
	} {
		framework.Step(t, part.name, part.do)
	}
}
