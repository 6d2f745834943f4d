package deploy_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcpctl/kcpctl/internal/client/etcd"
	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/client/ready"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run/deploy"
	"github.com/kcpctl/kcpctl/internal/engine/run/etcds"
	"github.com/kcpctl/kcpctl/internal/engine/run/shards"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeetcd"
	"github.com/kcpctl/kcpctl/internal/testutil/fakekcp"
	"github.com/kcpctl/kcpctl/internal/testutil/runtest"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

const (
	encrypted = runtest.Minimal + "spec: {encryption: {}, shards: [{name: alpha}]}\n"
	// rewritten is the request that writes the only Secret of each shard again.
	rewritten  = "PATCH /clusters/root/api/v1/namespaces/default/secrets/a"
	listed     = "GET /clusters/*/api/v1/secrets"
	migrations = "GET /clusters/root/apis/migration.kcp.io/v1alpha1/logicalclustermigrations"
)

// haveSecret gives each shard a Secret.
func haveSecret(k *fakekcp.Kcp) {
	secret := map[string]any{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": map[string]any{
		"name": "a", "namespace": "default", "annotations": map[string]any{"kcp.io/cluster": "root"},
	}}
	k.Always(listed, fakekcp.Answer{Code: http.StatusOK, Body: map[string]any{
		"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": map[string]any{}, "items": []any{secret},
	}})
	k.Always(rewritten, fakekcp.Answer{Code: http.StatusOK, Body: secret})
	k.Always(migrations, migrating())
}

// migrating is a list of moves of logical clusters that kcpctl has begun.
func migrating(clusters ...string) fakekcp.Answer {
	items := []any{}
	for _, c := range clusters {
		_, name, _ := strings.Cut(kcp.MigrationPath(c), ":")
		items = append(items, map[string]any{
			"apiVersion": "migration.kcp.io/v1alpha1", "kind": "LogicalClusterMigration", "metadata": map[string]any{"name": name},
			"spec": map[string]any{"logicalCluster": c, "destinationShard": "alpha"},
		})
	}
	return fakekcp.Answer{Code: http.StatusOK, Body: map[string]any{
		"apiVersion": "migration.kcp.io/v1alpha1", "kind": "LogicalClusterMigrationList", "metadata": map[string]any{}, "items": items,
	}}
}

// encryption returns the rotation of the key that encrypts, and its titles.
func (w *world) encryption() (*deploy.RotateEncryption, *[]string) {
	var titles []string
	return &deploy.RotateEncryption{Rotate: deploy.Rotate{
		Rotations: pki.Rotations{pki.EncryptionRotation{}}, Topology: w.Up.Topology, Store: w.Runtime.Store(), Up: w.Up, Now: time.Now,
		Begin: func(title string) func() { titles = append(titles, title); return func() {} },
	}, Etcd: func(context.Context, *topology.Component) (*etcd.Client, error) { return nil, nil }}, &titles
}

// A pod that leaves encrypts with the previous key, so that objects are written again after it is gone.
func TestNothingIsRewrittenBesideAPodThatLeaves(t *testing.T) {
	inWorld(t, encrypted, func(t *testing.T, w *world) {
		w.MustRun(t)
		haveSecret(w.Runtime.Kcp)
		w.Up.Options.Timeout = time.Minute
		first := w.Runtime.PKI().Encryption.Key
		leaving := ready.State{Ready: true, Replicas: 1, Pods: map[string]bool{"demo-shard-alpha-2": true, "demo-shard-alpha-1": false}}
		stays := ready.State{Ready: true, Replicas: 1, Pods: map[string]bool{"demo-shard-alpha-2": true}}
		w.Runtime.States("shard/alpha", leaving)
		rotate, titles := w.encryption()
		err := rotate.Run(t.Context())
		runtest.RequireError(t, err, clierr.NotReady,
			"shard/alpha: timed out after 1m0s: demo-shard-alpha-1 terminates, and encrypts with the previous key until then")
		require.Len(t, w.Runtime.Kcp.Requests(rewritten), 1, "the root shard's")
		require.Equal(t, first, w.Runtime.PKI().Encryption.Previous)

		*titles = nil
		w.Runtime.States("shard/alpha", leaving, leaving, leaving, stays)
		require.NoError(t, rotate.Run(t.Context()))
		require.Len(t, w.Runtime.Kcp.Requests(rewritten), 3)
		require.Empty(t, w.Runtime.PKI().Encryption.Previous)
	})
}

