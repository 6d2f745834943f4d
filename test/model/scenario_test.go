package model_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
)

// scenario tells a story of two clusters with a shard on each, and workspaces on them.
func scenario(t *testing.T, etcd string, play func(s *story), edits ...func(*v1alpha1.Setup)) {
	t.Helper()
	tell(t, func(s *story) {
		file := base([]string{"eu", "us"})
		file.Spec.RootShard.Etcd = etcdOf(etcd)
		file.Spec.Shards = []v1alpha1.Shard{shardOf("alpha", "eu", etcdOf(etcd)), shardOf("beta", "us", etcdOf(etcd))}
		for _, edit := range edits {
			edit(file)
		}
		s.begin(file)
		for _, p := range s.sortedServers() {
			s.spaces = append(s.spaces, &workspace{name: "team of " + string(p.id), owner: p.owner, of: p.id, store: p.store})
		}
		play(s)
	})
}

// placements are the UIDs of the clusters that the setup knows, by name.
func (s *story) placements() map[string]string {
	var all []struct{ Name, UID string }
	require.NoError(s.t, json.Unmarshal([]byte(s.entry("eu", "demo-inventory", "clusters.json")), &all))
	out := map[string]string{}
	for _, c := range all {
		out[c.Name] = c.UID
	}
	return out
}

// losing are flags that let components leave their data.
func losing(ids ...string) []string {
	var out []string
	for _, id := range ids {
		out = append(out, "--allow=data-change="+id)
	}
	return out
}

// Another cluster at the address of one of the setup is accepted with its data, or not at all, and the previous one
// stays known.
func TestTheClusterOfAShardIsAnotherOne(t *testing.T) {
	scenario(t, "managed", func(s *story) {
		before := s.cluster("us").uid
		s.rebuild(s.cluster("us"))
		s.refused(s.ann, "--allow other-cluster", "up")
		where := "shard/beta is on us/kcp of the cluster with UID " + string(before)
		said := s.refused(s.ann, where, up("--allow=other-cluster")...)
		s.says(said, "--allow data-change=etcd/beta,shard/beta")
		s.succeeds(s.ann, up(append(losing("shard/beta", "etcd/beta"), "--allow=other-cluster")...)...)
		require.Equal(t, map[string]string{
			"eu": string(s.cluster("eu").uid), "us": string(s.cluster("us").uid), "us-00000002": string(before),
		}, s.placements())
		out := s.succeeds(s.ann, "up")
		require.Contains(t, out, "objects of the setup remain on cluster us-00000002")
	})
}

// A namespace that was deleted by hand took its volumes with it.
func TestTheNamespaceOfAShardIsDeleted(t *testing.T) {
	scenario(t, "managed", func(s *story) {
		s.deleteNamespace(s.cluster("us"), "kcp")
		said := s.refused(s.ann, "etcd/beta has its data on PersistentVolumeClaim data-demo-etcd-beta-0", "up")
		s.says(said, "which does not exist", "restore the volume")
		s.succeeds(s.ann, up(losing("etcd/beta")...)...)
		s.succeeds(s.ann, "up")
	})
}

// The volume of a root shard is deleted after down.
func TestTheVolumeOfTheRootShardIsDeleted(t *testing.T) {
	for _, etcd := range []string{"managed", "embedded"} {
		t.Run(etcd, func(t *testing.T) {
			scenario(t, etcd, func(s *story) {
				s.succeeds(s.ann, "down", "--yes")
				eu := s.cluster("eu")
				for _, k := range eu.sorted(claims, "kcp") {
					if strings.Contains(k.name, "root") {
						s.deleteClaim(eu, k)
					}
				}
				id := map[string]string{"managed": "etcd/root", "embedded": "root-shard"}[etcd]
				said := s.refused(s.bob, id+" has its data on PersistentVolumeClaim", "up")
				s.says(said, "which does not exist")
				s.succeeds(s.ann, up(losing(id)...)...)
			})
		})
	}
}

