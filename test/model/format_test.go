package model_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// What a later kcpctl has added stays: in the record, in the inventories, and as entries of their Secrets.
func TestWhatALaterKcpctlAddedSurvives(t *testing.T) {
	tell(t, func(s *story) {
		s.ann.save(s.setup("eu", "us"))
		s.succeeds(s.ann, "up")
		add := func(tree map[string]any) { tree["later"] = "kept" }
		s.edit("eu", "demo-inventory", "installation.json", func(tree map[string]any) {
			add(tree)
			tree["data"].(map[string]any)["shard/alpha"].(map[string]any)["later"] = "kept"
		})
		for _, cluster := range []string{"eu", "us"} {
			s.edit(cluster, "demo-inventory", "owner.json", add)
			s.put(cluster, "demo-inventory", "later.json", `"kept"`)
		}
		changed := s.setup("eu", "us")
		changed.Spec.FrontProxies[0].ExtraArgs = []string{"--v=3"}
		s.ann.save(changed)
		s.succeeds(s.ann, "up")
		s.succeeds(s.ann, "certs", "renew")
		s.succeeds(s.ann, "down", "--yes")
		s.succeeds(s.ann, "up")
		require.Equal(t, 2, strings.Count(s.entry("eu", "demo-inventory", "installation.json"), `"later":"kept"`))
		for _, cluster := range []string{"eu", "us"} {
			require.Contains(t, s.entry(cluster, "demo-inventory", "owner.json"), `"later":"kept"`)
			require.Equal(t, `"kept"`, s.entry(cluster, "demo-inventory", "later.json"))
		}
	})
}

// An installation of a later kcpctl, which would lose something by what this one writes, is left alone by each command
// that writes.
func TestAnInstallationOfALaterKcpctlIsLeftAlone(t *testing.T) {
	const stamp = `{"number":9,"minWriter":9,"release":"v9.9.0"}`
	for name, upgrade := range map[string]func(*story){
		"record": func(s *story) {
			s.edit("eu", "demo-inventory", "installation.json", func(tree map[string]any) { tree["format"] = json.RawMessage(stamp) })
		},
		"inventory": func(s *story) { annotate(s.secret("eu", "demo-inventory"), "kcpctl.dev/format", stamp) },
		"inventory of another cluster": func(s *story) {
			annotate(s.secret("us", "demo-inventory"), "kcpctl.dev/format", stamp)
		},
	} {
		t.Run(name, func(t *testing.T) {
			tell(t, func(s *story) {
				s.ann.save(s.setup("eu", "us"))
				s.succeeds(s.ann, "up")
				upgrade(s)
				changed := s.setup("eu", "us")
				changed.Spec.FrontProxies[0].ExtraArgs = []string{"--v=3"}
				s.ann.save(changed)
				for _, args := range [][]string{
					{"up"}, {"down", "--yes"}, {"down", "--yes", "--purge"}, {"up", "--only", "front-proxy/main"}, {"remove-shard", "alpha", "--yes"},
				} {
					s.refused(s.ann, "upgrade kcpctl to at least v9.9.0", args...)
				}
				s.succeeds(s.ann, "history")
			})
		})
	}
}

func annotate(o *unstructured.Unstructured, key, value string) {
	notes := o.GetAnnotations()
	notes[key] = value
	o.SetAnnotations(notes)
}

// release is an installation that an earlier release has made: its setup file, and the objects on each cluster. A file
// of testdata has no private key. In its place is "KEY " and the fingerprint of the public key. Secrets have their data
// as stringData.
type release struct {
	Setup  json.RawMessage
	EU, US []struct {
		Resource string
		Object   json.RawMessage
	}
}

