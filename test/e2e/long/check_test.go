package long

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/test/e2e/framework"
)

// checkBreakage is a defect of a real setup, and the check that must find it.
type checkBreakage struct {
	name string
	// breakIt makes the defect, repair removes it.
	breakIt, repair func(t *testing.T, s *framework.Setup)
	flags           []string
	id, status      string
	facts           []string // of the cause
	// up means that kcpctl up must fail with the same cause and write nothing.
	up bool
}

func checkBreakages() []checkBreakage {
	patchShard := func(patch string) func(t *testing.T, s *framework.Setup) {
		return func(t *testing.T, s *framework.Setup) {
			s.Kubectl(t, "patch", "shard", "root", "--type=merge", "--patch", patch).OK(t)
		}
	}
	cordon := func(value string) string {
		return `{"metadata":{"annotations":{"experimental.core.kcp.io/unschedulable":` + value + `}}}`
	}
	inNamespace := func(args ...string) func(t *testing.T, s *framework.Setup) {
		return func(t *testing.T, s *framework.Setup) {
			c := s.Runtime.(*framework.Cluster)
			c.Kubectl(append(args, "--namespace", s.Name)...).Run(t.Context(), t).OK(t)
		}
	}
	withShard := func(end string) func(t *testing.T, s *framework.Setup) {
		return func(t *testing.T, s *framework.Setup) { s.Write(t, s.Text+"spec:\n  shards: [{name: more}]\n"+end) }
	}
	restoreFile := func(t *testing.T, s *framework.Setup) { s.Write(t, s.Text) }
	both := func(all ...func(*testing.T, *framework.Setup)) func(*testing.T, *framework.Setup) {
		return func(t *testing.T, s *framework.Setup) {
			for _, do := range all {
				do(t, s)
			}
		}
	}
	up := func(t *testing.T, s *framework.Setup) { s.Up(t, "--skip-canary", "--force-conflicts") }
	return []checkBreakage{
		{
			name: "the root shard is cordoned", breakIt: patchShard(cordon(`"true"`)), repair: patchShard(cordon(`null`)),
			id: "KCP122", status: "fail", facts: []string{"root"},
		},
		{
			name: "the shard has another URL", breakIt: patchShard(`{"spec":{"externalURL":"https://elsewhere.example.com:6443"}}`),
			repair: func(t *testing.T, s *framework.Setup) {
				patchShard(fmt.Sprintf(`{"spec":{"externalURL":%q}}`, s.Status(t).URL))(t, s)
			},
			id: "KCP121", status: "fail", facts: []string{"root-shard", "https://elsewhere.example.com:6443"},
		},
		{
			name: "a registered shard is not in the setup",
			breakIt: func(t *testing.T, s *framework.Setup) {
				apply := s.Command("kubeconfig", "admin", "--", "kubectl", "apply", "-f", "-")
				apply.Stdin = `{"apiVersion":"core.kcp.io/v1alpha1","kind":"Shard","metadata":{"name":"ghost","annotations":` +
					`{"experimental.core.kcp.io/unschedulable":"true"}},"spec":{"baseURL":"https://ghost.example.com:6443",` +
					`"externalURL":"https://ghost.example.com:6443","virtualWorkspaceURL":"https://ghost.example.com:6443"}}`
				apply.Run(t.Context(), t).OK(t)
			},
			repair: func(t *testing.T, s *framework.Setup) { s.Kubectl(t, "delete", "shard", "ghost").OK(t) },
			id:     "KCP121", status: "warn", facts: []string{"ghost", "https://ghost.example.com:6443"},
		},
		{
			name: "the front-proxy is gone", breakIt: func(t *testing.T, s *framework.Setup) {
				inNamespace("delete", "deployment", s.Name+"-front-proxy-main", "--wait")(t, s)
			}, repair: up,
			id: "KCP101", status: "fail", facts: []string{"front-proxy/main"},
		},
		{
			name: "a client's certificate is another component's", breakIt: func(t *testing.T, s *framework.Setup) {
				c := s.Runtime.(*framework.Cluster)
				server := c.Kubectl("get", "secret", s.Name+"-root-server", "--namespace", s.Name, "--output", "jsonpath={.data}").Run(t.Context(), t).OK(t).Stdout
				inNamespace("patch", "secret", s.Name+"-front-proxy-main-shard-client", "--patch", `{"data":`+server+`}`)(t, s)
			}, repair: up,
			id: "KCP112", status: "fail", facts: []string{"front-proxy/main", "-front-proxy-main-shard-client"},
		},
		{
			name: "a Secret is missing", breakIt: func(t *testing.T, s *framework.Setup) {
				s.Write(t, s.Text+"spec:\n  image: {pullSecrets: [nowhere]}\n")
			}, repair: restoreFile, flags: []string{"--pre"}, up: true,
			id: "KCP011", status: "fail", facts: []string{"/nowhere"},
		},
		{
			name: "a storage class is misspelt", breakIt: withShard("  etcd: {managed: {storageClassName: fats}}\n"), repair: restoreFile,
			flags: []string{"--pre"}, up: true,
			id: "KCP012", status: "fail", facts: []string{`"fats"`, "etcd/more"},
		},
		{
			name: "the quota is used up",
			breakIt: both(inNamespace("create", "quota", "small", "--hard=pods=4"),
				// A controller counts what is used.
				inNamespace("wait", "resourcequota/small", "--for=jsonpath={.status.used.pods}", "--timeout=3m"), withShard("")),
			repair: both(inNamespace("delete", "quota", "small"), restoreFile), flags: []string{"--pre"}, up: true,
			id: "KCP013", status: "fail",
			// A terminating pod counts too.
			facts: []string{"ResourceQuota/small", "2 more", "pods"},
		},
		{
			name: "pod security rejects an overlay",
			breakIt: func(t *testing.T, s *framework.Setup) {
				c := s.Runtime.(*framework.Cluster)
				c.Kubectl("label", "namespace", s.Name, "pod-security.kubernetes.io/enforce=restricted").Run(t.Context(), t).OK(t)
				s.Write(t, s.Text+"spec:\n  frontProxies: [{name: main, podTemplate: {spec: {hostNetwork: true}}}]\n")
			},
			repair: func(t *testing.T, s *framework.Setup) {
				c := s.Runtime.(*framework.Cluster)
				c.Kubectl("label", "namespace", s.Name, "pod-security.kubernetes.io/enforce-").Run(t.Context(), t).OK(t)
				restoreFile(t, s)
			},
			flags: []string{"--pre"}, up: true,
			id: "KCP014", status: "fail", facts: []string{"Deployment/", "violates PodSecurity", "hostNetwork"},
		},
		{
			name: "the external host name does not resolve",
			breakIt: func(t *testing.T, s *framework.Setup) {
				s.Write(t, s.Text+"spec:\n  external: {hostname: kcp.nowhere.invalid}\n")
			},
			repair: restoreFile, flags: []string{"--pre"},
			id: "KCP021", status: "warn", facts: []string{"kcp.nowhere.invalid"},
		},
	}
}

// TestClusterChecks breaks a running setup in many ways. The checks must find each cause, and must pass before and
// after.
func TestClusterChecks(t *testing.T) {
	s := framework.NewCluster(t, "minimal")
	framework.Step(t, "checks pass before up", func(t *testing.T) { s.Check(t, "--pre", "--wait", "1m").Passes(t) })
	framework.Step(t, "up", func(t *testing.T) { s.Up(t, "--skip-canary") })
	framework.Step(t, "checks pass while it runs", func(t *testing.T) { s.Check(t, "--wait", "1m").Passes(t) })
	for _, b := range checkBreakages() {
		framework.Step(t, b.name, func(t *testing.T) {
			b.breakIt(t, s)
			s.Finds(t, b.flags, b.id, b.status, b.facts...)
			if b.up {
				before := s.Written(t)
				s.Kcpctl(t, "up").Refused(t, 1, b.id, b.facts[0])
				require.Equal(t, before, s.Written(t), "nothing was to be written")
			}
			b.repair(t, s)
			s.Check(t, "--wait", "2m").Passes(t)
		})
	}
}
