package long

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

	"github.com/kcpctl/kcpctl/test/e2e/framework"
)

// backups is a setup with a directory for its backups.
type backups struct {
	*framework.Setup
	dir, key, recipient string
	// port is the first port of a setup on this machine, at which its front-proxy is. It stays the same when the setup was
	// lost.
	port string
}

func newBackups(t *testing.T, s *framework.Setup) *backups {
	t.Helper()
	key, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	b := &backups{Setup: s, dir: filepath.Join(t.TempDir(), "backups"), key: filepath.Join(t.TempDir(), "key.txt"),
		recipient: key.Recipient().String()}
	require.NoError(t, os.WriteFile(b.key, []byte(key.String()+"\n"), 0o600))
	return b
}

// create takes a backup, and returns its path.
func (b *backups) create(t *testing.T) string {
	t.Helper()
	b.Sub(t, "backup", "create", "--to", b.dir, "--recipient", b.recipient).OK(t).Quiet(t)
	var list struct {
		Items []struct{ Name string }
	}
	r := framework.Command{Name: framework.Given(t, "E2E_KCPCTL"),
		Args: []string{"backup", "list", "--from", b.dir, "--output", "json"}}.Run(t.Context(), t).OK(t)
	require.NoError(t, json.Unmarshal([]byte(r.Stdout), &list))
	require.NotEmpty(t, list.Items)
	return filepath.Join(b.dir, list.Items[len(list.Items)-1].Name)
}

func (b *backups) verify(t *testing.T, backup string) framework.Result {
	t.Helper()
	return framework.Command{Name: framework.Given(t, "E2E_KCPCTL"), Args: []string{"backup", "verify", backup}}.Run(t.Context(), t)
}

// restore is the command that restores a backup.
func (b *backups) restore(backup string, args ...string) framework.Command {
	return b.Command("restore", append([]string{backup, "--yes", "--base-port", b.port}, args...)...)
}

// client returns a client with the kubeconfig admin, which is not issued again when the setup is lost.
func (b *backups) client(t *testing.T) (*http.Client, string) {
	t.Helper()
	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(b.Kcpctl(t, "kubeconfig", "admin").OK(t).Stdout))
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

