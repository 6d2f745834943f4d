//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// twoShards is the spec of the setup under test.
const twoShards = `spec:
  shards: [{name: alpha}]
  kubeconfigs: [{name: admin, user: kcp-admin, groups: ["system:kcp:admin"]}]
`

// testCertificates replaces all parts of a setup's PKI while kcp runs.
func testCertificates(t *testing.T, s *setup, authorities ...string) {
	s.text += twoShards
	s.write(t, s.text)
	s.up(t)
	c := &certificates{setup: s}
	step(t, "a workspace with content", c.createContent)
	step(t, "list and check", c.listAndCheck)
	step(t, "an edit that is not applied", c.refuseWithEdit)
	step(t, "renew", c.renew)
	step(t, "rotate authorities", func(t *testing.T) { c.rotate(t, authorities...) })
	step(t, "rotate the service-account key", c.rotateKey)
	step(t, "export and import", c.exportAndImport)
	step(t, "down --purge leaves nothing", func(t *testing.T) { leavesNothing(t, s) })
}

// certificates is a setup and a token that it has issued.
type certificates struct {
	*setup
	token string
}

// certs runs a command of kcpctl certs.
func (s *setup) certs(t *testing.T, name string, args ...string) result {
	t.Helper()
	return s.certsCommand(name, args...).run(t.Context(), t)
}

// certsCommand returns a command of kcpctl certs.
func (s *setup) certsCommand(name string, args ...string) command {
	return s.subcommand("certs", name, args...)
}

// sub runs a command of a group of commands.
func (s *setup) sub(t *testing.T, group, name string, args ...string) result {
	t.Helper()
	return s.subcommand(group, name, args...).run(t.Context(), t)
}

// subcommand returns a command of a group of commands.
func (s *setup) subcommand(group, name string, args ...string) command {
	cmd := s.command(group) // GROUP --file FILE FLAG...
	cmd.args = append(append([]string{group, name}, cmd.args[1:]...), args...)
	return cmd
}

// handOut writes a copy of the declared kubeconfig, as a user has received it, and returns its path.
func (c *certificates) handOut(t *testing.T) string {
	t.Helper()
	r := c.kcpctl(t, "kubeconfig", "admin", "--", "sh", "-c", `cat "$KUBECONFIG"`).ok(t)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(file, []byte(r.stdout), 0o600))
	return file
}

// with runs kubectl with a kubeconfig from handOut, through the proxy of a current one.
func (c *certificates) with(t *testing.T, kubeconfig string, args ...string) result {
	t.Helper()
	const script = `
proxy=$(kubectl config view --output 'jsonpath={.clusters[0].cluster.proxy-url}')
sed "s#proxy-url: .*#proxy-url: $proxy#" "$0" >"$0.now"
exec kubectl --kubeconfig "$0.now" "$@"`
	return c.kcpctl(t, "kubeconfig", append([]string{"admin", "--", "sh", "-c", script, kubeconfig}, args...)...)
}

// content returns the kubectl arguments that read what createContent has written.
func (c *certificates) content(t *testing.T) []string {
	return []string{"--server", c.status(t).URL + "/clusters/root:on-alpha", "get", "configmap", "data", "--output", "jsonpath={.data.key}"}
}

func (c *certificates) createContent(t *testing.T) {
	create := c.command("kubeconfig", "admin", "--", "kubectl", "create", "--filename", "-")
	create.stdin = fmt.Sprintf(workspaceManifest, "alpha")
	create.run(t.Context(), t).ok(t)
	c.kubectl(t, "wait", "workspace", "on-alpha", "--for=jsonpath={.status.phase}=Ready", "--timeout=3m").ok(t)
	create = c.command("kubeconfig", "admin", "--", "kubectl", "--server", c.status(t).URL+"/clusters/root:on-alpha", "create", "--filename", "-")
	create.stdin = `
apiVersion: v1
kind: ConfigMap
metadata: {name: data, namespace: default}
data: {key: value}
---
` + robot
	create.run(t.Context(), t).ok(t)
	c.token = c.newToken(t)
	c.serves(t, c.handOut(t), c.token)
}