// A key is not removed while something in etcd needs it, for whatever reason.
func TestAKeyThatIsNeededIsNotRemoved(t *testing.T) {
	inWorld(t, encrypted, func(t *testing.T, w *world) {
		w.MustRun(t)
		haveSecret(w.Runtime.Kcp)
		first := w.Runtime.PKI().Encryption.Key
		rotate, _ := w.encryption()
		alpha := fakeetcd.New(t, w.Up.Topology.Component("etcd/alpha"), w.Runtime.PKI())
		members := &etcds.Members{Store: w.Runtime.Store(), Pods: alpha, Now: time.Now}
		rotate.Etcd = func(ctx context.Context, c *topology.Component) (*etcd.Client, error) {
			if c.ID() != "shard/alpha" {
				return nil, nil
			}
			client, _, err := members.Client(ctx, w.Up.Topology.Component("etcd/alpha"))
			return client, err
		}
		encryptedWith := func(key string) string { return "k8s:enc:secretbox:v1:" + pki.EncryptionKeyName(key) + ":..." }
		alpha.SetKeys(map[string]string{
			"/registry/core/secrets/2a/default/b": encryptedWith(first), "/registry/core/secrets/2a/default/c": "plain",
			"/other/d": encryptedWith(first),
		})
		err := rotate.Run(t.Context())
		runtest.RequireError(t, err, clierr.Failed,
			"shard/alpha: the previous key is still needed in etcd for core/secrets/2a/default/b")
		require.Equal(t, first, w.Runtime.PKI().Encryption.Previous)

		alpha.SetKeys(map[string]string{"/registry/core/secrets/2a/default/b": encryptedWith(w.Runtime.PKI().Encryption.Key)})
		require.NoError(t, rotate.Run(t.Context()))
		require.Empty(t, w.Runtime.PKI().Encryption.Previous)
	})
}

// A key is removed only after all shards have written all objects again.
func TestRotateEncryption(t *testing.T) {
	inWorld(t, encrypted, func(t *testing.T, w *world) {
		w.MustRun(t)
		first := w.Runtime.PKI().Encryption
		require.Equal(t, []string{"secrets"}, first.Resources)
		haveSecret(w.Runtime.Kcp)
		w.Runtime.Kcp.Script(rewritten, fakekcp.Refuse(http.StatusForbidden, metav1.StatusReasonForbidden, "inactive"))
		w.Runtime.Kcp.Script(migrations, migrating("x7k2m9qd"))
		rotate, titles := w.encryption()
		err := rotate.Run(t.Context())
		runtest.RequireError(t, err, clierr.Failed, "logical cluster x7k2m9qd is being moved to another shard")
		require.Contains(t, clierr.Hint(err), "kcpctl move x7k2m9qd --to alpha,")
		require.Equal(t, first, w.Runtime.PKI().Encryption, "the move can end first")
		require.ErrorContains(t, rotate.Run(t.Context()), "write secrets default/a of logical cluster root again: inactive")
		require.Equal(t, first.Key, w.Runtime.PKI().Encryption.Previous)
		require.True(t, w.MustRun(t).Plan.Empty(), "up undoes nothing")

		*titles = nil
		require.NoError(t, rotate.Run(t.Context()))
		require.Equal(t, []string{
			"make sure that everything has switched to the new encryption key", "encrypt the existing objects again",
			"remove the previous encryption key",
		}, *titles)
		require.Len(t, w.Runtime.Kcp.Requests(rewritten), 4, "two shards, twice")
		last := w.Runtime.PKI().Encryption
		require.NotEqual(t, first.Key, last.Key)
		require.Equal(t, pki.Encryption{Key: last.Key, Resources: []string{"secrets"}}, last)
		require.True(t, w.MustRun(t).Plan.Empty())
	})
}

