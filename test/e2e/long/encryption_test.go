package long

import (
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/client/etcd/database"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/backup/archive"
	"github.com/kcpctl/kcpctl/test/e2e/framework"
)

// confidential is a setup whose workspaces can move.
const confidential = `apiVersion: kcpctl.dev/v1alpha1
kind: Setup
metadata: {name: %s}
spec:
  featureGates: {LogicalClusterMigration: true}
  shards: [{name: alpha}]
`

// anywhere is a workspace that can move to any shard.
const anywhere = `apiVersion: tenancy.kcp.io/v1alpha1
kind: Workspace
metadata: {name: on-alpha}
`

// withMarker is the data of the Secrets.
const withMarker = "--from-literal=password=e2e-marker"

// secretsIn returns how the Secrets named confidential are stored on a shard, according to a backup: "plain", or the
// provider and the name of the key that have encrypted them.
func secretsIn(t *testing.T, backup string, shard topology.ID) []string {
	t.Helper()
	packed, err := os.Open(filepath.Join(backup, archive.DatabaseFile(shard)))
	require.NoError(t, err)
	defer packed.Close()
	z, err := gzip.NewReader(packed)
	require.NoError(t, err)
	raw := filepath.Join(t.TempDir(), "shard.db")
	f, err := os.Create(raw)
	require.NoError(t, err)
	_, err = io.Copy(f, z)
	require.NoError(t, err)
	require.NoError(t, f.Close())

	stored := map[string]string{}
	db, err := database.Open(raw)
	require.NoError(t, err)
	defer db.Close()
	encrypted := regexp.MustCompile(`^k8s:enc:((?:secretbox:v1|kms:v2):key-[0-9a-f]{16})[:.]`)
	isSecret := regexp.MustCompile(`/secrets/[^/]+/default/confidential$`)
	_, err = db.Read(isSecret.Match, func(key, value []byte, deleted bool) error {
		switch name := encrypted.FindSubmatch(value); {
		case deleted:
			delete(stored, string(key))
		case name != nil && !strings.Contains(string(value), "e2e-marker"):
			stored[string(key)] = string(name[1])
		case strings.Contains(string(value), "e2e-marker"):
			stored[string(key)] = "plain" // whatever its beginning says
		default:
			return fmt.Errorf("%s is neither encrypted nor plain", key)
		}
		return nil
	})
	require.NoError(t, err)
	var out []string
	for _, how := range stored {
		out = append(out, how)
	}
	return out
}

// stored returns how the Secret confidential of one workspace is stored on a shard: see secretsIn.
func (b *backups) stored(t *testing.T, shard topology.ID) string {
	t.Helper()
	all := secretsIn(t, b.create(t), shard)
	require.Len(t, all, 1)
	return all[0]
}

// readable requires that the Secret confidential can be read through kcp, with the kubeconfig that the given arguments
// of kcpctl kubeconfig print.
func (b *backups) readable(t *testing.T, kubeconfig ...string) {
	t.Helper()
	r := b.KubectlAs(t, kubeconfig, "get", "secret", "confidential", "--namespace", "default", "--output", "jsonpath={.data.password}").OK(t)
	require.Equal(t, "ZTJlLW1hcmtlcg==", r.Stdout)
}

// encryptsWithAKMS requires that a new setup encrypts the Secret confidential with its KMS from the beginning.
func (b *backups) encryptsWithAKMS(t *testing.T) {
	require.NotContains(t, b.Up(t).Stderr, "encryption rotate")
	b.Creates(t, nil, "secret", "generic", "confidential", "--namespace", "default", withMarker)
	require.Contains(t, b.stored(t, "root-shard"), "kms:v2:")
	b.readable(t, "admin")
}