func (c *certificates) newToken(t *testing.T) string {
	t.Helper()
	r := c.kubectl(t, "--server", c.status(t).URL+"/clusters/root:on-alpha", "create", "token", "robot", "--duration=1h").ok(t)
	return strings.TrimSpace(r.stdout)
}

// withToken reads the content as a service account. The token is in a file, because arguments are printed.
func (c *certificates) withToken(t *testing.T, token string) result {
	t.Helper()
	const script = `
proxy=$(kubectl config view --output 'jsonpath={.clusters[0].cluster.proxy-url}')
kubectl config view --raw --output 'jsonpath={.clusters[0].cluster.certificate-authority-data}' | base64 -d >"$0.ca"
printf 'apiVersion: v1\nkind: Config\ncurrent-context: x\ncontexts: [{name: x, context: {cluster: x, user: x}}]\nusers: [{name: x, user: {tokenFile: %s}}]\nclusters: [{name: x, cluster: {proxy-url: "%s", certificate-authority: %s.ca}}]\n' "$0" "$proxy" "$0" >"$0.now"
exec kubectl --kubeconfig "$0.now" "$@"`
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte(token), 0o600))
	return c.kcpctl(t, "kubeconfig", append([]string{"admin", "--", "sh", "-c", script, file}, c.content(t)...)...)
}

// serves requires that an existing kubeconfig, a new one, and a token work, and that up has nothing to do.
func (c *certificates) serves(t *testing.T, handedOut, token string) {
	t.Helper()
	require.Equal(t, "value", c.with(t, handedOut, c.content(t)...).ok(t).stdout)
	require.Equal(t, "value", c.kubectl(t, c.content(t)...).ok(t).stdout)
	require.Equal(t, "value", c.withToken(t, token).ok(t).stdout)
	running := c.ids(t)
	c.up(t).changed(t, 0)
	require.Equal(t, running, c.ids(t))
}

// list returns the serial numbers and the rotations in the JSON output of certs list.
func (c *certificates) list(t *testing.T) (serials map[string]string, rotations map[string]string) {
	t.Helper()
	var out struct {
		Kind  string
		Items []struct {
			Name, Role, Serial string
			Issued             bool
		}
		Rotations map[string]string
	}
	require.NoError(t, json.Unmarshal([]byte(c.certs(t, "list", "--output", "json").ok(t).stdout), &out))
	require.Equal(t, "CertificateList", out.Kind)
	serials = map[string]string{}
	for _, i := range out.Items {
		require.True(t, i.Issued, i)
		serials[strings.TrimSpace(i.Name+" "+i.Role)] = i.Serial
	}
	return serials, out.Rotations
}

func (c *certificates) listAndCheck(t *testing.T) {
	serials, rotations := c.list(t)
	require.Empty(t, rotations)
	require.Contains(t, serials, c.name+"-shard-alpha-server")
	table := c.certs(t, "list").ok(t).stdout
	require.Regexp(t, `^NAME +USED BY +EXPIRES +RENEWAL\n`, table)
	c.certs(t, "check", "--expiring-within", "30d").ok(t)
	r := c.certs(t, "check", "--expiring-within", "400d")
	r.refused(t, 1, "kcpctl certs renew")
	require.Contains(t, r.stdout, c.name+"-shard-alpha-server")
}

// refuseWithEdit requires that no certificate command applies an edit of the file along with its own change.
func (c *certificates) refuseWithEdit(t *testing.T) {
	written := c.written(t)
	c.write(t, strings.Replace(c.text, "{name: alpha}", "{name: alpha, logLevel: 4}", 1))
	for _, args := range [][]string{{"renew", "shard/alpha"}, {"renew"}, {"rotate-ca", "client"}, {"rotate-service-account-key"}} {
		c.certs(t, args[0], args[1:]...).refused(t, 1, "1 change", "kcpctl up")
	}
	require.Equal(t, written, c.written(t))
	c.certs(t, "renew", "front-proxy/main", "--skip-canary").ok(t)
	c.write(t, c.text)
}