// Without an answer of kcp it is not known whether workspaces move. The next step is said, because up needs no answer.
func TestRotateEncryptionOfAKcpThatDoesNotAnswer(t *testing.T) {
	inWorld(t, encrypted, func(t *testing.T, w *world) {
		w.MustRun(t)
		first := w.Runtime.PKI().Encryption
		w.Runtime.Kcp.Always(migrations, fakekcp.Refuse(http.StatusForbidden, metav1.StatusReasonForbidden, "broken"))
		rotate, _ := w.encryption()
		err := rotate.Run(t.Context())
		require.Equal(t, clierr.NotReady, clierr.Code(err))
		require.ErrorContains(t, err, "the root shard does not answer: ")
		require.Contains(t, clierr.Hint(err), "run kcpctl up first")
		require.Equal(t, first, w.Runtime.PKI().Encryption)
	})
}

// A shard that was removed with its data can return: its objects are encrypted with the key that it had.
func TestAKeyThatTheDataOfARemovedShardNeedsIsNotRemoved(t *testing.T) {
	const two = runtest.Minimal + "spec: {encryption: {}, shards: [{name: alpha}, {name: beta}]}\n"
	inWorld(t, two, func(t *testing.T, w *world) {
		w.MustRun(t)
		for _, op := range []string{"apply shards", "delete shards"} {
			w.Runtime.Kcp.Always(op, fakekcp.Answer{Code: http.StatusOK, Body: map[string]any{"apiVersion": "v1", "kind": "Anything"}})
		}
		w.Runtime.Kcp.Always(fakekcp.ListClusters, fakekcp.Refuse(http.StatusForbidden, metav1.StatusReasonForbidden, "broken"))
		remove := &shards.RemoveShards{
			Topology: w.Topology, Runtime: w.Runtime, Names: []string{"alpha"}, Observe: w.Observe(t), Now: time.Now, Timeout: time.Hour,
			CheckEdit: func() error { return nil }, AllowWorkspaceLoss: true, Before: []byte("the setup"),
			Edit: func() (plan.Applied, error) { return plan.Applied{Setup: []byte("without alpha")}, nil },
		}
		require.NoError(t, remove.Run(t.Context()))
		first := w.Runtime.PKI().Encryption.Key

		w.use(topologytest.Build(t, runtest.Minimal+"spec: {encryption: {}, shards: [{name: beta}]}\n"))
		w.MustRun(t)
		haveSecret(w.Runtime.Kcp)
		rotate, _ := w.encryption()
		err := rotate.Run(t.Context())
		runtest.RequireError(t, err, clierr.Failed,
			"shard/alpha was removed, but its data on default/kcp still exists, and may need the previous encryption key")
		require.Contains(t, clierr.Hint(err), "kcpctl add-shard alpha, or delete its data with kcpctl remove-shard alpha --purge --allow workspace-loss, or")
		require.Equal(t, first, w.Runtime.PKI().Encryption.Previous)
		require.Len(t, w.Runtime.Kcp.Requests(rewritten), 2, "everything else is encrypted with the new key")

		w.use(topologytest.Build(t, two))
		w.MustRun(t)
		rotate, _ = w.encryption()
		require.NoError(t, rotate.Run(t.Context()))
		require.Empty(t, w.Runtime.PKI().Encryption.Previous)
	})
}

// In a setup that runs, up prepares the encryption, and the rotation begins it; and likewise when it ends.
func TestEncryptionOfASetupThatRuns(t *testing.T) {
	inWorld(t, runtest.Sharded, func(t *testing.T, w *world) {
		w.MustRun(t)
		haveSecret(w.Runtime.Kcp)
		rotate, _ := w.encryption()
		require.EqualError(t, rotate.Run(t.Context()), `kcp "demo" encrypts nothing`)

		w.use(topologytest.Build(t, encrypted))
		w.MustRun(t)
		key := w.Runtime.PKI().Encryption.Key
		require.Equal(t, pki.Encryption{Key: key, Phase: pki.PhaseDistribute}, w.Runtime.PKI().Encryption)
		rotate, titles := w.encryption()
		require.NoError(t, rotate.Run(t.Context()))
		require.Equal(t, []string{
			"make sure that the new encryption key is known everywhere", "switch to the new encryption key",
			"encrypt the existing objects again", "remove the previous encryption key",
		}, *titles)
		require.Equal(t, pki.Encryption{Key: key, Resources: []string{"secrets"}}, w.Runtime.PKI().Encryption)
		require.Len(t, w.Runtime.Kcp.Requests(rewritten), 2)

		w.use(topologytest.Build(t, runtest.Sharded))
		w.MustRun(t)
		require.Equal(t, []string{"secrets"}, w.Runtime.PKI().Encryption.Resources, "what is encrypted can still be read")
		rotate, _ = w.encryption()
		require.NoError(t, rotate.Run(t.Context()))
		require.Equal(t, pki.Encryption{Key: key}, w.Runtime.PKI().Encryption)
		require.Len(t, w.Runtime.Kcp.Requests(rewritten), 4)
		require.True(t, w.MustRun(t).Plan.Empty())
	})
}

