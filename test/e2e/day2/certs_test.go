package day2

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/test/e2e/framework"
)

// twoShards is the spec of the setup under test.
const twoShards = `spec:
  shards: [{name: alpha}]
  kubeconfigs: [{name: admin, user: kcp-admin, groups: ["system:kcp:admin"]}]
`

// testCertificates replaces all parts of a setup's PKI while kcp runs.
func testCertificates(t *testing.T, s *framework.Setup, authorities ...string) {
	s.Text += twoShards
	s.Write(t, s.Text)
	s.Up(t)
	c := &certificates{Setup: s}
	framework.Step(t, "a workspace with content", c.createContent)
	framework.Step(t, "list and check", c.listAndCheck)
	framework.Step(t, "an edit that is not applied", c.refuseWithEdit)
	framework.Step(t, "renew", c.renew)
	framework.Step(t, "rotate authorities", func(t *testing.T) { c.rotate(t, authorities...) })
	framework.Step(t, "rotate the service-account key", c.rotateKey)
	framework.Step(t, "export and import", c.exportAndImport)
	framework.Step(t, "down --purge leaves nothing", func(t *testing.T) { framework.LeavesNothing(t, s) })
}

// certificates is a setup and a token that it has issued.
type certificates struct {
	*framework.Setup
	token string
}

// handOut writes a copy of the declared kubeconfig, as a user has received it, and returns its path.
func (c *certificates) handOut(t *testing.T) string {
	t.Helper()
	r := c.Kcpctl(t, "kubeconfig", "admin", "--", "sh", "-c", `cat "$KUBECONFIG"`).OK(t)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(file, []byte(r.Stdout), 0o600))
	return file
}

// with runs kubectl with a kubeconfig from handOut, through the proxy of a current one.
func (c *certificates) with(t *testing.T, kubeconfig string, args ...string) framework.Result {
	t.Helper()
	const script = `
proxy=$(kubectl config view --output 'jsonpath={.clusters[0].cluster.proxy-url}')
sed "s#proxy-url: .*#proxy-url: $proxy#" "$0" >"$0.now"
exec kubectl --kubeconfig "$0.now" "$@"`
	return c.Kcpctl(t, "kubeconfig", append([]string{"admin", "--", "sh", "-c", script, kubeconfig}, args...)...)
}

// content returns the kubectl arguments that read what createContent has written.
func (c *certificates) content(t *testing.T) []string {
	return []string{"--server", c.Status(t).URL + "/clusters/root:on-alpha", "get", "configmap", "data", "--output", "jsonpath={.data.key}"}
}

func (c *certificates) createContent(t *testing.T) {
	create := c.Command("kubeconfig", "admin", "--", "kubectl", "create", "--filename", "-")
	create.Stdin = fmt.Sprintf(framework.WorkspaceManifest, "alpha")
	create.Run(t.Context(), t).OK(t)
	c.Kubectl(t, "wait", "workspace", "on-alpha", "--for=jsonpath={.status.phase}=Ready", "--timeout=3m").OK(t)
	create = c.Command("kubeconfig", "admin", "--", "kubectl", "--server", c.Status(t).URL+"/clusters/root:on-alpha", "create", "--filename", "-")
	create.Stdin = `
apiVersion: v1
kind: ConfigMap
metadata: {name: data, namespace: default}
data: {key: value}
---
` + robot
	create.Run(t.Context(), t).OK(t)
	c.token = c.newToken(t)
	c.Serves(t, c.handOut(t), c.token)
}

func (c *certificates) newToken(t *testing.T) string {
	t.Helper()
	r := c.Kubectl(t, "--server", c.Status(t).URL+"/clusters/root:on-alpha", "create", "token", "robot", "--duration=1h").OK(t)
	return strings.TrimSpace(r.Stdout)
}

// withToken reads the content as a service account. The token is in a file, because arguments are printed.
func (c *certificates) withToken(t *testing.T, token string) framework.Result {
	t.Helper()
	const script = `
proxy=$(kubectl config view --output 'jsonpath={.clusters[0].cluster.proxy-url}')
kubectl config view --raw --output 'jsonpath={.clusters[0].cluster.certificate-authority-data}' | base64 -d >"$0.ca"
printf 'apiVersion: v1\nkind: Config\ncurrent-context: x\ncontexts: [{name: x, context: {cluster: x, user: x}}]\nusers: [{name: x, user: {tokenFile: %s}}]\nclusters: [{name: x, cluster: {proxy-url: "%s", certificate-authority: %s.ca}}]\n' "$0" "$proxy" "$0" >"$0.now"
exec kubectl --kubeconfig "$0.now" "$@"`
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte(token), 0o600))
	return c.Kcpctl(t, "kubeconfig", append([]string{"admin", "--", "sh", "-c", script, file}, c.content(t)...)...)
}

// Serves requires that an existing kubeconfig, a new one, and a token work, and that up has nothing to do.
func (c *certificates) Serves(t *testing.T, handedOut, token string) {
	t.Helper()
	require.Equal(t, "value", c.with(t, handedOut, c.content(t)...).OK(t).Stdout)
	require.Equal(t, "value", c.Kubectl(t, c.content(t)...).OK(t).Stdout)
	require.Equal(t, "value", c.withToken(t, token).OK(t).Stdout)
	running := c.IDs(t)
	c.Up(t).Changed(t, 0)
	require.Equal(t, running, c.IDs(t))
}

