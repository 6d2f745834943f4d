package day2

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/test/e2e/framework"
)

// assigned has addresses that clusters assign: a load balancer, and node ports on two clusters.
const assigned = `apiVersion: kcpctl.dev/v1alpha1
kind: Setup
metadata: {name: %[1]s}
spec:
  external: {hostname: auto}
  clusters:
  - {name: eu, kubeconfig: %[2]s, namespace: %[1]s-eu, region: eu}
  - {name: us, kubeconfig: %[3]s, namespace: %[1]s-us, region: us}
  etcd: {embedded: {ephemeral: true}}
  rootShard: {url: auto, expose: NodePort}
  shards:
  - {name: alpha, cluster: us, url: auto, expose: NodePort}
  frontProxies:
  - {name: main, expose: LoadBalancer, service: {loadBalancerClass: kcpctl.dev/e2e}}
  kubeconfigs:
  - {name: admin, user: kcp-admin, groups: ["system:kcp:admin"]}
`

// balanced is an address of the first node for load balancers. The testbed assigns others before.
const balanced = "10.213.0.90"

// regionManifest is what kubectl create workspace --location-selector creates.
const regionManifest = `---
apiVersion: tenancy.kcp.io/v1alpha1
kind: Workspace
metadata: {name: in-%[1]s}
spec:
  type: {name: universal, path: root}
  location: {selector: {matchLabels: {region: %[1]s}}}
`

// TestClusterAuto runs a setup whose addresses its clusters assign. The test plays the controller of load balancers,
// which takes its time.
func TestClusterAuto(t *testing.T) {
	a, b := framework.Given(t, "E2E_KUBECONFIG"), os.Getenv("E2E_KUBECONFIG_B")
	if b == "" || os.Getenv("E2E_TESTBED") == "" {
		t.Skip("E2E_KUBECONFIG_B or E2E_TESTBED is not set: this test needs both nodes of the testbed")
	}
	z := framework.NewPlaces(t, map[string]string{framework.Home: a, "us": b})
	s := framework.NewSetup(t, "minimal", z.Setup, z.State, z)
	s.Text = fmt.Sprintf(assigned, s.Name, a, b)
	s.Write(t, s.Text)
	eu, us := z.Places[framework.Home], z.Places["us"]
	for _, part := range []struct {
		name string
		do   func(t *testing.T)
	}{
		{"commands name what is not assigned", func(t *testing.T) {
			s.Kcpctl(t, "render").Refused(t, 1, "root-shard", "kcpctl up")
		}},
		{"up waits for the load balancer", func(t *testing.T) {
			waited := false
			up := s.Command("up", "--output", "json")
			up.Watch(t, func(_ *exec.Cmd, line []byte) {
				if strings.Contains(string(line), `"scope":"note"`) {
					t.Log(string(line))
				}
				if !waited && strings.Contains(string(line), s.Name+"-front-proxy-main has no load balancer yet") {
					waited = true
					t.Log(string(line))
					balance(t, eu, s.Name+"-front-proxy-main")
				}
			}).OK(t)
			require.True(t, waited)
		}},
		{"status", func(t *testing.T) { framework.IsReady(t, s) }},
		{"a second up keeps the addresses and prints them", func(t *testing.T) {
			framework.ChangesNothing(t, s)
			r := s.Up(t)
			require.Regexp(t, `front-proxy/main +https://`+regexp.QuoteMeta(balanced)+`:6443\n`, r.Stderr)
			require.Regexp(t, `root-shard +https://`+regexp.QuoteMeta(eu.Address(t))+`:3[0-9]{4}\n`, r.Stderr)
			require.Regexp(t, `shard/alpha +https://`+regexp.QuoteMeta(us.Address(t))+`:3[0-9]{4}\n`, r.Stderr)
			t.Log(r.Stderr)
		}},
		{"checks pass", func(t *testing.T) {
			s.Check(t, "--wait", "1m").Passes(t)
			t.Log(s.Kcpctl(t, "check", "--wait", "1m").OK(t).Stdout)
		}},
		{"regions select shards", func(t *testing.T) {
			require.Equal(t, "https://"+balanced+":6443", strings.TrimSuffix(s.Status(t).URL, "/"))
			regions(t, s, map[string]string{"eu": "root", "us": "alpha"})
		}},
		{"down --purge leaves nothing", func(t *testing.T) { framework.LeavesNothing(t, s) }},
	} {
		framework.Step(t, part.name, part.do)
	}
}

// balance assigns an address to a Service.
func balance(t *testing.T, c *framework.Cluster, service string) {
	t.Helper()
	c.Kubectl("patch", "service", service, "--namespace", c.Namespace, "--subresource=status", "--type=merge", "--patch",
		`{"status":{"loadBalancer":{"ingress":[{"ip":"`+balanced+`"}]}}}`).Run(t.Context(), t).OK(t)
}

// regions creates a workspace in each region, and requires that it is on the shard there.
func regions(t *testing.T, s *framework.Setup, want map[string]string) {
	for _, region := range slices.Sorted(maps.Keys(want)) {
		create := s.Command("kubeconfig", "admin", "--", "kubectl", "create", "--filename", "-")
		create.Stdin = fmt.Sprintf(regionManifest, region)
		create.Run(t.Context(), t).OK(t)
		s.Kubectl(t, "wait", "workspace", "in-"+region, "--for=jsonpath={.status.phase}=Ready", "--timeout=3m").OK(t)
		var w framework.Workspace
		require.NoError(t, json.Unmarshal([]byte(s.Kubectl(t, "get", "workspace", "in-"+region, "--output", "json").OK(t).Stdout), &w))
		require.Equal(t, want[region], w.Metadata.Annotations["core.kcp.io/shard"])
	}
}