// identities are the UIDs and logical clusters of the workspaces that CreateWorkspaces has created.
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
	s := framework.NewLocal(t, "sharded")
	b := newBackups(t, s)
	s.Up(t)
	framework.CreateWorkspaces(t, s)
	client, url := b.client(t)
	parsed, err := neturl.Parse(url)
	require.NoError(t, err)
	b.port = parsed.Port()
	before := workspacesOf(t, client, url)
	var backup string
	framework.Step(t, "a backup of what runs", func(t *testing.T) {
		backup = b.create(t)
		require.Contains(t, b.verify(t, backup).OK(t).Stdout, "All snapshots fit together.")
	})
	framework.Step(t, "everything is lost", func(t *testing.T) {
		framework.LeavesNothing(t, s)
		b.restore(backup).Run(t.Context(), t).Refused(t, 2, "its keys are needed", "--identity")
		b.restore(backup, "--identity", b.key).Run(t.Context(), t).OK(t).Quiet(t)
		framework.IsReady(t, s)
		framework.ReadWorkspaces(t, s)
		require.Equal(t, before.identities(), workspacesOf(t, client, url).identities(), "with a client from before")
		framework.ChangesNothing(t, s)
	})
	framework.Step(t, "a watch from before lists again",
		func(t *testing.T) { requireExpired(t, client, url, before.Metadata.ResourceVersion) })
	framework.Step(t, "a shard is lost", func(t *testing.T) {
		lost := filepath.Join(s.Runtime.(*framework.Local).Dir, "components", s.Name+"-shard-alpha", "data", "etcd")
		s.Kcpctl(t, "down", "--yes").OK(t)
		require.NoError(t, os.RemoveAll(lost))
		s.Kcpctl(t, "up").Refused(t, 1, "it would start without its data", "kcpctl restore")
		b.restore(backup, "--shard", "alpha").Run(t.Context(), t).OK(t).Quiet(t)
		framework.ReadWorkspaces(t, s)
		require.Equal(t, before.identities(), workspacesOf(t, client, url).identities())
	})
	framework.Step(t, "a restore that is killed", func(t *testing.T) {
		r := b.restore(backup, "--output", "json").During(t, 1, regexp.MustCompile(`"name":"data","status":"running"`),
			func(cmd *exec.Cmd) { require.NoError(t, cmd.Process.Kill()) })
		require.Equal(t, -1, r.Code, r.Stderr)
		if r := s.Kcpctl(t, "up"); r.Code != 0 { // it can have finished the data
			r.Refused(t, 1, "has not finished", "kcpctl restore")
			b.restore(backup).Run(t.Context(), t).OK(t)
		}
		framework.ReadWorkspaces(t, s)
		require.Equal(t, before.identities(), workspacesOf(t, client, url).identities())
	})
	framework.Step(t, "a shard is older than the others", func(t *testing.T) {
		s.Kubectl(t, "delete", "workspace", "on-alpha", "--timeout=2m").OK(t)
		create := s.Command("kubeconfig", "admin", "--", "kubectl", "create", "--filename", "-")
		create.Stdin = fmt.Sprintf(framework.WorkspaceManifest, "alpha")
		create.Run(t.Context(), t).OK(t)
		s.Kubectl(t, "wait", "workspace", "on-alpha", "--for=jsonpath={.status.phase}=Ready", "--timeout=2m").OK(t)
		b.restore(backup, "--shard", "alpha").Run(t.Context(), t).OK(t)
		framework.Eventually(t.Context(), t, func() error {
			found := s.Kcpctl(t, "check")
			for _, said := range []string{"logical clusters without a Workspace: root:on-alpha",
				"Workspaces without a logical cluster: root:on-alpha"} {
				if found.Code != 1 || !strings.Contains(found.Stdout, said) {
					return fmt.Errorf("exit code %d, without %q: %s%s", found.Code, said, found.Stdout, found.Stderr)
				}
			}
			return nil
		})
		require.Equal(t, 1, s.Sub(t, "restore", "repair").Code)
		require.Equal(t, 1, s.Sub(t, "restore", "repair", "--adopt", "--delete-missing", "--dry-run").Code)
		require.Equal(t, 1, s.Sub(t, "restore", "repair").Code, "a dry run changes nothing")
		s.Sub(t, "restore", "repair", "--adopt", "--delete-missing", "--yes").OK(t)
		framework.ReadWorkspaces(t, s)
		s.Kcpctl(t, "check", "--wait", "1m").OK(t)
		s.Sub(t, "restore", "repair").OK(t)
	})
	framework.Step(t, "a damaged backup", func(t *testing.T) {
		file := filepath.Join(backup, "etcd", "shard-alpha.db.gz")
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		raw[len(raw)/2] ^= 1
		require.NoError(t, os.WriteFile(file, raw, 0o600))
		require.Equal(t, 2, b.verify(t, backup).Code)
		ids := s.IDs(t)
		b.restore(backup).Run(t.Context(), t).Refused(t, 1, "damaged")
		require.Equal(t, ids, s.IDs(t), "nothing was stopped")
	})
	framework.Step(t, "down --purge leaves nothing", func(t *testing.T) { framework.LeavesNothing(t, s) })
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
func (b *backups) restoreCluster(backup string, args ...string) framework.Command {
	return b.Command("restore", append([]string{backup, "--yes", "--image", clusterImage}, args...)...)
}

