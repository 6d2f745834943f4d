//go:build e2e && long

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	neturl "net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"filippo.io/age"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// backups is a setup with a directory for its backups.
type backups struct {
	*setup
	dir, key, recipient string
	// port is the first port of a setup on this machine, at which its front-proxy is. It stays the same when the setup was
	// lost.
	port string
}

func newBackups(t *testing.T, s *setup) *backups {
	t.Helper()
	key, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	b := &backups{setup: s, dir: filepath.Join(t.TempDir(), "backups"), key: filepath.Join(t.TempDir(), "key.txt"),
		recipient: key.Recipient().String()}
	require.NoError(t, os.WriteFile(b.key, []byte(key.String()+"\n"), 0o600))
	return b
}

// create takes a backup, and returns its path.
func (b *backups) create(t *testing.T) string {
	t.Helper()
	b.sub(t, "backup", "create", "--to", b.dir, "--recipient", b.recipient).ok(t).quiet(t)
	var list struct {
		Items []struct{ Name string }
	}
	r := command{name: given(t, "E2E_KCPCTL"),
		args: []string{"backup", "list", "--from", b.dir, "--output", "json"}}.run(t.Context(), t).ok(t)
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &list))
	require.NotEmpty(t, list.Items)
	return filepath.Join(b.dir, list.Items[len(list.Items)-1].Name)
}

func (b *backups) verify(t *testing.T, backup string) result {
	t.Helper()
	return command{name: given(t, "E2E_KCPCTL"), args: []string{"backup", "verify", backup}}.run(t.Context(), t)
}

// restore is the command that restores a backup.
func (b *backups) restore(backup string, args ...string) command {
	return b.command("restore", append([]string{backup, "--yes", "--base-port", b.port}, args...)...)
}

// client returns a client with the kubeconfig admin, which is not issued again when the setup is lost.
func (b *backups) client(t *testing.T) (*http.Client, string) {
	t.Helper()
	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(b.kcpctl(t, "kubeconfig", "admin").ok(t).stdout))
	require.NoError(t, err)
	client, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	return client, strings.TrimSuffix(config.Host, "/clusters/root")
}

// listed is the answer to a request for a list.
type listed struct {
	Metadata struct{ ResourceVersion string }
	Items    []struct {
		Metadata struct{ Name, UID string }
		Spec     struct{ Cluster string }
	}
}

// workspacesOf returns the Workspaces of root.
func workspacesOf(t *testing.T, client *http.Client, url string) listed {
	t.Helper()
	resp, err := client.Get(url + "/clusters/root/apis/tenancy.kcp.io/v1alpha1/workspaces")
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, http.StatusOK, resp.StatusCode)
	var out listed
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&out))
	return out
}

// identities are the UIDs and logical clusters of the workspaces that createWorkspaces has created.
func (l listed) identities() map[string]string {
	out := map[string]string{}
	for _, w := range l.Items {
		if strings.HasPrefix(w.Metadata.Name, "on-") {
			out[w.Metadata.Name] = w.Metadata.UID + " " + w.Spec.Cluster
		}
	}
	return out
}

