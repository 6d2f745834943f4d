package framework

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

// NewZones creates a setup in four namespaces of two clusters whose pod networks are not connected. It is removed when
// the test ends.
func NewZones(t *testing.T, version string) (*Setup, *Zones) {
	t.Helper()
	a, b := Given(t, "E2E_KUBECONFIG"), os.Getenv("E2E_KUBECONFIG_B")
	if b == "" {
		t.Skip("E2E_KUBECONFIG_B is not set: this test needs a second cluster")
	}
	z := NewPlaces(t, map[string]string{Home: a, "apac": a, "us": b, shardless: b})
	s := NewSetup(t, "minimal", z.Setup, z.State, z)
	s.Text = z.text(t, version)
	s.Write(t, s.Text)
	return s, z
}

func (z *Zones) text(t *testing.T, version string) string {
	t.Helper()
	eu, us := z.Places[Home], z.Places["us"]
	z.port = zonesPort
	return fmt.Sprintf(zonesSetup, z.Setup, version, eu.Kubeconfig, us.Kubeconfig, eu.Address(t), us.Address(t),
		z.port, z.port+1, z.port+2, z.port+3, z.oidc(t, us.Address(t)))
}

// StartIssuer starts an issuer that pods of a node reach, at the address of this machine in the network of the node.
func StartIssuer(t *testing.T, node string) *oidc.Issuer {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "udp", net.JoinHostPort(node, "443")) // it sends nothing
	require.NoError(t, err)
	defer conn.Close()
	host, _, err := net.SplitHostPort(conn.LocalAddr().String())
	require.NoError(t, err)
	return oidc.Start(t, host)
}

// oidc starts an issuer and returns the settings for it.
func (z *Zones) oidc(t *testing.T, node string) string {
	t.Helper()
	z.issuer = StartIssuer(t, node)
	settings, err := json.Marshal(map[string]any{
		"issuerURL": z.issuer.URL, "clientID": oidc.ClientID, "groupsClaim": "groups", "groupsPrefix": "oidc:", "ca": string(z.issuer.CA),
	})
	require.NoError(t, err)
	return string(settings)
}

// Tokens requires that the tokens of the issuer are valid at the front-proxy of the second cluster only. Its users
// reach a shard of the first cluster with their own name and groups.
func (z *Zones) Tokens(t *testing.T, s *Setup) {
	a := &Authenticated{Setup: s, Issuer: z.issuer, Ca: x509.NewCertPool()}
	a.Apply(t, TeamManifest, "admin")
	a.Kubectl(t, "wait", "workspace", "team", "--for=jsonpath={.status.phase}=Ready", "--timeout=3m").OK(t)
	a.Apply(t, AccessManifest, Admin...)
	edge, main := a.Connect(t, AsEdge(Team)...), a.Connect(t, AsMain(Team)...)
	require.NotEqual(t, edge, main)

	alice := Request{Token: z.issuer.Token(t, "alice", map[string]any{"groups": []string{"team"}})}
	var got Identity
	Eventually(t.Context(), t, func() error { // a front-proxy discovers the issuer after it has started
		if got = a.WhoAmI(t, edge, Team, alice); got.Code != http.StatusCreated {
			return fmt.Errorf("HTTP %d: %s", got.Code, got.Body)
		}
		return nil
	})
	require.Equal(t, z.issuer.URL+"#alice", got.Name)
	require.ElementsMatch(t, []string{"oidc:team", "system:authenticated"}, got.Groups)
	require.Equal(t, http.StatusUnauthorized, a.WhoAmI(t, main, Team, alice).Code, "the other front-proxy does not know the issuer")

	forged := Request{Headers: map[string]string{"X-Remote-User": "root", "X-Remote-Group": "system:masters"}}
	require.Equal(t, http.StatusUnauthorized, a.WhoAmI(t, edge, Team, forged).Code)
	require.Equal(t, http.StatusUnauthorized, a.WhoAmI(t, main, Team, forged).Code)
}

// Address returns the address of a node of the cluster.
func (c *Cluster) Address(t *testing.T) string {
	t.Helper()
	r := c.Kubectl("get", "nodes", "--output", `jsonpath={.items[0].status.addresses[?(@.type=="InternalIP")].address}`)
	return r.Run(t.Context(), t).OK(t).Stdout
}

// AddShard adds a shard to the second cluster, and uses it through both front-proxies.
func (z *Zones) AddShard(t *testing.T, s *Setup) {
	before := s.IDs(t)
	url := fmt.Sprintf("https://%s:%d", z.Places["us"].Address(t), z.port+2)
	s.Kcpctl(t, "add-shard", "gamma", "--cluster", "us", "--url", url, "--expose", "NodePort").OK(t).Quiet(t)
	s.Unchanged(t, before)
	raw, err := os.ReadFile(s.File)
	require.NoError(t, err)
	s.Text = string(raw)
	create := s.Command("kubeconfig", append(AsEdge("root"), "--", "kubectl", "create", "--filename", "-")...)
	create.Stdin = fmt.Sprintf(WorkspaceManifest, "gamma")
	create.Run(t.Context(), t).OK(t)
	s.Kubectl(t, "wait", "workspace", "on-gamma", "--for=jsonpath={.status.phase}=Ready", "--timeout=3m").OK(t)
	for _, as := range [][]string{AsEdge("root:on-gamma"), AsMain("root:on-gamma")} {
		Eventually(t.Context(), t, func() error {
			return s.Reads(t, "Active", as, "get", "namespace", "default", "--output", "jsonpath={.status.phase}")
		})
	}
}

// AsEdge returns the arguments of kcpctl kubeconfig for a workspace, through the front-proxy of the second cluster.
func AsEdge(workspace string) []string {
	return []string{"--user", "e2e", "--group", "system:kcp:admin", "--target", "front-proxy/edge", "--workspace", workspace}
}

// AsMain returns the arguments of kcpctl kubeconfig for a workspace, through the front-proxy of the first cluster.
func AsMain(workspace string) []string {
	return []string{"--user", "e2e", "--group", "system:kcp:admin", "--target", "front-proxy/main", "--workspace", workspace}
}

// ReadThroughEdge reads what CreateWorkspaces has created, through the front-proxy of the second cluster.
func ReadThroughEdge(t *testing.T, s *Setup) {
	for _, shard := range ShardNames() {
		Eventually(t.Context(), t, func() error {
			return s.Reads(t, shard, AsEdge("root:on-"+shard), "get", "configmap", "data", "--output", "jsonpath={.data.shard}")
		})
	}
}