// A volume that is deleted while pods use it is lost when they end. To accept that once is not to accept it later.
func TestAVolumeIsDeletedWhilePodsUseIt(t *testing.T) {
	scenario(t, "managed", func(s *story) {
		us := s.cluster("us")
		s.deleteClaim(us, us.sorted(claims, "kcp")[0])
		said := s.refused(s.ann, "etcd/beta has its data on PersistentVolumeClaim data-demo-etcd-beta-0", "up")
		s.says(said, "which is being deleted")
		s.succeeds(s.ann, up(losing("etcd/beta")...)...)
		s.succeeds(s.ann, "down", "--yes")
		said = s.refused(s.bob, "etcd/beta has its data on PersistentVolumeClaim data-demo-etcd-beta-0", "up")
		s.says(said, "which does not exist")
		s.succeeds(s.ann, up(losing("etcd/beta")...)...)
	})
}

// Volumes that no record knows have data of another time, perhaps of another number of members.
func TestVolumesWithoutARecord(t *testing.T) {
	scenario(t, "managed", func(s *story) {
		s.succeeds(s.ann, "down", "--yes")
		for _, c := range s.clusters {
			delete(c.objects, key{secrets, "kcp", "demo-inventory"})
		}
		file := s.ann.setup()
		file.Spec.RootShard.Etcd = etcdOf("managed of three")
		s.ann.save(file)
		said := s.refused(s.ann, "etcd/root is not in the record of the installation", up("--allow=other-cluster")...)
		s.says(said, "(PersistentVolumeClaim data-demo-etcd-root-0 (")
	})
}

// The record is lost, and the file changed since: it uses none of the volumes.
func TestVolumesThatTheFileDoesNotUse(t *testing.T) {
	for _, now := range []string{"managed, ephemeral", "embedded"} {
		scenario(t, "managed", func(s *story) {
			s.succeeds(s.ann, "down", "--yes")
			for _, c := range s.clusters {
				delete(c.objects, key{secrets, "kcp", "demo-inventory"})
			}
			file := s.ann.setup()
			file.Spec.RootShard.Etcd = etcdOf(now)
			s.ann.save(file)
			said := s.refused(s.ann, "etcd/root has volumes on eu/kcp", up("--allow=other-cluster")...)
			s.says(said, "(PersistentVolumeClaim data-demo-etcd-root-0 (", "the setup does not use them",
				"--allow data-change=etcd/")
		})
	}
}

// The home namespace is lost, and other clusters remain.
func TestTheHomeNamespaceIsDeleted(t *testing.T) {
	for _, down := range []bool{false, true} {
		scenario(t, "managed", func(s *story) {
			var rec struct{ Installation string }
			require.NoError(t, json.Unmarshal([]byte(s.entry("eu", "demo-inventory", "installation.json")), &rec))
			id := rec.Installation
			if down {
				s.succeeds(s.ann, "down", "--yes")
			}
			backup := s.homeSecrets()
			s.deleteNamespace(s.cluster("eu"), "kcp")
			want := []string{"belongs to installation " + id, "its record, which was there, does not exist any more",
				"restore a backup (kcpctl restore", "), or Secret/demo-inventory and Secret/demo-pki in namespace kcp and",
				"--allow lost-record=" + id}
			for _, who := range []*operator{s.ann, s.bob} {
				s.says(s.refused(who, "", "up"), want...)
				s.says(s.refused(who, "", up("--allow=lost-record=demo-another")...), want...)
			}
			if !down { // the way back
				s.restoreHome(backup)
				s.says(s.refused(s.ann, "etcd/root has its data on", "up"), "which does not exist")
				s.unregistered(losing("etcd/root", "etcd/alpha")...)
				require.Contains(t, s.entry("eu", "demo-inventory", "installation.json"), id)
				return
			}
			s.refused(s.ann, "etcd/beta is not in the record of the installation", up("--allow=lost-record="+id)...)
			s.spaces = s.of(s.installation(place{"eu", "kcp"}), "shard/beta") // the others are gone for good
			s.succeeds(s.ann, up(append(losing("shard/beta", "etcd/beta"), "--allow=lost-record="+id)...)...)
			require.NotContains(t, s.entry("eu", "demo-inventory", "installation.json"), id)
			s.succeeds(s.ann, "up")
		})
	}
}