// A rotation that another run has begun in the meantime keeps its keys.
func TestRotateEncryptionBesideAnother(t *testing.T) {
	inWorld(t, encrypted, func(t *testing.T, w *world) {
		w.MustRun(t)
		haveSecret(w.Runtime.Kcp)
		rotate, _ := w.encryption()
		var other pki.Encryption
		rotate.Begin = func(title string) func() {
			if title == "remove the previous encryption key" {
				second, _ := w.encryption()
				require.NoError(t, second.Run(t.Context()))
				w.Runtime.Kcp.Always(rewritten, fakekcp.Refuse(http.StatusForbidden, metav1.StatusReasonForbidden, "inactive"))
				third, _ := w.encryption()
				require.ErrorContains(t, third.Run(t.Context()), "inactive")
				other = w.Runtime.PKI().Encryption
			}
			return func() {}
		}
		runtest.RequireError(t, rotate.Run(t.Context()), clierr.Conflict, "another run has changed the encryption key in the meantime")
		require.Equal(t, pki.PhaseSwitch, other.Phase)
		require.Equal(t, other, w.Runtime.PKI().Encryption)
	})
}

// Data that was restored after all objects were written again may need the previous key.
func TestRotateEncryptionBesideARestore(t *testing.T) {
	inWorld(t, encrypted, func(t *testing.T, w *world) {
		w.MustRun(t)
		haveSecret(w.Runtime.Kcp)
		rotate, _ := w.encryption()
		first := w.Runtime.PKI().Encryption.Key
		rotate.Begin = func(title string) func() {
			if title == "remove the previous encryption key" {
				known, err := w.Runtime.Record(t.Context())
				require.NoError(t, err)
				known.Restores++
				require.NoError(t, w.Runtime.Keep(t.Context(), known))
			}
			return func() {}
		}
		runtest.RequireError(t, rotate.Run(t.Context()), clierr.Conflict,
			"another run has restored data in the meantime, which may need the previous encryption key")
		require.Equal(t, first, w.Runtime.PKI().Encryption.Previous)
		rotate, _ = w.encryption()
		require.NoError(t, rotate.Run(t.Context()))
		require.Len(t, w.Runtime.Kcp.Requests(rewritten), 4, "two shards, twice")
		require.Empty(t, w.Runtime.PKI().Encryption.Previous)
	})
}

// lost returns the PKI after its Secret or directory was lost: the certificates are in the Secrets that use them.
func (w *world) lost() *pki.State {
	return &pki.State{CAs: map[topology.CA]pki.Authority{}, Leaves: w.Runtime.PKI().Leaves}
}