// Objects in etcd are encrypted, with another key after a rotation, and can be read after a move to another shard.
func TestLocalEncryption(t *testing.T) {
	s := framework.NewLocal(t, "minimal")
	s.Text = fmt.Sprintf(confidential, s.Name)
	s.Write(t, s.Text)
	s.Up(t)
	b := newBackups(t, s)
	on := []string{"--user", "e2e", "--group", "system:kcp:admin", "--workspace", "root:on-alpha"}
	readable := func(t *testing.T) {
		t.Helper()
		b.readable(t, "admin")
		b.readable(t, on...)
	}
	s.Kcpctl(t, "cordon", "root").OK(t)
	create := s.Command("kubeconfig", "admin", "--", "kubectl", "create", "--filename", "-")
	create.Stdin = anywhere
	create.Run(t.Context(), t).OK(t)
	s.Kubectl(t, "wait", "workspace", "on-alpha", "--for=jsonpath={.status.phase}=Ready", "--timeout=3m").OK(t)
	s.Kcpctl(t, "uncordon", "root").OK(t)
	s.Creates(t, nil, "secret", "generic", "confidential", "--namespace", "default", withMarker)
	s.Creates(t, on, "secret", "generic", "confidential", "--namespace", "default", withMarker)
	require.Equal(t, "plain", b.stored(t, "root-shard"))

	first := ""
	framework.Step(t, "a setup that runs begins to encrypt", func(t *testing.T) {
		s.Edit(t, "spec:\n", "spec:\n  encryption: {}\n")
		require.Contains(t, s.Up(t).Stderr, "The encryption of secrets is prepared: continue with ")
		require.Equal(t, "plain", b.stored(t, "root-shard"))
		s.Sub(t, "encryption", "rotate").OK(t).Quiet(t)
		first = b.stored(t, "root-shard")
		require.NotEqual(t, "plain", first)
		require.Equal(t, first, b.stored(t, "shard/alpha"), "all shards have the same key")
		readable(t)
	})
	framework.Step(t, "after a rotation, nothing needs the previous key", func(t *testing.T) {
		s.Sub(t, "encryption", "rotate").OK(t).Quiet(t)
		second := b.stored(t, "root-shard")
		require.NotContains(t, []string{first, "plain"}, second)
		require.Equal(t, second, b.stored(t, "shard/alpha"))
		readable(t)
	})
	framework.Step(t, "a workspace moves to another shard", func(t *testing.T) {
		s.Kcpctl(t, "move", "root:on-alpha", "--to", "root", "--yes").OK(t)
		readable(t)
	})
	framework.Step(t, "a setup ends to encrypt", func(t *testing.T) {
		s.Write(t, s.Text)
		require.Contains(t, s.Up(t).Stderr, "Existing secrets are still encrypted: continue with ")
		readable(t)
		s.Sub(t, "encryption", "rotate").OK(t).Quiet(t)
		require.Equal(t, []string{"plain", "plain"}, secretsIn(t, b.create(t), "root-shard"))
		readable(t)
	})
}

// A key that a user gives encrypts, and then a KMS.
func TestLocalEncryptionWithAGivenKeyAndAKMS(t *testing.T) {
	s := framework.NewLocal(t, "minimal")
	s.Text = fmt.Sprintf(confidential, s.Name) + "  encryption: {}\n"
	s.Write(t, s.Text)
	b := newBackups(t, s)
	key := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("given/by", 4)))
	given := filepath.Join(t.TempDir(), "encryption")
	require.NoError(t, os.MkdirAll(given, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(given, "encryption.key"), fmt.Appendf(nil, `{"key": %q}`, key), 0o600))
	s.Sub(t, "certs", "import", filepath.Dir(given)).OK(t)
	plugin, _ := serveKMS(t)
	framework.Step(t, "a given key encrypts", func(t *testing.T) {
		require.Contains(t, s.Up(t).Stderr, "The encryption of secrets is prepared: continue with ")
		s.Creates(t, nil, "secret", "generic", "confidential", "--namespace", "default", withMarker)
		s.Sub(t, "encryption", "rotate").OK(t).Quiet(t)
		require.Equal(t, "secretbox:v1:"+pki.EncryptionKeyName(key), b.stored(t, "root-shard"))
		b.readable(t, "admin")
	})
	framework.Step(t, "a KMS encrypts instead", func(t *testing.T) {
		s.Edit(t, "encryption: {}", fmt.Sprintf("encryption: {kms: {endpoint: %q}}", plugin.endpoint()))
		require.Contains(t, s.Up(t).Stderr, "The rotation of the encryption key is not complete: continue with ")
		s.Sub(t, "encryption", "rotate").OK(t).Quiet(t)
		require.Contains(t, b.stored(t, "root-shard"), "kms:v2:")
		b.readable(t, "admin")
	})
}

