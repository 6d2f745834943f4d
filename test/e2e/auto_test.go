//go:build e2e && long

package e2e

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
	a, b := given(t, "E2E_KUBECONFIG"), os.Getenv("E2E_KUBECONFIG_B")
	if b == "" || os.Getenv("E2E_TESTBED") == "" {
		t.Skip("E2E_KUBECONFIG_B or E2E_TESTBED is not set: this test needs both nodes of the testbed")
	}
	z := newPlaces(t, map[string]string{home: a, "us": b})
	s := newSetup(t, "minimal", z.setup, z.state, z)
	s.text = fmt.Sprintf(assigned, s.name, a, b)
	s.write(t, s.text)
	eu, us := z.places[home], z.places["us"]
	for _, part := range []struct {
		name string
		do   func(t *testing.T)
	}{
		{"commands name what is not assigned", func(t *testing.T) {
			s.kcpctl(t, "render").refused(t, 1, "root-shard", "kcpctl up")
		}},
		{"up waits for the load balancer", func(t *testing.T) {
			waited := false
			up := s.command("up", "--output", "json")
			up.watch(t, func(_ *exec.Cmd, line []byte) {
				if strings.Contains(string(line), `"scope":"note"`) {
					t.Log(string(line))
				}
				if !waited && strings.Contains(string(line), s.name+"-front-proxy-main has no load balancer yet") {
					waited = true
					t.Log(string(line))
					eu.balance(t, s.name+"-front-proxy-main")
				}
			}).ok(t)
			require.True(t, waited)
		}},
		{"status", func(t *testing.T) { isReady(t, s) }},
		{"a second up keeps the addresses and prints them", func(t *testing.T) {
			changesNothing(t, s)
			r := s.up(t)
			require.Regexp(t, `front-proxy/main +https://`+regexp.QuoteMeta(balanced)+`:6443\n`, r.stderr)
			require.Regexp(t, `root-shard +https://`+regexp.QuoteMeta(eu.address(t))+`:3[0-9]{4}\n`, r.stderr)
			require.Regexp(t, `shard/alpha +https://`+regexp.QuoteMeta(us.address(t))+`:3[0-9]{4}\n`, r.stderr)
			t.Log(r.stderr)
		}},
		{"checks pass", func(t *testing.T) {
			s.check(t, "--wait", "1m").passes(t)
			t.Log(s.kcpctl(t, "check", "--wait", "1m").ok(t).stdout)
		}},
		{"regions select shards", func(t *testing.T) {
			require.Equal(t, "https://"+balanced+":6443", strings.TrimSuffix(s.status(t).URL, "/"))
			regions(t, s, map[string]string{"eu": "root", "us": "alpha"})
		}},
		{"down --purge leaves nothing", func(t *testing.T) { leavesNothing(t, s) }},
	} {
		step(t, part.name, part.do)
	}
}

// balance assigns an address to a Service.
func (c *cluster) balance(t *testing.T, service string) {
	t.Helper()
	c.kubectl("patch", "service", service, "--namespace", c.namespace, "--subresource=status", "--type=merge", "--patch",
		`{"status":{"loadBalancer":{"ingress":[{"ip":"`+balanced+`"}]}}}`).run(t.Context(), t).ok(t)
}

// regions creates a workspace in each region, and requires that it is on the shard there.
func regions(t *testing.T, s *setup, want map[string]string) {
	for _, region := range slices.Sorted(maps.Keys(want)) {
		create := s.command("kubeconfig", "admin", "--", "kubectl", "create", "--filename", "-")
		create.stdin = fmt.Sprintf(regionManifest, region)
		create.run(t.Context(), t).ok(t)
		s.kubectl(t, "wait", "workspace", "in-"+region, "--for=jsonpath={.status.phase}=Ready", "--timeout=3m").ok(t)
		var w workspace
		require.NoError(t, json.Unmarshal([]byte(s.kubectl(t, "get", "workspace", "in-"+region, "--output", "json").ok(t).stdout), &w))
		require.Equal(t, want[region], w.Metadata.Annotations["core.kcp.io/shard"])
	}
}