// TestLocalBackup loses an installation, and then a shard, and restores both.
func TestLocalBackup(t *testing.T) {
	s := newLocal(t, "sharded")
	b := newBackups(t, s)
	s.up(t)
	createWorkspaces(t, s)
	client, url := b.client(t)
	parsed, err := neturl.Parse(url)
	require.NoError(t, err)
	b.port = parsed.Port()
	before := workspacesOf(t, client, url)
	var backup string
	step(t, "a backup of what runs", func(t *testing.T) {
		backup = b.create(t)
		require.Contains(t, b.verify(t, backup).ok(t).stdout, "All snapshots fit together.")
	})
	step(t, "everything is lost", func(t *testing.T) {
		leavesNothing(t, s)
		b.restore(backup).run(t.Context(), t).refused(t, 2, "its keys are needed", "--identity")
		b.restore(backup, "--identity", b.key).run(t.Context(), t).ok(t).quiet(t)
		isReady(t, s)
		readWorkspaces(t, s)
		require.Equal(t, before.identities(), workspacesOf(t, client, url).identities(), "with a client from before")
		changesNothing(t, s)
	})
	step(t, "a watch from before lists again",
		func(t *testing.T) { requireExpired(t, client, url, before.Metadata.ResourceVersion) })
	step(t, "a shard is lost", func(t *testing.T) {
		lost := filepath.Join(s.runtime.(*local).dir, "components", s.name+"-shard-alpha", "data", "etcd")
		s.kcpctl(t, "down", "--yes").ok(t)
		require.NoError(t, os.RemoveAll(lost))
		s.kcpctl(t, "up").refused(t, 1, "it would start without its data", "kcpctl restore")
		b.restore(backup, "--shard", "alpha").run(t.Context(), t).ok(t).quiet(t)
		readWorkspaces(t, s)
		require.Equal(t, before.identities(), workspacesOf(t, client, url).identities())
	})
	step(t, "a restore that is killed", func(t *testing.T) {
		r := b.restore(backup, "--output", "json").during(t, 1, regexp.MustCompile(`"name":"data","status":"running"`),
			func(cmd *exec.Cmd) { require.NoError(t, cmd.Process.Kill()) })
		require.Equal(t, -1, r.code, r.stderr)
		if r := s.kcpctl(t, "up"); r.code != 0 { // it can have finished the data
			r.refused(t, 1, "has not finished", "kcpctl restore")
			b.restore(backup).run(t.Context(), t).ok(t)
		}
		readWorkspaces(t, s)
		require.Equal(t, before.identities(), workspacesOf(t, client, url).identities())
	})
	step(t, "a shard is older than the others", func(t *testing.T) {
		s.kubectl(t, "delete", "workspace", "on-alpha", "--timeout=2m").ok(t)
		create := s.command("kubeconfig", "admin", "--", "kubectl", "create", "--filename", "-")
		create.stdin = fmt.Sprintf(workspaceManifest, "alpha")
		create.run(t.Context(), t).ok(t)
		s.kubectl(t, "wait", "workspace", "on-alpha", "--for=jsonpath={.status.phase}=Ready", "--timeout=2m").ok(t)
		b.restore(backup, "--shard", "alpha").run(t.Context(), t).ok(t)
		eventually(t.Context(), t, func() error {
			found := s.kcpctl(t, "check")
			for _, said := range []string{"logical clusters without a Workspace: root:on-alpha",
				"Workspaces without a logical cluster: root:on-alpha"} {
				if found.code != 1 || !strings.Contains(found.stdout, said) {
					return fmt.Errorf("exit code %d, without %q: %s%s", found.code, said, found.stdout, found.stderr)
				}
			}
			return nil
		})
		require.Equal(t, 1, s.sub(t, "restore", "repair").code)
		s.sub(t, "restore", "repair", "--adopt", "--delete-missing", "--yes").ok(t)
		readWorkspaces(t, s)
		s.kcpctl(t, "check", "--wait", "1m").ok(t)
		s.sub(t, "restore", "repair").ok(t)
	})
	step(t, "a damaged backup", func(t *testing.T) {
		file := filepath.Join(backup, "etcd", "shard-alpha.db.gz")
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		raw[len(raw)/2] ^= 1
		require.NoError(t, os.WriteFile(file, raw, 0o600))
		require.Equal(t, 2, b.verify(t, backup).code)
		ids := s.ids(t)
		b.restore(backup).run(t.Context(), t).refused(t, 1, "damaged")
		require.Equal(t, ids, s.ids(t), "nothing was stopped")
	})
	step(t, "down --purge leaves nothing", func(t *testing.T) { leavesNothing(t, s) })
}

// requireExpired requires that a watch from an old revision is refused: the client must list again.
func requireExpired(t *testing.T, client *http.Client, url, revision string) {
	t.Helper()
	resp, err := client.Get(
		fmt.Sprintf(
			"%s/clusters/root/apis/tenancy.kcp.io/v1alpha1/workspaces?watch=true&timeoutSeconds=5&resourceVersion=%s",
			url,
			revision,
		),
	)
	require.NoError(t, err)
	defer resp.Body.Close()
	var event struct {
		Type   string
		Code   int
		Object struct{ Code int }
	}
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&event))
	require.Equal(t, http.StatusGone, max(event.Code, event.Object.Code), "%+v", event)
}

// clusterImage is the image of kcpctl on the nodes of the testbed.
const clusterImage = "kcpctl.dev/testbed/kcpctl:tested"

// restoreCluster is the command that restores a backup on a cluster.
func (b *backups) restoreCluster(backup string, args ...string) command {
	return b.command("restore", append([]string{backup, "--yes", "--image", clusterImage}, args...)...)
}

