//go:build e2e && long

package e2e

import (
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/test/oidc"
)

// shardless is the place without a shard.
const shardless = "edge"

// zonesSetup is the setup of zones. Its arguments are in the order of zones.text.
const zonesSetup = `apiVersion: kcpctl.dev/v1alpha1
kind: Setup
metadata: {name: %[1]s}
spec:
  version: %[2]s
  external: {hostname: %[5]s, port: %[10]d}
  clusters:
    - {name: eu, kubeconfig: %[3]s, namespace: %[1]s-eu}
    - {name: apac, kubeconfig: %[3]s, namespace: %[1]s-apac}
    - {name: us, kubeconfig: %[4]s, namespace: %[1]s-us}
    - {name: edge, kubeconfig: %[4]s, namespace: %[1]s-edge}
  etcd: {embedded: {storage: 1Gi}}
  cacheServer:
    url: https://%[5]s:%[7]d
    expose: NodePort
  rootShard:
    url: https://%[5]s:%[8]d
    expose: NodePort
  shards:
    - name: alpha
      cluster: apac
      url: https://%[5]s:%[9]d
      expose: NodePort
    - name: beta
      cluster: us
      url: https://%[6]s:%[7]d
      expose: NodePort
  frontProxies:
    - name: main
      expose: NodePort
    - name: edge
      cluster: edge
      external: {hostname: %[6]s, port: %[8]d}
      expose: NodePort
      authentication: {oidc: %[11]s}
  kubeconfigs:
    - {name: admin, user: kcp-admin, groups: ["system:kcp:admin"]}
`

// newZones creates a setup in four namespaces of two clusters whose pod networks are not connected. It is removed when
// the test ends.
func newZones(t *testing.T, version string) (*setup, *zones) {
	t.Helper()
	a, b := given(t, "E2E_KUBECONFIG"), os.Getenv("E2E_KUBECONFIG_B")
	if b == "" {
		t.Skip("E2E_KUBECONFIG_B is not set: this test needs a second cluster")
	}
	z := newPlaces(t, map[string]string{home: a, "apac": a, "us": b, shardless: b})
	s := newSetup(t, "minimal", z.setup, z.state, z)
	s.text = z.text(t, version)
	s.write(t, s.text)
	return s, z
}

func (z *zones) text(t *testing.T, version string) string {
	t.Helper()
	eu, us := z.places[home], z.places["us"]
	z.port = zonesPort
	return fmt.Sprintf(zonesSetup, z.setup, version, eu.kubeconfig, us.kubeconfig, eu.address(t), us.address(t),
		z.port, z.port+1, z.port+2, z.port+3, z.oidc(t, us.address(t)))
}

// startIssuer starts an issuer that pods of a node reach, at the address of this machine in the network of the node.
func startIssuer(t *testing.T, node string) *oidc.Issuer {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "udp", net.JoinHostPort(node, "443")) // it sends nothing
	require.NoError(t, err)
	defer conn.Close()
	host, _, err := net.SplitHostPort(conn.LocalAddr().String())
	require.NoError(t, err)
	return oidc.Start(t, host)
}

// oidc starts an issuer and returns the settings for it.
func (z *zones) oidc(t *testing.T, node string) string {
	t.Helper()
	z.issuer = startIssuer(t, node)
	settings, err := json.Marshal(map[string]any{
		"issuerURL": z.issuer.URL, "clientID": oidc.ClientID, "groupsClaim": "groups", "groupsPrefix": "oidc:", "ca": string(z.issuer.CA),
	})
	require.NoError(t, err)
	return string(settings)
}

// tokens requires that the tokens of the issuer are valid at the front-proxy of the second cluster only. Its users
// reach a shard of the first cluster with their own name and groups.
func (z *zones) tokens(t *testing.T, s *setup) {
	a := &authenticated{setup: s, issuer: z.issuer, ca: x509.NewCertPool()}
	a.apply(t, teamManifest, "admin")
	a.kubectl(t, "wait", "workspace", "team", "--for=jsonpath={.status.phase}=Ready", "--timeout=3m").ok(t)
	a.apply(t, accessManifest, admin...)
	edge, main := a.connect(t, asEdge(team)...), a.connect(t, asMain(team)...)
	require.NotEqual(t, edge, main)

	alice := request{token: z.issuer.Token(t, "alice", map[string]any{"groups": []string{"team"}})}
	var got identity
	eventually(t.Context(), t, func() error { // a front-proxy discovers the issuer after it has started
		if got = a.whoAmI(t, edge, team, alice); got.code != http.StatusCreated {
			return fmt.Errorf("HTTP %d: %s", got.code, got.body)
		}
		return nil
	})
	require.Equal(t, z.issuer.URL+"#alice", got.name)
	require.ElementsMatch(t, []string{"oidc:team", "system:authenticated"}, got.groups)
	require.Equal(t, http.StatusUnauthorized, a.whoAmI(t, main, team, alice).code, "the other front-proxy does not know the issuer")

	forged := request{headers: map[string]string{"X-Remote-User": "root", "X-Remote-Group": "system:masters"}}
	require.Equal(t, http.StatusUnauthorized, a.whoAmI(t, edge, team, forged).code)
	require.Equal(t, http.StatusUnauthorized, a.whoAmI(t, main, team, forged).code)
}

// address returns the address of a node of the cluster.
func (c *cluster) address(t *testing.T) string {
	t.Helper()
	r := c.kubectl("get", "nodes", "--output", `jsonpath={.items[0].status.addresses[?(@.type=="InternalIP")].address}`)
	return r.run(t.Context(), t).ok(t).stdout
}