// A key is never replaced because the PKI store, or also the record, is lost: it is in the Secret that shards mount.
func TestALostEncryptionKeyIsNotReplaced(t *testing.T) {
	const secret = "Secret/kcp/demo-encryption"
	for name, tc := range map[string]struct {
		lose func(t *testing.T, w *world)
		// without is why a run without a flag is refused.
		without string
	}{
		"only the key": {func(t *testing.T, w *world) {
			lost := *w.Runtime.PKI()
			lost.Encryption = pki.Encryption{}
			require.NoError(t, w.Runtime.Store().Save(t.Context(), &lost))
		}, "encryption key: it is missing"},
		"the key and the record": {func(_ *testing.T, w *world) {
			lost := *w.Runtime.PKI()
			lost.Encryption = pki.Encryption{}
			w.Runtime.OtherRun(&lost)
			w.Runtime.ForgetRecord()
		}, "shards encrypt with keys that memory does not have"},
		"the PKI": {func(_ *testing.T, w *world) { w.Runtime.OtherRun(w.lost()) }, "the PKI store (memory) is empty"},
		"the PKI and the record": {func(_ *testing.T, w *world) {
			w.Runtime.OtherRun(w.lost())
			w.Runtime.ForgetRecord()
		}, "CA is lost"},
		"another key was imported": {func(_ *testing.T, w *world) {
			lost := w.lost()
			lost.Encryption = pki.Encryption{Key: strings.Repeat("A", 43) + "=", Resources: []string{"secrets"}}
			w.Runtime.OtherRun(lost)
			w.Runtime.ForgetRecord()
		}, "CA is lost"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, encrypted, func(t *testing.T, w *world) {
				w.MustRun(t)
				haveSecret(w.Runtime.Kcp)
				first := w.Runtime.PKI().Encryption.Key
				tc.lose(t, w)
				other := w.Runtime.PKI().Encryption.Key
				_, err := w.Run(t)
				require.ErrorContains(t, err, tc.without)
				require.NotContains(t, w.Runtime.Calls(), "Save")

				w.Up.Options.ReplaceAuthorities = true
				w.MustRun(t)
				e := w.Runtime.PKI().Encryption
				require.Equal(t, []string{first, other}[:len(e.Keys())], e.Keys())
				require.Equal(t, []string{"secrets"}, e.Resources)
				require.Contains(t, strings.Join(w.Of(""), "\n"), "it is taken from "+secret)
				w.Up.Options.ReplaceAuthorities = false
				require.True(t, w.MustRun(t).Plan.Empty())
				rotate, _ := w.encryption()
				require.NoError(t, rotate.Run(t.Context()), "and it can be rotated")
			})
		})
	}
}

// The home cluster is lost, and the key was rotated after its last backup. The other cluster has the present key, with
// which its objects are encrypted, and the data of the backup needs the previous one.
func TestAnEncryptionKeyThatIsOlderThanTheOneOfAnotherCluster(t *testing.T) {
	text := strings.Replace(runtest.TwoClusters, "spec:\n", "spec:\n  encryption: {}\n", 1)
	for name, restored := range map[string]func(w *world){
		"the Secrets were restored": func(w *world) { w.Up.Options.AllowRestoredRecord = true },
		"kcpctl restore": func(w *world) {
			w.Runtime.SetRecord(func(r *record.Record) *record.Record { r.Serial += 100; return r })
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, text, func(t *testing.T, w *world) {
				w.MustRun(t)
				haveSecret(w.Runtime.Kcp)
				backup, first := w.Runtime.Backup(), w.Runtime.PKI().Encryption.Key
				rotate, _ := w.encryption()
				require.NoError(t, rotate.Run(t.Context()))
				present := w.Runtime.PKI().Encryption.Key
				objects, err := w.Runtime.Objects(t.Context())
				require.NoError(t, err)
				onHome := slices.DeleteFunc(objects, func(it plan.Item) bool { return it.Cluster != "eu" })
				require.NoError(t, w.Runtime.Delete(t.Context(), onHome))
				backup()
				restored(w)

				_, err = w.Run(t)
				require.ErrorContains(t, err, "shards encrypt with keys that memory does not have")
				require.ErrorContains(t, err, "demo-encryption on cluster us: "+pki.EncryptionKeyName(present))
				require.Contains(t, clierr.Hint(err), "kcpctl up --replace-authorities")
				require.Equal(t, []string{first}, w.Runtime.PKI().Encryption.Keys())

				w.Up.Options.ReplaceAuthorities = true
				w.MustRun(t)
				e := w.Runtime.PKI().Encryption
				require.Equal(t, []string{present, first}, e.Keys(), "both of them decrypt")
				require.Equal(t, pki.PhaseSwitch, e.Phase, "until all objects are written again")
				w.Up.Options.ReplaceAuthorities, w.Up.Options.AllowRestoredRecord = false, false
				require.True(t, w.MustRun(t).Plan.Empty())
				written := len(w.Runtime.Kcp.Requests(rewritten))
				rotate, _ = w.encryption()
				require.NoError(t, rotate.Run(t.Context()))
				require.Len(t, w.Runtime.Kcp.Requests(rewritten), written+len(w.Topology.Shards()))
				require.Equal(t, []string{present}, w.Runtime.PKI().Encryption.Keys())
				require.True(t, w.MustRun(t).Plan.Empty())
			})
		})
	}
}

