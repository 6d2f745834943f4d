package model_test

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/file/setup"
)

// backup is a copy of the Secrets of the home namespaces of a cluster: what a backup of the PKI and the record has.
type backup map[key]*unstructured.Unstructured

// backup copies the Secrets of a cluster.
func (c *cluster) backup() backup {
	out := backup{}
	for _, k := range c.sorted(secrets, "") {
		out[k] = c.objects[k].DeepCopy()
	}
	return out
}

// restore brings back the Secrets of a backup, in namespaces that exist, and deletes no other.
func (w *world) restore(c *cluster, b backup) {
	for home, i := range w.installations {
		i.restored = i.restored || home.cluster == c.name
	}
	for k, o := range b {
		if c.objects[key{namespaces, "", k.namespace}] == nil {
			continue
		}
		o = o.DeepCopy()
		if live := c.objects[k]; live != nil {
			o.SetUID(live.GetUID())
		}
		o.SetResourceVersion(w.next())
		c.objects[k] = o
		w.changes++
	}
}

// alone tells a story of one user and one cluster, with a store of the PKI.
func alone(t *testing.T, store v1alpha1.PKIStore, do func(s *story)) {
	t.Helper()
	tell(t, func(s *story) {
		file := s.setup("eu", "eu")
		file.Spec.PKI.Store = store
		s.begin(file)
		do(s)
	})
}

func (s *story) path(parts ...string) string {
	return filepath.Join(append([]string{s.ann.dir}, parts...)...)
}

func (s *story) trusts(file string) []string {
	data, _, _ := unstructured.NestedStringMap(s.object(place{"eu", "kcp"}, configMaps, "demo-ca").Object, "data")
	return fingerprints(data[file])
}

// Yesterday's Secrets of the namespace have a record and a PKI that fit together, and a server CA that was removed
// since.
func TestRestoredSecrets(t *testing.T) {
	alone(t, v1alpha1.PKIStoreCluster, func(s *story) {
		yesterday := s.cluster("eu").backup()
		s.succeeds(s.ann, "certs", "rotate-ca", "server")
		s.succeeds(s.ann, "certs", "rotate-ca", "server", "--finish", "--yes")
		today, trusted := s.cluster("eu").backup(), s.trusts("server.crt")
		s.restore(s.cluster("eu"), yesterday)
		s.refused(s.ann, "is older than what was applied last", "up")
		s.refused(s.ann, "is older than what was applied last", "certs", "renew")
		s.refused(s.ann, "components trust what neither Secret kcp/demo-pki nor the record", "up", "--allow=restored-record")
		require.Equal(t, trusted, s.trusts("server.crt"))
		s.restore(s.cluster("eu"), today)
		s.succeeds(s.ann, "up")
		require.Equal(t, trusted, s.trusts("server.crt"))
	})
}

// Nothing runs, and a counter outside of the Secrets is all that shows the restore.
func TestRestoredSecretsAfterDown(t *testing.T) {
	alone(t, v1alpha1.PKIStoreCluster, func(s *story) {
		yesterday := s.cluster("eu").backup()
		s.succeeds(s.ann, "certs", "rotate-ca", "client")
		s.succeeds(s.ann, "certs", "rotate-ca", "client", "--finish", "--yes")
		s.succeeds(s.ann, "down", "--yes")
		s.restore(s.cluster("eu"), yesterday)
		s.succeeds(s.ann, "down", "--yes")
		s.refused(s.ann, "is older than what was applied last", "up")
		s.actor = nil
		s.succeeds(s.ann, "up", "--allow=restored-record", "--replace-authorities")
		s.succeeds(s.ann, "up")
		s.succeeds(s.ann, "down", "--yes", "--purge")
	})
}

// A copy of the PKI directory from before certs renew, after which a stolen key is worth nothing.
func TestOlderCertificates(t *testing.T) {
	alone(t, v1alpha1.PKIStoreDirectory, func(s *story) {
		copyDirectory(s.path("pki"), s.path("backup"))
		time.Sleep(time.Hour)
		s.succeeds(s.ann, "certs", "renew")
		copyDirectory(s.path("backup"), s.path("pki"))
		s.refused(s.ann, "it would replace certificates by older ones", "up")
		s.succeeds(s.ann, "certs", "renew")
		s.succeeds(s.ann, "up")
	})
}