// TestClusterBackup takes a backup of managed etcds, loses the installation and then a shard, restores both, and looks at
// a copy on this machine.
func TestClusterBackup(t *testing.T) {
	testbed := os.Getenv("E2E_TESTBED")
	if testbed == "" {
		t.Skip("E2E_TESTBED is not set: only nodes of the testbed have an image of kcpctl")
	}
	framework.Command{Name: testbed, Args: []string{"workload-images", "--node", "a", framework.Given(t, "E2E_KCPCTL")}}.Run(t.Context(), t).OK(t)
	s := framework.NewCluster(t, "sharded")
	c := s.Runtime.(*framework.Cluster)
	b := newBackups(t, s)
	s.Up(t)
	framework.CreateWorkspaces(t, s)
	old := adminCredentials(t, c)
	before := rootWorkspaces(t, s, old)
	var backup string
	framework.Step(t, "a backup of what runs", func(t *testing.T) {
		backup = b.create(t)
		require.Contains(t, b.verify(t, backup).OK(t).Stdout, "All snapshots fit together.")
	})
	framework.Step(t, "a copy on this machine", func(t *testing.T) {
		home := t.TempDir()
		l := &framework.Local{Binaries: framework.Given(t, "E2E_KCP_BIN_DIR"), Dir: filepath.Join(home, "kcpctl", s.Name)}
		copied := framework.NewSetup(t, "sharded", s.Name, home, l, "KUBECONFIG="+filepath.Join(home, "no-cluster"))
		copied.Write(t, s.Text)
		copied.Command("restore", backup, "--yes", "--identity", b.key).Run(t.Context(), t).OK(t).Quiet(t)
		framework.ReadWorkspaces(t, copied)
		framework.LeavesNothing(t, copied)
	})
	framework.Step(t, "everything is lost", func(t *testing.T) {
		framework.LeavesNothing(t, s)
		b.restoreCluster(backup).Run(t.Context(), t).Refused(t, 2, "its keys are needed", "--identity")
		b.restoreCluster(backup, "--identity", b.key).Run(t.Context(), t).OK(t).Quiet(t)
		framework.IsReady(t, s)
		framework.ReadWorkspaces(t, s)
		require.Equal(t, before, rootWorkspaces(t, s, old), "with a kubeconfig from before")
		framework.ChangesNothing(t, s)
		requireNoRestorers(t, c)
	})
	framework.Step(t, "a shard is lost", func(t *testing.T) {
		s.Kcpctl(t, "down", "--yes").OK(t)
		claim := "data-" + s.Name + "-etcd-alpha-0"
		c.Kubectl("delete", "persistentvolumeclaim", claim, "--namespace", c.Namespace).Run(t.Context(), t).OK(t)
		s.Kcpctl(t, "up").Refused(t, 1, "it would start without its data", "kcpctl restore")
		b.restoreCluster(backup, "--shard", "alpha").Run(t.Context(), t).OK(t).Quiet(t)
		framework.ReadWorkspaces(t, s)
		require.Equal(t, before, rootWorkspaces(t, s, old))
		framework.ChangesNothing(t, s)
		requireNoRestorers(t, c)
	})
	framework.Step(t, "the original is as it was", func(t *testing.T) {
		framework.ReadWorkspaces(t, s)
		framework.ChangesNothing(t, s)
	})
	framework.Step(t, "down --purge leaves nothing", func(t *testing.T) { framework.LeavesNothing(t, s) })
}

// adminCredentials writes the certificate and the key of the kubeconfig admin to files, and returns them as arguments of
// kubectl.
func adminCredentials(t *testing.T, c *framework.Cluster) []string {
	t.Helper()
	var secrets corev1.SecretList
	r := c.Kubectl("get", "secrets", "--output", "json", "--namespace", c.Namespace,
		"--selector", "kcpctl.dev/component=kubeconfig,kcpctl.dev/name=admin").Run(t.Context(), t).OK(t)
	require.NoError(t, json.Unmarshal([]byte(r.Stdout), &secrets))
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
func rootWorkspaces(t *testing.T, s *framework.Setup, credentials []string) map[string]string {
	t.Helper()
	var out listed
	r := s.Kubectl(t, append([]string{"get", "workspaces", "--output", "json"}, credentials...)...).OK(t)
	require.NoError(t, json.Unmarshal([]byte(r.Stdout), &out))
	require.NotEmpty(t, out.identities())
	return out.identities()
}

// requireNoRestorers requires that no pod of a restore is left.
func requireNoRestorers(t *testing.T, c *framework.Cluster) {
	t.Helper()
	require.Empty(t, c.List(t.Context(), t, "pods", "--namespace", c.Namespace, "--selector", "kcpctl.dev/purpose=restore"))
}