// Another provider takes effect only while the previous KMS answers. An installation whose KMS is lost can be left.
func TestAKMSThatIsLost(t *testing.T) {
	const withKMS = runtest.Minimal + "spec: {encryption: {kms: {endpoint: unix:///run/kms.sock}}, shards: [{name: alpha}]}\n"
	const note = `objects are still encrypted with the KMS "kms", which the setup no longer has`
	for _, text := range []string{encrypted, runtest.Sharded} {
		inWorld(t, withKMS, func(t *testing.T, w *world) {
			w.MustRun(t)
			require.NotContains(t, strings.Join(w.Of(""), "\n"), note)
			w.use(topologytest.Build(t, text))
			w.Runtime.States("root-shard", ready.State{Replicas: 1, Reason: "readiness probe failed"})
			w.Up.Options.Timeout = time.Minute
			_, err := w.Run(t)
			require.Equal(t, clierr.NotReady, clierr.Code(err))
			require.Contains(t, strings.Join(w.Of(""), "\n"), note)
			require.NoError(t, w.down(t, true))
			w.Runtime.States("root-shard", ready.State{Ready: true, Replicas: 1})
			w.MustRun(t)
			require.Empty(t, w.Runtime.PKI().Encryption.KMS)
		})
	}
}

// Without the key in the store and in the Secret, what it has encrypted could not be read any more.
func TestAnEncryptionKeyThatIsNowhere(t *testing.T) {
	inWorld(t, encrypted, func(t *testing.T, w *world) {
		w.MustRun(t)
		require.NoError(t, w.down(t, false))
		w.Runtime.OtherRun(w.lost())
		w.Up.Options.ReplaceAuthorities = true
		_, err := w.Run(t)
		require.ErrorContains(t, err, "memory does not have the encryption key of installation")
	})
}

// A rotation was in progress: the previous key is needed until all objects are written again.
func TestAllEncryptionKeysThatShardsUseAreRecovered(t *testing.T) {
	inWorld(t, encrypted, func(t *testing.T, w *world) {
		w.MustRun(t)
		haveSecret(w.Runtime.Kcp)
		w.Runtime.Kcp.Script(rewritten, fakekcp.Refuse(http.StatusForbidden, metav1.StatusReasonForbidden, "inactive"))
		rotate, _ := w.encryption()
		require.ErrorContains(t, rotate.Run(t.Context()), "inactive")
		before := w.Runtime.PKI().Encryption
		require.Equal(t, pki.PhaseSwitch, before.Phase)
		for _, imported := range []pki.Encryption{{}, {Key: before.Key, Resources: []string{"secrets"}}} {
			lost := w.lost()
			lost.Encryption = imported
			w.Runtime.OtherRun(lost)
			w.Up.Options.ReplaceAuthorities = true
			w.MustRun(t)
			require.Equal(t, before, w.Runtime.PKI().Encryption)
		}
		w.Up.Options.ReplaceAuthorities = false
		require.NoError(t, rotate.Run(t.Context()))
		require.Equal(t, []string{before.Key}, w.Runtime.PKI().Encryption.Keys())
	})
}

// The data is kept, so that its key has to be kept, too: the Secret has the last copy.
func TestDownKeepsTheLastCopyOfAnEncryptionKey(t *testing.T) {
	inWorld(t, encrypted, func(t *testing.T, w *world) {
		w.MustRun(t)
		w.Runtime.OtherRun(w.lost())
		err := w.down(t, false)
		require.ErrorContains(t, err, "shards encrypt with keys that memory does not have")
		require.ErrorContains(t, err, "nothing was removed\n    Secret/kcp/demo-encryption")
		require.Contains(t, clierr.Hint(err), "kcpctl up --replace-authorities")
		require.Equal(t, []string{"Lock", "Unlock"}, w.Runtime.Calls())
		require.NoError(t, w.down(t, true), "a purge deletes the data, too")
	})
}