// TestClusterBackup takes a backup of managed etcds, loses the installation and then a shard, restores both, and looks at
// a copy on this machine.
func TestClusterBackup(t *testing.T) {
	testbed := os.Getenv("E2E_TESTBED")
	if testbed == "" {
		t.Skip("E2E_TESTBED is not set: only nodes of the testbed have an image of kcpctl")
	}
	command{name: testbed, args: []string{"workload-images", "--node", "a", given(t, "E2E_KCPCTL")}}.run(t.Context(), t).ok(t)
	s := newCluster(t, "sharded")
	c := s.runtime.(*cluster)
	b := newBackups(t, s)
	s.up(t)
	createWorkspaces(t, s)
	old := c.adminCredentials(t)
	before := rootWorkspaces(t, s, old)
	var backup string
	step(t, "a backup of what runs", func(t *testing.T) {
		backup = b.create(t)
		require.Contains(t, b.verify(t, backup).ok(t).stdout, "All snapshots fit together.")
	})
	step(t, "a copy on this machine", func(t *testing.T) {
		home := t.TempDir()
		l := &local{binaries: given(t, "E2E_KCP_BIN_DIR"), dir: filepath.Join(home, "kcpctl", s.name)}
		copied := newSetup(t, "sharded", s.name, home, l, "KUBECONFIG="+filepath.Join(home, "no-cluster"))
		copied.write(t, s.text)
		copied.command("restore", backup, "--yes", "--identity", b.key).run(t.Context(), t).ok(t).quiet(t)
		readWorkspaces(t, copied)
		leavesNothing(t, copied)
	})
	step(t, "everything is lost", func(t *testing.T) {
		leavesNothing(t, s)
		b.restoreCluster(backup).run(t.Context(), t).refused(t, 2, "its keys are needed", "--identity")
		b.restoreCluster(backup, "--identity", b.key).run(t.Context(), t).ok(t).quiet(t)
		isReady(t, s)
		readWorkspaces(t, s)
		require.Equal(t, before, rootWorkspaces(t, s, old), "with a kubeconfig from before")
		changesNothing(t, s)
		requireNoRestorers(t, c)
	})
	step(t, "a shard is lost", func(t *testing.T) {
		s.kcpctl(t, "down", "--yes").ok(t)
		claim := "data-" + s.name + "-etcd-alpha-0"
		c.kubectl("delete", "persistentvolumeclaim", claim, "--namespace", c.namespace).run(t.Context(), t).ok(t)
		s.kcpctl(t, "up").refused(t, 1, "it would start without its data", "kcpctl restore")
		b.restoreCluster(backup, "--shard", "alpha").run(t.Context(), t).ok(t).quiet(t)
		readWorkspaces(t, s)
		require.Equal(t, before, rootWorkspaces(t, s, old))
		changesNothing(t, s)
		requireNoRestorers(t, c)
	})
	step(t, "the original is as it was", func(t *testing.T) {
		readWorkspaces(t, s)
		changesNothing(t, s)
	})
	step(t, "down --purge leaves nothing", func(t *testing.T) { leavesNothing(t, s) })
}

// adminCredentials writes the certificate and the key of the kubeconfig admin to files, and returns them as arguments of
// kubectl.
func (c *cluster) adminCredentials(t *testing.T) []string {
	t.Helper()
	var secrets corev1.SecretList
	r := c.kubectl("get", "secrets", "--output", "json", "--namespace", c.namespace,
		"--selector", "kcpctl.dev/component=kubeconfig,kcpctl.dev/name=admin").run(t.Context(), t).ok(t)
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &secrets))
	require.Len(t, secrets.Items, 1)
	var args []string
	for flag, key := range map[string]string{"--client-certificate": corev1.TLSCertKey, "--client-key": corev1.TLSPrivateKeyKey} {
		file := filepath.Join(t.TempDir(), key)
		require.NoError(t, os.WriteFile(file, secrets.Items[0].Data[key], 0o600))
		args = append(args, flag, file)
	}
	return args
}

// rootWorkspaces returns the identities of the Workspaces of root, as a client with some credentials sees them.
func rootWorkspaces(t *testing.T, s *setup, credentials []string) map[string]string {
	t.Helper()
	var out listed
	r := s.kubectl(t, append([]string{"get", "workspaces", "--output", "json"}, credentials...)...).ok(t)
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &out))
	require.NotEmpty(t, out.identities())
	return out.identities()
}

// requireNoRestorers requires that no pod of a restore is left.
func requireNoRestorers(t *testing.T, c *cluster) {
	t.Helper()
	require.Empty(t, c.list(t.Context(), t, "pods", "--namespace", c.namespace, "--selector", "kcpctl.dev/purpose=restore"))
}