// The home namespace is lost without a backup, and the other cluster has the last copy of the key that its data needs.
func TestTheHomeNamespaceIsDeletedWithTheEncryptionKey(t *testing.T) {
	scenario(t, "managed", func(s *story) {
		var rec struct{ Installation string }
		require.NoError(t, json.Unmarshal([]byte(s.entry("eu", "demo-inventory", "installation.json")), &rec))
		key := s.entry("us", "demo-encryption", "config.key")
		require.Contains(t, key, "secretbox")
		s.deleteNamespace(s.cluster("eu"), "kcp")
		s.spaces = s.of(s.installation(place{"eu", "kcp"}), "shard/beta") // the others are gone for good
		s.succeeds(s.ann, up(append(losing("shard/beta", "etcd/beta"), "--allow=lost-record="+rec.Installation,
			"--replace-authorities")...)...)
		require.Equal(t, key, s.entry("us", "demo-encryption", "config.key"))
		s.succeeds(s.ann, "up")
	}, func(file *v1alpha1.Setup) {
		file.Spec.Encryption = &v1alpha1.Encryption{Resources: []string{"secrets"}}
	})
}

// The home cluster is created again, and shards elsewhere are alive: its Secrets are the way back.
func TestTheHomeClusterIsAnotherOne(t *testing.T) {
	scenario(t, "managed", func(s *story) {
		backup := s.homeSecrets()
		s.rebuild(s.cluster("eu"))
		said := s.refused(s.ann, "its record was on a cluster of that name with UID 00000001-eu", "up")
		s.says(said, "choose the right context", "add --allow other-cluster")
		s.restoreHome(backup)
		s.refused(s.ann, "--allow other-cluster", "up")
		said = s.refused(s.ann, "root-shard is on eu/kcp of the cluster with UID 00000001-eu", up("--allow=other-cluster")...)
		s.says(said, "--allow data-change=etcd/alpha,etcd/root,root-shard,shard/alpha")
		s.unregistered(append(losing("etcd/alpha", "etcd/root", "root-shard", "shard/alpha"), "--allow=other-cluster")...)
		s.succeeds(s.ann, "up")
	})
}

// unregistered runs up with a root shard that has lost its data: shards that ran on register when they are restarted.
func (s *story) unregistered(flags ...string) {
	code, out := s.run(s.ann, up(flags...)...)
	require.Equal(s.t, 3, code, out)
	require.Contains(s.t, out, "shard/beta: not ready (timed out after 30s): not yet registered with the root shard")
	for _, p := range s.sortedServers() {
		if p.id == "shard/beta" {
			s.emptied(p)
		}
	}
	s.succeeds(s.ann, up(flags...)...) // the same command continues
}

// homeSecrets copies the Secrets that the home namespace must not lose.
func (s *story) homeSecrets() []*unstructured.Unstructured {
	var out []*unstructured.Unstructured
	for _, name := range []string{"demo-inventory", "demo-pki"} {
		out = append(out, s.object(place{"eu", "kcp"}, secrets, name).DeepCopy())
	}
	return out
}

// restoreHome puts them into the home namespace.
func (s *story) restoreHome(backup []*unstructured.Unstructured) {
	eu := s.cluster("eu")
	ns := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
	ns.SetName("kcp")
	for _, o := range append([]*unstructured.Unstructured{ns}, backup...) {
		k := key{secrets, "kcp", o.GetName()}
		if o == ns {
			k = key{namespaces, "", "kcp"}
		}
		s.stamp(k, o, nil)
		o.SetResourceVersion(s.next())
		eu.objects[k] = o
	}
}

// A user installs a second kcp with the PKI of the first one, on another cluster. It has the ID of the first one, whose
// file must not add anything there.
func TestTwoInstallationsOfOnePKI(t *testing.T) {
	tell(t, func(s *story) {
		first, second, both := s.setup("eu", "eu"), s.setup("us", "us"), s.setup("eu", "us")
		for _, file := range []*v1alpha1.Setup{first, second, both} {
			file.Spec.PKI.Store = v1alpha1.PKIStoreDirectory
		}
		s.begin(first)
		s.ann.save(second)
		s.refused(s.ann, "--allow other-cluster", "up")
		s.succeeds(s.ann, up(append(losing("root-shard", "etcd/root"), "--allow=other-cluster")...)...)
		require.Equal(t, s.installed("eu"), s.installed("us"))
		s.ann.save(both)
		s.refused(s.ann, "has the root shard and the record of another kcp", "up")
	})
}