// install loads an installation of an earlier release.
func (s *story) install(name string) {
	s.t.Helper()
	r := readRelease(s.t, name)
	for n, all := range [][]struct {
		Resource string
		Object   json.RawMessage
	}{r.EU, r.US} {
		c := s.clusters[n]
		for _, o := range all {
			u := &unstructured.Unstructured{}
			require.NoError(s.t, u.UnmarshalJSON(o.Object))
			if entries, ok := u.Object["stringData"].(map[string]any); ok {
				for name, text := range entries {
					entries[name] = base64.StdEncoding.EncodeToString([]byte(text.(string)))
				}
				u.Object["data"] = entries
				delete(u.Object, "stringData")
			}
			c.objects[key{o.Resource, u.GetNamespace(), u.GetName()}] = u
			if u.GetKind() == "Namespace" && u.GetName() == "kube-system" {
				c.uid = u.GetUID()
			}
		}
		require.NotEqual(s.t, types.UID(""), c.uid)
	}
	s.version = 1 << 20 // UIDs are unique
	home := place{s.clusters[0].name, "kcp"}
	for _, c := range s.clusters {
		s.owners[place{c.name, "kcp"}] = s.installation(home)
	}
	s.settle() // the workloads start
	s.ann.write(r.Setup)
}

// Installations of earlier releases are taken over: with their authorities, their data and their history. From then
// on, those releases refuse them: they refuse the inventory of another tool, a record whose time they cannot read, and
// a PKI with an entry that they do not know.
func TestInstallationsOfEarlierReleases(t *testing.T) {
	for name, now := range map[string]time.Time{ // when the certificates are valid
		"2026-11-22": time.Date(2026, 11, 26, 0, 0, 0, 0, time.UTC), "2026-11-23": time.Date(2000, 1, 2, 0, 0, 0, 0, time.UTC),
	} {
		t.Run(name, func(t *testing.T) {
			tell(t, func(s *story) {
				s.install(name)
				authority, alpha := s.entry("eu", "demo-pki", "server-ca.crt"), s.entry("us", "demo-shard-alpha-server", "tls.crt")
				time.Sleep(time.Until(now))
				s.succeeds(s.ann, "up")
				require.Equal(t, authority, s.entry("eu", "demo-pki", "server-ca.crt"))
				require.Equal(t, alpha, s.entry("us", "demo-shard-alpha-server", "tls.crt"))
				record := s.entry("eu", "demo-inventory", "installation.json")
				for _, part := range []string{`"root-shard"`, `"shard/alpha"`, `"embedded etcd"`, `"number":`} {
					require.Contains(t, record, part)
				}
				require.Contains(t, s.entry("eu", "demo-inventory", "history.json"), `"revision":1`)
				require.NotEmpty(t, s.entry("eu", "demo-inventory", "setup.1.yaml"))
				for _, cluster := range []string{"eu", "us"} {
					tool, _, _ := strings.Cut(s.secret(cluster, "demo-inventory").GetAnnotations()["applyset.kubernetes.io/tooling"], "/")
					require.Contains(t, tool, "a later kcpctl (upgrade kcpctl")
				}
				var old struct {
					AuthoritiesApplied time.Time `json:"authoritiesApplied"`
				}
				require.ErrorContains(t, json.Unmarshal([]byte(record), &old), "a later kcpctl (upgrade kcpctl")
				require.NotEmpty(t, s.entry("eu", "demo-pki", "installation.json"), "the first of these releases knows no "+
					"such entry")

				before := s.changes
				require.Contains(t, s.succeeds(s.ann, "up"), "up to date")
				require.Equal(t, before, s.changes)
				s.succeeds(s.ann, "certs", "renew", "shard/alpha")
				s.succeeds(s.ann, "down", "--yes")
				s.succeeds(s.ann, "up")
				require.Equal(t, authority, s.entry("eu", "demo-pki", "server-ca.crt"))
			})
		})
	}
}