// TestClusterZones runs a setup over two clusters and four namespaces through its life cycle. TestClusterZonesCut
// rotates its authorities.
func TestClusterZones(t *testing.T) {
	s, z := newZones(t, olderRelease)
	for _, part := range []struct {
		name string
		do   func(t *testing.T, s *setup)
	}{
		{"one up", func(t *testing.T, s *setup) { s.up(t) }},
		{"status", isReady},
		{"shards are registered", shards},
		{"workspaces on every shard", createWorkspaces},
		{"workspaces on every shard through the second front-proxy", createThroughEdge},
		{"a token is valid at the front-proxy that knows its issuer", z.tokens},
		{"a second up writes nothing", changesNothing},
		{"diff is empty", func(t *testing.T, s *setup) { s.kcpctl(t, "diff").ok(t) }},
		{"checks pass", func(t *testing.T, s *setup) { s.check(t, "--wait", "1m").passes(t) }},
		{"render is what up applies", rendersWhatRuns},
		{"authorities' keys stay in the store", keepsKeys},
		{"places hold what their components need", z.holdNoForeignKeys},
		{"upgrade", upgradeEverywhere},
		{"a shard is added to the second cluster", z.addShard},
		{"renew", func(t *testing.T, s *setup) { s.certs(t, "renew", "--skip-canary", "--parallel", "3").ok(t).quiet(t) }},
		{"status after all of it", isReady},
		{"down --purge leaves nothing", leavesNothing},
	} {
		step(t, part.name, func(t *testing.T) { part.do(t, s) })
	}
}

// addShard adds a shard to the second cluster, and uses it through both front-proxies.
func (z *zones) addShard(t *testing.T, s *setup) {
	before := s.ids(t)
	url := fmt.Sprintf("https://%s:%d", z.places["us"].address(t), z.port+2)
	s.kcpctl(t, "add-shard", "gamma", "--cluster", "us", "--url", url, "--expose", "NodePort").ok(t).quiet(t)
	s.unchanged(t, before)
	raw, err := os.ReadFile(s.file)
	require.NoError(t, err)
	s.text = string(raw)
	create := s.command("kubeconfig", append(asEdge("root"), "--", "kubectl", "create", "--filename", "-")...)
	create.stdin = fmt.Sprintf(workspaceManifest, "gamma")
	create.run(t.Context(), t).ok(t)
	s.kubectl(t, "wait", "workspace", "on-gamma", "--for=jsonpath={.status.phase}=Ready", "--timeout=3m").ok(t)
	for _, as := range [][]string{asEdge("root:on-gamma"), asMain("root:on-gamma")} {
		eventually(t.Context(), t, func() error {
			return s.reads(t, "Active", as, "get", "namespace", "default", "--output", "jsonpath={.status.phase}")
		})
	}
}

func upgradeEverywhere(t *testing.T, s *setup) {
	s.kcpctl(t, "upgrade", newerRelease, "--parallel", "3").ok(t).quiet(t)
	for _, c := range s.becomesReady(t).Components {
		require.Equal(t, newerRelease, c.Version, c)
	}
	raw, err := os.ReadFile(s.file)
	require.NoError(t, err)
	s.text = string(raw)
	readWorkspaces(t, s)
	readThroughEdge(t, s)
}

const edgeWorkspace = `---
apiVersion: tenancy.kcp.io/v1alpha1
kind: Workspace
metadata: {name: edge-%[1]s}
spec:
  type: {name: universal, path: root}
  location: {selector: {matchLabels: {name: %[1]s}}}
`

// asEdge returns the arguments of kcpctl kubeconfig for a workspace, through the front-proxy of the second cluster.
func asEdge(workspace string) []string {
	return []string{"--user", "e2e", "--group", "system:kcp:admin", "--target", "front-proxy/edge", "--workspace", workspace}
}

// asMain returns the arguments of kcpctl kubeconfig for a workspace, through the front-proxy of the first cluster.
func asMain(workspace string) []string {
	return []string{"--user", "e2e", "--group", "system:kcp:admin", "--target", "front-proxy/main", "--workspace", workspace}
}

// createThroughEdge creates a workspace on each shard through the front-proxy of the second cluster, and reads all
// workspaces through it.
func createThroughEdge(t *testing.T, s *setup) {
	manifests := ""
	var names []string
	for _, shard := range shardNames() {
		manifests += fmt.Sprintf(edgeWorkspace, shard)
		names = append(names, "edge-"+shard)
	}
	create := s.command("kubeconfig", append(asEdge("root"), "--", "kubectl", "create", "--filename", "-")...)
	create.stdin = manifests
	create.run(t.Context(), t).ok(t)
	s.kubectlAs(t, asEdge("root"), append(append([]string{"wait", "workspaces"}, names...), "--for=jsonpath={.status.phase}=Ready", "--timeout=3m")...).ok(t)
	for _, shard := range shardNames() {
		on := []string{"get", "workspace", "edge-" + shard, "--output", `jsonpath={.metadata.annotations.core\.kcp\.io/shard}`}
		require.NoError(t, s.reads(t, shard, []string{"admin"}, on...))
	}
	readThroughEdge(t, s)
}

// readThroughEdge reads what createWorkspaces has created, through the front-proxy of the second cluster.
func readThroughEdge(t *testing.T, s *setup) {
	for _, shard := range shardNames() {
		eventually(t.Context(), t, func() error {
			return s.reads(t, shard, asEdge("root:on-"+shard), "get", "configmap", "data", "--output", "jsonpath={.data.shard}")
		})
	}
}