// List returns the serial numbers and the rotations in the JSON output of certs list.
func (c *certificates) List(t *testing.T) (serials map[string]string, rotations map[string]string) {
	t.Helper()
	var out struct {
		Kind  string
		Items []struct {
			Name, Role, Serial string
			Issued             bool
		}
		Rotations map[string]string
	}
	require.NoError(t, json.Unmarshal([]byte(c.Certs(t, "list", "--output", "json").OK(t).Stdout), &out))
	require.Equal(t, "CertificateList", out.Kind)
	serials = map[string]string{}
	for _, i := range out.Items {
		require.True(t, i.Issued, i)
		serials[strings.TrimSpace(i.Name+" "+i.Role)] = i.Serial
	}
	return serials, out.Rotations
}

func (c *certificates) listAndCheck(t *testing.T) {
	serials, rotations := c.List(t)
	require.Empty(t, rotations)
	require.Contains(t, serials, c.Name+"-shard-alpha-server")
	table := c.Certs(t, "list").OK(t).Stdout
	require.Regexp(t, `^NAME +USED BY +EXPIRES +RENEWAL\n`, table)
	c.Certs(t, "check", "--expiring-within", "30d").OK(t)
	r := c.Certs(t, "check", "--expiring-within", "400d")
	r.Refused(t, 1, "kcpctl certs renew")
	require.Contains(t, r.Stdout, c.Name+"-shard-alpha-server")
}

// refuseWithEdit requires that no certificate command applies an edit of the file along with its own change.
func (c *certificates) refuseWithEdit(t *testing.T) {
	written := c.Written(t)
	c.Write(t, strings.Replace(c.Text, "{name: alpha}", "{name: alpha, logLevel: 4}", 1))
	for _, args := range [][]string{{"renew", "shard/alpha"}, {"renew"}, {"rotate-ca", "client"}, {"rotate-service-account-key"}} {
		c.Certs(t, args[0], args[1:]...).Refused(t, 1, "1 change", "kcpctl up")
	}
	require.Equal(t, written, c.Written(t))
	c.Certs(t, "renew", "front-proxy/main", "--skip-canary").OK(t)
	c.Write(t, c.Text)
}

// renew renews the certificates of one component, then all certificates.
func (c *certificates) renew(t *testing.T) {
	handedOut := c.handOut(t)
	before, running := c.Fingerprints(t), c.IDs(t)
	c.Certs(t, "renew", "shard/alpha", "--skip-canary").OK(t).Quiet(t)
	for workload, id := range c.IDs(t) {
		require.Equal(t, workload != c.Name+"-shard-alpha", running[workload] == id, "%s: only users of the certificate roll", workload)
	}
	c.Serves(t, handedOut, c.token)

	old, _ := c.List(t)
	c.Certs(t, "renew", "--skip-canary").OK(t).Quiet(t)
	serials, _ := c.List(t)
	for name, serial := range serials {
		authority := strings.HasSuffix(name, "-ca") || name == "sa"
		require.Equal(t, authority, old[name] == serial, name)
	}
	require.Equal(t, before, c.Fingerprints(t), "authorities")
	c.Serves(t, handedOut, c.token)
	c.Certs(t, "renew", "server-ca").Refused(t, 2, "server-ca", "kcpctl certs rotate-ca server")
}

// rotate rotates authorities through all phases, and runs up in each.
func (c *certificates) rotate(t *testing.T, authorities ...string) {
	rotateCA := func(flags ...string) framework.Result {
		return c.Certs(t, "rotate-ca", append(flags, authorities...)...)
	}
	handedOut := c.handOut(t)
	previous, _ := c.List(t)
	rotateCA("--pause", "--skip-canary").OK(t).Quiet(t)
	c.inPhase(t, "distribute", authorities...)
	c.Serves(t, handedOut, c.token)

	r := rotateCA("--skip-canary").OK(t).Quiet(t)
	require.Contains(t, r.Stderr, "kcpctl certs rotate-ca")
	require.Contains(t, r.Stderr, "--finish")
	c.inPhase(t, "switch", authorities...)
	c.Serves(t, handedOut, c.token)

	rotateCA("--finish").Refused(t, 2, authorities[0]+" CA", "--yes")
	c.inPhase(t, "switch", authorities...)
	rotateCA("--finish", "--yes", "--skip-canary").OK(t).Quiet(t)
	serials, rotations := c.List(t)
	require.Empty(t, rotations)
	for _, ca := range authorities {
		require.NotEqual(t, previous[ca+"-ca"], serials[ca+"-ca"])
	}
	if authorities[0] == "server" {
		require.NotZero(t, c.with(t, handedOut, c.content(t)...).Code, "the previous authority is no longer trusted")
		handedOut = c.handOut(t)
	}
	c.Serves(t, handedOut, c.token)
}

func (c *certificates) inPhase(t *testing.T, phase string, authorities ...string) {
	t.Helper()
	_, rotations := c.List(t)
	want := map[string]string{}
	for _, ca := range authorities {
		want[ca+"-ca"] = phase
	}
	require.Equal(t, want, rotations)
}

func (c *certificates) rotateKey(t *testing.T) {
	handedOut := c.handOut(t)
	r := c.Certs(t, "rotate-service-account-key", "--skip-canary").OK(t).Quiet(t)
	require.Contains(t, r.Stderr, "--finish")
	c.Serves(t, handedOut, c.token)
	fresh := c.newToken(t)
	c.Serves(t, handedOut, fresh)

	c.Certs(t, "rotate-service-account-key", "--finish", "--yes", "--skip-canary").OK(t).Quiet(t)
	require.NotZero(t, c.withToken(t, c.token).Code, "the previous key is no longer trusted")
	c.token = fresh
	c.Serves(t, handedOut, c.token)
}

func (c *certificates) exportAndImport(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "backup")
	c.Certs(t, "export", dir).OK(t)
	info, err := os.Stat(filepath.Join(dir, "ca", "server.key"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	r := c.Certs(t, "import", dir).OK(t)
	require.Contains(t, r.Stderr, "server CA")
	framework.ChangesNothing(t, c.Setup)
}