// A further client CA that was removed returns with an older directory only on request.
func TestRemovedClientCA(t *testing.T) {
	alone(t, v1alpha1.PKIStoreDirectory, func(s *story) {
		bundle := s.path("pki", "ca", "client.bundle")
		corp := s.foreignCA()
		require.NoError(t, os.WriteFile(bundle, corp, 0o600))
		of := fingerprints(string(corp))[0]
		s.refused(s.ann, "its bundle has "+of[:23]+" (\"demo-client-ca\"), which the installation does not know", "up")
		s.known["client "+of] = true
		s.succeeds(s.ann, "up", "--allow=trust-change="+of)
		require.Contains(t, s.trusts("client.crt"), of)
		s.succeeds(s.ann, "up")
		copyDirectory(s.path("pki"), s.path("backup"))
		require.NoError(t, os.WriteFile(bundle, nil, 0o600))
		s.refused(s.ann, "its bundle lacks "+of[:23], "up")
		s.installation(place{"eu", "kcp"}).droppable["client "+of] = true
		s.succeeds(s.ann, "up", "--allow=trust-change="+of[len("sha256:"):len("sha256:")+16])
		require.NotContains(t, s.trusts("client.crt"), of)
		copyDirectory(s.path("backup"), s.path("pki"))
		s.refused(s.ann, "its bundle has "+of[:23]+" (\"demo-client-ca\"), which was removed", "up")
	})
}

// A bundle that a user has added to the PKI Secret, or to the live ConfigMap, is not rolled out.
func TestForeignClientCA(t *testing.T) {
	alone(t, v1alpha1.PKIStoreCluster, func(s *story) {
		corp, c := s.foreignCA(), s.cluster("eu")
		of := fingerprints(string(corp))[0]
		before := c.backup()
		secret := c.objects[key{secrets, "kcp", "demo-pki"}]
		require.NoError(t, unstructured.SetNestedField(secret.Object, base64.StdEncoding.EncodeToString(corp), "data", "client-ca.bundle"))
		secret.SetResourceVersion(s.next())
		s.refused(s.ann, "which the installation does not know", "up")
		s.restore(c, before)
		live := c.objects[key{configMaps, "kcp", "demo-ca"}]
		text, _, _ := unstructured.NestedString(live.Object, "data", "client.crt")
		require.NoError(t, unstructured.SetNestedField(live.Object, text+string(corp), "data", "client.crt"))
		s.refused(s.ann, "client CA: "+of[:23], "up")
		s.installation(place{"eu", "kcp"}).droppable["client "+of] = true
		s.succeeds(s.ann, "up", "--allow=trust-change="+of)
		require.NotContains(t, s.trusts("client.crt"), of)
	})
}

// foreignCA is a client CA of another installation.
func (s *story) foreignCA() []byte {
	f, err := setup.Parse("kcp.yaml", s.ann.text())
	require.NoError(s.t, err)
	other, err := pki.Ensure(topology.Build(f.Setup), &pki.State{}, pki.Options{Now: time.Now()})
	require.NoError(s.t, err)
	return other.State.CAs[topology.ClientCA].Cert
}

// The Secret with the PKI is gone: nothing but a replacement helps, and the installation stays the same.
func TestLostPKI(t *testing.T) {
	alone(t, v1alpha1.PKIStoreCluster, func(s *story) {
		delete(s.cluster("eu").objects, key{secrets, "kcp", "demo-pki"})
		s.refused(s.ann, "it is missing", "up")
		s.succeeds(s.ann, "up", "--replace-authorities")
		s.succeeds(s.ann, "up")
	})
}

// Ten years later: no CA is valid.
func TestExpiredAuthorities(t *testing.T) {
	alone(t, v1alpha1.PKIStoreCluster, func(s *story) {
		time.Sleep(11 * 365 * 24 * time.Hour)
		s.refused(s.ann, "the server CA: it expired on", "up")
		s.succeeds(s.ann, "up", "--replace-authorities")
		s.succeeds(s.ann, "up")
	})
}