// renew renews the certificates of one component, then all certificates.
func (c *certificates) renew(t *testing.T) {
	handedOut := c.handOut(t)
	before, running := c.fingerprints(t), c.ids(t)
	c.certs(t, "renew", "shard/alpha", "--skip-canary").ok(t).quiet(t)
	for workload, id := range c.ids(t) {
		require.Equal(t, workload != c.name+"-shard-alpha", running[workload] == id, "%s: only users of the certificate roll", workload)
	}
	c.serves(t, handedOut, c.token)

	old, _ := c.list(t)
	c.certs(t, "renew", "--skip-canary").ok(t).quiet(t)
	serials, _ := c.list(t)
	for name, serial := range serials {
		authority := strings.HasSuffix(name, "-ca") || name == "sa"
		require.Equal(t, authority, old[name] == serial, name)
	}
	require.Equal(t, before, c.fingerprints(t), "authorities")
	c.serves(t, handedOut, c.token)
	c.certs(t, "renew", "server-ca").refused(t, 2, "server-ca", "kcpctl certs rotate-ca server")
}

// rotate rotates authorities through all phases, and runs up in each.
func (c *certificates) rotate(t *testing.T, authorities ...string) {
	rotateCA := func(flags ...string) result { return c.certs(t, "rotate-ca", append(flags, authorities...)...) }
	handedOut := c.handOut(t)
	previous, _ := c.list(t)
	rotateCA("--pause", "--skip-canary").ok(t).quiet(t)
	c.inPhase(t, "distribute", authorities...)
	c.serves(t, handedOut, c.token)

	r := rotateCA("--skip-canary").ok(t).quiet(t)
	require.Contains(t, r.stderr, "kcpctl certs rotate-ca")
	require.Contains(t, r.stderr, "--finish")
	c.inPhase(t, "switch", authorities...)
	c.serves(t, handedOut, c.token)

	rotateCA("--finish").refused(t, 2, authorities[0]+" CA", "--yes")
	c.inPhase(t, "switch", authorities...)
	rotateCA("--finish", "--yes", "--skip-canary").ok(t).quiet(t)
	serials, rotations := c.list(t)
	require.Empty(t, rotations)
	for _, ca := range authorities {
		require.NotEqual(t, previous[ca+"-ca"], serials[ca+"-ca"])
	}
	if authorities[0] == "server" {
		require.NotZero(t, c.with(t, handedOut, c.content(t)...).code, "the previous authority is no longer trusted")
		handedOut = c.handOut(t)
	}
	c.serves(t, handedOut, c.token)
}

func (c *certificates) inPhase(t *testing.T, phase string, authorities ...string) {
	t.Helper()
	_, rotations := c.list(t)
	want := map[string]string{}
	for _, ca := range authorities {
		want[ca+"-ca"] = phase
	}
	require.Equal(t, want, rotations)
}

func (c *certificates) rotateKey(t *testing.T) {
	handedOut := c.handOut(t)
	r := c.certs(t, "rotate-service-account-key", "--skip-canary").ok(t).quiet(t)
	require.Contains(t, r.stderr, "--finish")
	c.serves(t, handedOut, c.token)
	fresh := c.newToken(t)
	c.serves(t, handedOut, fresh)

	c.certs(t, "rotate-service-account-key", "--finish", "--yes", "--skip-canary").ok(t).quiet(t)
	require.NotZero(t, c.withToken(t, c.token).code, "the previous key is no longer trusted")
	c.token = fresh
	c.serves(t, handedOut, c.token)
}

func (c *certificates) exportAndImport(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "backup")
	c.certs(t, "export", dir).ok(t)
	info, err := os.Stat(filepath.Join(dir, "ca", "server.key"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	r := c.certs(t, "import", dir).ok(t)
	require.Contains(t, r.stderr, "server CA")
	changesNothing(t, c.setup)
}