// A private key is never committed, also not one of a test: neither as PEM nor as DER, in PKCS #8 or SEC 1, also where
// it is encoded as base64, once more or twice.
func TestReleasesHaveNoPrivateKey(t *testing.T) {
	forms := []string{"PRIVATE KEY", "MIGHAgEAMBMGByqGSM49", "MHcCAQEE"}
	for i := range 12 { // the three, and each of them encoded once
		for before := range 3 { // bytes of its group of base64
			encoded := base64.RawStdEncoding.EncodeToString([]byte(strings.Repeat(" ", before) + forms[i]))
			forms = append(forms, encoded[(before*4+2)/3:len(encoded)-1])
		}
	}
	names := must(filepath.Glob("testdata/*.json"))
	require.Len(t, names, 2)
	for _, name := range names {
		text := string(must(os.ReadFile(name)))
		for _, form := range forms {
			require.False(t, strings.Contains(text, form), "%s contains %s", name, form)
		}
	}
}

// A file that names its installation is refused where another one is, or none, by each command that writes, whatever
// context it has.
func TestAFileNamesItsInstallation(t *testing.T) {
	tell(t, func(s *story) {
		staging, production := s.setup("eu", "eu"), s.setup("us", "us")
		s.ann.save(staging)
		s.succeeds(s.ann, "up")
		s.bob.save(production)
		output := s.succeeds(s.bob, "up")
		id := s.installed("eu")
		require.Contains(t, output, "The installation is "+s.installed("us")+".")

		// The file of staging in a pipeline without a memory, with the context of production.
		staging.Metadata.Installation = id
		s.ann.save(staging)
		s.succeeds(s.ann, "up")
		ci := newOperator(s.world, "ci", t.TempDir())
		ci.save(staging)
		ci.contexts["eu"] = s.cluster("us")
		for _, args := range [][]string{
			{"up"}, {"down", "--yes"}, {"down", "--yes", "--purge"}, {"certs", "renew"}, {"certs", "rotate-ca", "server"},
			{"up", "--allow=other-cluster", "--new-installation"}, {"add-shard", "beta", "--url", urlOf(11), "--skip-canary"},
			{"remove-shard", "alpha", "--yes"}, {"cordon", "alpha"}, {"kubeconfig", "--user", "eve"}, {"certs", "rotate-service-account-key"},
		} {
			s.refused(ci, "the setup file is for installation "+id, args...)
		}

		// The same where nothing is: the installation may be lost.
		s.succeeds(s.ann, "down", "--yes", "--purge")
		s.refused(s.ann, "has no installation; nothing was changed", "up")
		s.refused(s.ann, "has no record of it; nothing was removed", "down", "--yes", "--purge")
		s.succeeds(s.ann, "up", "--new-installation")
		require.Equal(t, id, s.installed("eu"))
	})
}

func TestUpWritesTheInstallation(t *testing.T) {
	tell(t, func(s *story) {
		s.ann.write([]byte("# ours\napiVersion: kcpctl.dev/v1alpha1\nkind: Setup\nmetadata:\n  name: demo # short\nspec:\n" +
			"  clusters: [{name: eu, context: eu}]\n  external: {hostname: 10.0.0.1}\n"))
		s.succeeds(s.ann, "up", "--write-installation")
		require.Contains(t, string(s.ann.text()), "# ours\n")
		require.Contains(t, string(s.ann.text()), "metadata:\n  name: demo # short\n  installation: "+s.installed("eu")+"\nspec:")
		text := bytes.Clone(s.ann.text())
		require.Contains(t, s.succeeds(s.ann, "up", "--write-installation"), "up to date")
		require.Equal(t, string(text), string(s.ann.text()))
	})
}

// A purge names what it deletes, and where.
func TestAPurgeSaysWhere(t *testing.T) {
	tell(t, func(s *story) {
		s.ann.save(s.setup("eu", "us"))
		s.succeeds(s.ann, "up")
		id := s.installed("eu")
		output := s.succeeds(s.ann, "down", "--yes", "--purge")
		require.Contains(t, output, `of kcp "demo", installation `+id+`, and:`)
		for _, name := range []string{"eu", "us"} {
			require.Contains(t, output, "cluster "+name+", context "+name+", server ")
			require.Contains(t, output, ", namespace kcp: ")
		}
	})
}