// A new setup encrypts with a KMS from the beginning. A change to a key of kcpctl ends that it needs the KMS.
func TestLocalEncryptionWithAKMS(t *testing.T) {
	s := framework.NewLocal(t, "minimal")
	plugin, stop := serveKMS(t)
	kms := fmt.Sprintf("encryption: {kms: {endpoint: %q}}", plugin.endpoint())
	s.Text = fmt.Sprintf("apiVersion: kcpctl.dev/v1alpha1\nkind: Setup\nmetadata: {name: %s}\nspec:\n  %s\n", s.Name, kms)
	s.Write(t, s.Text)
	b := newBackups(t, s)
	framework.Step(t, "a KMS encrypts from the beginning", b.encryptsWithAKMS)
	framework.Step(t, "an outage of the plugin is named", func(t *testing.T) {
		stop()
		s.Finds(t, nil, "KCP101", "fail", "root-shard", "kms-provider")
		stop = plugin.serve()
		s.Check(t, "--wait", "2m").Passes(t)
		b.readable(t, "admin")
	})
	framework.Step(t, "a key of kcpctl encrypts instead", func(t *testing.T) {
		s.Edit(t, kms, "encryption: {}")
		require.Contains(t, s.Up(t).Stderr, "The rotation of the encryption key is not complete: continue with ")
		s.Sub(t, "encryption", "rotate").OK(t).Quiet(t)
		stop()
		require.Contains(t, b.stored(t, "root-shard"), "secretbox:v1:")
		b.readable(t, "admin")
		s.Check(t).Passes(t)
	})
}

// inPods is a setup whose root shard reaches the plugin of a KMS in a directory of its node.
const inPods = `apiVersion: kcpctl.dev/v1alpha1
kind: Setup
metadata: {name: %s}
spec:
  encryption: {kms: {endpoint: unix:///run/kms/kms.sock}}
  rootShard:
    podTemplate:
      spec:
        containers: [{name: kcp, volumeMounts: [{name: kms, mountPath: /run/kms}]}]
        volumes: [{name: kms, hostPath: {path: %s, type: Directory}}]
`

// A shard in a pod reaches the plugin of a KMS on its node.
func TestClusterEncryptionWithAKMS(t *testing.T) {
	s := framework.NewCluster(t, "minimal")
	c := s.Runtime.(*framework.Cluster)
	plugin, stop := serveKMS(t)
	s.Text = fmt.Sprintf(inPods, s.Name, plugin.dir)
	s.Write(t, s.Text)
	b := newBackups(t, s)
	c.MakeNamespace(t)
	admit := func(level string) {
		c.Kubectl("label", "namespace", c.Namespace, "--overwrite", "pod-security.kubernetes.io/enforce="+level).Run(t.Context(), t).OK(t)
	}
	framework.Step(t, "a namespace that refuses volumes of nodes", func(t *testing.T) {
		admit("restricted")
		s.Finds(t, []string{"--pre"}, "KCP014", "fail", "Deployment/", "violates PodSecurity", "hostPath")
		s.Kcpctl(t, "up").Refused(t, 1, "KCP014", "hostPath")
		admit("privileged")
	})
	framework.Step(t, "the KMS encrypts", b.encryptsWithAKMS)
	framework.Step(t, "an outage of the plugin is named", func(t *testing.T) {
		stop()
		s.Finds(t, nil, "KCP101", "fail", "root-shard", "kms-provider")
		plugin.serve()
		s.BecomesReady(t)
		b.readable(t, "admin")
	})
}