// A cluster that a user has forgotten stays in the inventory: who reaches it removes what is left there. One that this
// machine does not know is not lost, and a purge needs all.
func TestForgottenClusters(t *testing.T) {
	tell(t, func(s *story) {
		two := s.setup("eu", "eu")
		two.Spec.Clusters = s.setup("eu", "us").Spec.Clusters
		west := s.setup("us", "us").Spec.FrontProxies[0]
		west.Name = "west"
		two.Spec.FrontProxies = append(two.Spec.FrontProxies, west)
		s.ann.save(two)
		s.succeeds(s.ann, "up")
		require.NotNil(t, s.object(place{"us", "kcp"}, deployments, "demo-front-proxy-west"))

		s.bob.save(s.setup("eu", "eu"))
		us := s.bob.contexts["us"]
		delete(s.bob.contexts, "us")
		s.refused(s.bob, `this machine does not know it`, "up", "--forget-cluster", "us")
		s.refused(s.bob, "objects of the setup remain on cluster us", "down", "--yes", "--purge")

		s.bob.contexts["us"] = newWorld("new").clusters[0] // the context leads to a cluster that was made again
		s.succeeds(s.bob, "up", "--forget-cluster", "us")
		require.Contains(t, s.entry("eu", "demo-inventory", "clusters.json"), `"forgotten":"`)
		before := s.changes
		require.Contains(t, s.succeeds(s.bob, "up"), "up to date")
		require.Equal(t, before, s.changes)

		s.bob.contexts["us"] = us
		require.Contains(t, s.succeeds(s.bob, "up"), "which was forgotten on ")
		require.Nil(t, s.object(place{"us", "kcp"}, deployments, "demo-front-proxy-west"))
		require.NotContains(t, s.entry("eu", "demo-inventory", "clusters.json"), `"us"`)
	})
}

// A user who applies a file reads if another user has applied another one since.
func TestAnotherUserHasAppliedAnotherFile(t *testing.T) {
	tell(t, func(s *story) {
		first, next := s.setup("eu", "us"), s.setup("eu", "us")
		next.Spec.FrontProxies[0].ExtraArgs = []string{"--v=3"}
		s.bob.save(first)
		s.succeeds(s.bob, "up")
		s.ann.save(next)
		require.NotContains(t, s.succeeds(s.ann, "up"), "another setup file since", "ann has applied none before")
		require.Contains(t, s.succeeds(s.bob, "up"), "ann@localhost has applied another setup file since, at ")
	})
}

// The refusal of a run that applies no pending edits names a removed cluster.
func TestAPendingRemovalOfAClusterIsNamed(t *testing.T) {
	tell(t, func(s *story) {
		two := s.setup("eu", "eu")
		two.Spec.Clusters = s.setup("eu", "us").Spec.Clusters
		west := s.setup("us", "us").Spec.FrontProxies[0]
		west.Name = "west"
		two.Spec.FrontProxies = append(two.Spec.FrontProxies, west)
		s.ann.save(two)
		s.succeeds(s.ann, "up")
		s.ann.save(s.setup("eu", "eu"))
		s.refused(s.ann, "cluster us (context us, namespace kcp) is no longer in the setup", "certs", "renew")
	})
}

// A managed etcd gets no earlier image than it runs, which an earlier kcpctl has as its default.
func TestAnEtcdGetsNoEarlierImage(t *testing.T) {
	tell(t, func(s *story) {
		s.ann.save(s.setup("eu", "eu"))
		s.succeeds(s.ann, "up")
		etcd := s.object(place{"eu", "kcp"}, statefulSets, "demo-etcd-root")
		containers, _, err := unstructured.NestedSlice(etcd.Object, "spec", "template", "spec", "containers")
		require.NoError(t, err)
		containers[0].(map[string]any)["image"] = "registry.example.com/etcd:v3.99.0"
		require.NoError(t, unstructured.SetNestedSlice(etcd.Object, containers, "spec", "template", "spec", "containers"))
		s.refused(s.ann, "etcd/root runs v3.99.0: v3.6.16 is older than v3.99.0", "up")
		s.succeeds(s.ann, "up", "--allow=release-change")
	})
}
