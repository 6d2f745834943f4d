package backup_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/backup"
	"github.com/kcpctl/kcpctl/internal/engine/backup/archive"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// A lost installation comes back with its keys.
func TestRestoreOfEverything(t *testing.T) {
	w := newWorld(t)
	m, err := w.create().Run(t.Context())
	require.NoError(t, err)
	id, authorities := w.record.Installation, pki.Encode(w.state.Authorities())
	w.lose()
	w.record.Witnessed = 9 // another cluster of the installation remains
	p, err := w.restore(m.Name).Plan(t.Context())
	require.NoError(t, err)
	require.True(t, p.Keys)
	require.Equal(t, []topology.ID{"root-shard", "shard/alpha"}, p.Restored)
	require.Equal(t, []topology.ID{"cache-server"}, p.Emptied)

	r := w.restore(m.Name)
	_, err = r.Plan(t.Context())
	require.NoError(t, err)
	require.NoError(t, r.Run(t.Context(), p))
	require.Equal(t, id, w.record.Installation)
	require.Equal(t, authorities, pki.Encode(w.state.Authorities()))
	require.True(t, strings.Contains(w.data["shard/alpha"], "secret-of-a-workspace"))
	require.Empty(t, w.record.Restoring)
	require.NoError(t, w.record.CheckRestored())
	require.Equal(t, []topology.ID{"front-proxy/main"}, w.record.Moved["shard/alpha"], "its URL may be another one here")
	require.Equal(t, "new", w.record.Data["shard/alpha"].Volumes["shard/alpha"])
}

// Whichever write fails, the next restore completes, and what was there is kept.
func TestRestoreContinues(t *testing.T) {
	w := newWorld(t)
	m, err := w.create().Run(t.Context())
	require.NoError(t, err)
	failed := errors.New("the machine fails")
	for lost := range 2 {
		for n := 0; ; n++ {
			w = again(t, w, lost == 1)
			writes := 0
			w.fails = func(string) error {
				if writes++; writes == n+1 {
					return failed
				}
				return nil
			}
			err := tryRestore(t, w, m.Name)
			if err == nil {
				break // there was no such write
			}
			require.ErrorIs(t, err, failed)
			if w.record.Restoring == "" {
				require.False(t, strings.Contains(w.data["shard/alpha"], "secret-of-a-workspace"),
					"nothing was restored yet")
				require.Equal(t, lost == 1, w.state == nil, "with the PKI alone, an installation would begin without data")
			}
			w.fails = nil
			require.NoError(t, tryRestore(t, w, m.Name))
			require.True(t, strings.Contains(w.data["shard/alpha"], "secret-of-a-workspace"))
			require.Empty(t, w.record.Restoring)
			require.Empty(t, w.objects)
			if lost == 0 {
				require.True(t, slices.Contains(w.aside, "present data"), "what was there is kept")
			}
		}
	}
}

// A restore that continues makes the same databases, so that it neither sends those again that are in place nor moves
// them aside. If something has run since, or the backup is restored once more, the revisions rise.
func TestRestoreContinuesWithTheSameDatabases(t *testing.T) {
	w := newWorld(t)
	m, err := w.create().Run(t.Context())
	require.NoError(t, err)
	w.data["root-shard"] = "present data"
	killed := errors.New("killed")
	interrupted := func() {
		t.Helper()
		w.fails = func(call string) error {
			if call == "place shard/alpha" {
				return killed
			}
			return nil
		}
		require.ErrorIs(t, tryRestore(t, w, m.Name), killed)
		w.fails = nil
		w.now = w.now.Add(time.Hour)
	}
	interrupted()
	first := w.data["root-shard"]
	interrupted()
	require.True(t, first == w.data["root-shard"], "the revision is the same")
	require.Len(t, w.aside, 1)
	require.Equal(t, "present data", w.aside[0])

	w.objects = []plan.Item{{Ref: plan.Ref{GroupVersionKind: schema.GroupVersionKind{Kind: "Deployment"},
		Name: "demo-root-shard"}, Component: "root-shard"}}
	interrupted()
	again := w.data["root-shard"]
	require.False(t, first == again, "the server can have reached a higher revision")
	require.NoError(t, tryRestore(t, w, m.Name))
	require.True(t, again == w.data["root-shard"], "the revision is the same")
	require.Zero(t, w.record.Stopped)

	require.NoError(t, tryRestore(t, w, m.Name))
	require.False(t, again == w.data["root-shard"], "servers may have run after the first restore")
}

// The root shard of the backup can have other URLs of the shards than it has now, also if the installation exists.
func TestRestoreOfTheRootShardMovesURLs(t *testing.T) {
	w := newWorld(t)
	m, err := w.create().Run(t.Context())
	require.NoError(t, err)
	for shard, proxies := range map[topology.ID][]topology.ID{"shard/alpha": nil, "root-shard": {"front-proxy/main"}} {
		w.record.Moved = nil
		r := w.restore(m.Name)
		r.Shards = []topology.ID{shard}
		p, err := r.Plan(t.Context())
		require.NoError(t, err)
		require.NoError(t, r.Run(t.Context(), p))
		require.Equal(t, proxies, w.record.Moved["shard/alpha"], shard)
	}
}

// What begins empty may begin with other volumes, also those of its etcd.
func TestRestoreForgetsTheVolumesOfTheCacheServer(t *testing.T) {
	w := newWorld(t)
	w.top = topologytest.Build(t, strings.Replace(sharded, "cacheServer: {}", "cacheServer: {etcd: {managed: {}}}", 1))
	m, err := w.create().Run(t.Context())
	require.NoError(t, err)
	lost := record.Data{Volumes: map[string]string{"claim": "lost"}}
	w.record.Data["cache-server"], w.record.Data["etcd/cache"] = lost, lost
	require.NoError(t, tryRestore(t, w, m.Name))
	require.NotContains(t, w.record.Data, topology.ID("cache-server"))
	require.NotContains(t, w.record.Data, topology.ID("etcd/cache"))
}

// A restore that continues with fewer shards includes those that the interrupted one has begun.
func TestRestoreContinuesWithOneShard(t *testing.T) {
	w := newWorld(t)
	m, err := w.create().Run(t.Context())
	require.NoError(t, err)
	w.lose()
	killed := errors.New("killed")
	w.fails = func(call string) error {
		if call == "place shard/alpha" {
			return killed
		}
		return nil
	}
	require.ErrorIs(t, tryRestore(t, w, m.Name), killed)
	require.Equal(t, []topology.ID{"root-shard", "shard/alpha"}, w.record.Awaiting)
	w.fails = nil
	r := w.restore(m.Name)
	r.Shards = []topology.ID{"root-shard"}
	p, err := r.Plan(t.Context())
	require.NoError(t, err)
	require.Equal(t, []topology.ID{"root-shard", "shard/alpha"}, p.Restored)
	require.NoError(t, r.Run(t.Context(), p))
	require.Empty(t, w.record.Restoring)
	require.Empty(t, w.record.Awaiting)
	require.Contains(t, w.data["shard/alpha"], "secret-of-a-workspace")
}

// If the backup cannot be used any more, another one takes its place. It replaces everything that the first one may
// have replaced, and what was there before both is kept.
func TestRestoreOfAnotherBackupAfterAnInterruption(t *testing.T) {
	w := newWorld(t)
	first, err := w.create().Run(t.Context())
	require.NoError(t, err)
	w.now = w.now.Add(time.Second)
	c := w.create()
	c.Shards = []topology.ID{"root-shard"}
	rootOnly, err := c.Run(t.Context())
	require.NoError(t, err)
	w.now = w.now.Add(time.Second)
	second, err := w.create().Run(t.Context())
	require.NoError(t, err)
	w.data["root-shard"], w.data["shard/alpha"] = "present root", "present alpha"
	killed := errors.New("killed")
	w.fails = func(call string) error {
		if call == "place shard/alpha" {
			return killed
		}
		return nil
	}
	require.ErrorIs(t, tryRestore(t, w, first.Name), killed)
	w.fails = nil

	err = tryRestore(t, w, second.Name)
	require.EqualError(t, err, "a restore of backup "+first.Name+" has not finished")
	require.Contains(t, clierr.Hint(err), "restore another one with --allow other-backup="+first.Name)
	require.ErrorContains(t, w.record.CheckWhole(), first.Name)

	r := w.restore(rootOnly.Name)
	r.Instead = []string{first.Name}
	_, err = r.Plan(t.Context())
	require.EqualError(t, err, "shard/alpha is not in the backup, and the interrupted restore of "+first.Name+
		" has begun to replace its data")

	r = w.restore(second.Name)
	r.Instead, r.Shards = []string{first.Name}, []topology.ID{"shard/alpha"}
	p, err := r.Plan(t.Context())
	require.NoError(t, err)
	require.Equal(t, []topology.ID{"root-shard", "shard/alpha"}, p.Restored, "the root shard has data of the first one")
	require.NoError(t, r.Run(t.Context(), p))
	require.Empty(t, w.record.Restoring)
	require.Empty(t, w.record.Awaiting)
	require.Subset(t, w.aside, []string{"present root", "present alpha"})

	w.record.Restoring, w.record.Serial, w.witnessed = first.Name, 3, 4
	r = w.restore(second.Name)
	r.Instead = []string{first.Name}
	_, err = r.Plan(t.Context())
	require.ErrorContains(t, err, "is older than what was applied last")
}

// A lost installation whose restore was interrupted has only the keys of that backup.
func TestRestoreOfAnotherBackupWithOtherKeys(t *testing.T) {
	w := newWorld(t)
	encrypts := func(key byte) {
		w.state.Encryption = pki.Encryption{
			Key: base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{key}, 32)), Resources: []string{"secrets"},
		}
		w.record = w.record.With(w.state, nil)
	}
	encrypts(1)
	first, err := w.create().Run(t.Context())
	require.NoError(t, err)
	encrypts(2)
	w.now = w.now.Add(time.Second)
	second, err := w.create().Run(t.Context())
	require.NoError(t, err)
	w.lose()
	w.fails = func(call string) error {
		if call == "place root-shard" {
			return errors.New("killed")
		}
		return nil
	}
	require.ErrorContains(t, tryRestore(t, w, first.Name), "killed")
	w.fails = nil
	r := w.restore(second.Name)
	r.Instead = []string{first.Name}
	_, err = r.Plan(t.Context())
	require.ErrorContains(t, err, "which the installation no longer has")
	require.Contains(t, clierr.Hint(err), "kcpctl down --purge")
	w.lose()
	require.NoError(t, tryRestore(t, w, second.Name))
}

// The restore of a lost installation that was interrupted before it had saved the PKI has restored no keys: another
// backup brings its own.
func TestRestoreOfAnotherBackupBeforeTheKeysWereSaved(t *testing.T) {
	w := newWorld(t)
	first, err := w.create().Run(t.Context())
	require.NoError(t, err)
	w.now = w.now.Add(time.Second)
	second, err := w.create().Run(t.Context())
	require.NoError(t, err)
	authorities := pki.Encode(w.state.Authorities())
	w.lose()
	w.fails = func(call string) error {
		if call == "save the PKI" {
			return errors.New("killed")
		}
		return nil
	}
	require.ErrorContains(t, tryRestore(t, w, first.Name), "killed")
	w.fails = nil
	r := w.restore(second.Name)
	r.Instead = []string{first.Name}
	p, err := r.Plan(t.Context())
	require.NoError(t, err)
	require.NoError(t, r.Run(t.Context(), p))
	require.Equal(t, authorities, pki.Encode(w.state.Authorities()))
	require.Empty(t, w.record.Restoring)
}

// What changes between the question and the answer is not overwritten.
func TestRestoreOfWhatHasChanged(t *testing.T) {
	w := newWorld(t)
	m, err := w.create().Run(t.Context())
	require.NoError(t, err)
	r := w.restore(m.Name)
	p, err := r.Plan(t.Context())
	require.NoError(t, err)
	w.record.Restoring = "demo-20200101T000000Z" // another operator's
	require.ErrorContains(t, r.Run(t.Context(), p), "another run has changed the installation in the meantime")
	require.Empty(t, w.data)
	require.Equal(t, "demo-20200101T000000Z", w.record.Restoring)
}

// again returns the world as it is before a restore: with data and servers, or lost.
func again(t *testing.T, w *world, lost bool) *world {
	t.Helper()
	next := newWorld(t)
	next.target, next.dir, next.key, next.state, next.record = w.target, w.dir, w.key, w.state, w.record
	next.record.Restoring = ""
	next.record.Awaiting = nil
	if lost {
		next.lose()
		return next
	}
	next.data["shard/alpha"] = "present data"
	next.objects = []plan.Item{{Ref: plan.Ref{GroupVersionKind: schema.GroupVersionKind{Kind: "Deployment"},
		Name: "demo-shard-alpha"}, Component: "shard/alpha"}}
	return next
}

func tryRestore(t *testing.T, w *world, name string) error {
	t.Helper()
	r := w.restore(name)
	p, err := r.Plan(t.Context())
	if err != nil {
		return err
	}
	return r.Run(t.Context(), p)
}

// Data that is encrypted is restored only where shards decrypt it.
func TestRestoreOfEncryptedData(t *testing.T) {
	w := newWorld(t)
	encrypts := func(resources ...string) {
		w.state.Encryption = pki.Encryption{
			Key: base64.StdEncoding.EncodeToString(make([]byte, 32)), Resources: resources,
		}
		w.record = w.record.With(w.state, nil)
	}
	encrypts("configmaps", "secrets")
	m, err := w.create().Run(t.Context())
	require.NoError(t, err)
	require.NoError(t, tryRestore(t, w, m.Name))

	encrypts("configmaps")
	r := w.restore(m.Name)
	_, err = r.Plan(t.Context())
	require.ErrorContains(t, err, "the backup has encrypted secrets")
	require.Contains(t, clierr.Hint(err), "spec.encryption")
	r.Topology = topologytest.Build(t, strings.Replace(sharded, "{cacheServer", "{encryption: {}, cacheServer", 1))
	_, err = r.Plan(t.Context())
	require.NoError(t, err, "shards decrypt what the setup encrypts")

	w.record.Encrypted = nil // as an earlier kcpctl has written it
	w.now = w.now.Add(time.Second)
	m, err = w.create().Run(t.Context())
	require.NoError(t, err)
	require.NoError(t, tryRestore(t, w, m.Name))
}

// While the encryption key is being rotated, data of both keys is restored: the rotation writes it again before it
// removes the previous key.
func TestRestoreInTheMiddleOfARotation(t *testing.T) {
	w := newWorld(t)
	old, next := strings.Repeat("A", 43)+"=", strings.Repeat("B", 43)+"="
	use := func(e pki.Encryption) {
		e.Resources = []string{"secrets"}
		w.state.Encryption = e
		w.record = w.record.With(w.state, nil)
	}
	use(pki.Encryption{Key: old})
	m, err := w.create().Run(t.Context())
	require.NoError(t, err)
	use(pki.Encryption{Key: next, Previous: old, Phase: pki.PhaseSwitch})
	w.data["shard/alpha"] = "present data"
	require.NoError(t, tryRestore(t, w, m.Name))
	require.Contains(t, w.data["shard/alpha"], "secret-of-a-workspace")
	require.EqualValues(t, 1, w.record.Restores, "the rotation does not end before it has written the data again")

	use(pki.Encryption{Key: next})
	require.ErrorContains(t, tryRestore(t, w, m.Name), "which the installation no longer has")
}

// Only the PKI is lost: the installation is not stopped, because it could not start again. The backup has the keys.
func TestRestoreOfAnInstallationWithoutItsPKI(t *testing.T) {
	w := newWorld(t)
	m, err := w.create().Run(t.Context())
	require.NoError(t, err)
	authorities := pki.Encode(w.state.Authorities())
	w = again(t, w, false)
	w.state = nil
	w.fails = func(call string) error { return errors.New("it must not " + call) }
	err = tryRestore(t, w, m.Name)
	require.ErrorContains(t, err, "the PKI store (memory) is empty")
	require.Contains(t, clierr.Hint(err), "kcpctl certs import BACKUP --identity FILE")
	require.Equal(t, "present data", w.data["shard/alpha"])

	state, known, err := backup.Keys(t.Context(), w.target, m, []age.Identity{w.key})
	require.NoError(t, err)
	require.Equal(t, w.record.Installation, known.Installation)
	require.Equal(t, authorities, pki.Encode(state))
	w.state, w.fails = state, nil
	require.NoError(t, tryRestore(t, w, m.Name))
}

func TestRestoreRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(t *testing.T, w *world, r *backup.Restore)
		err    string
	}{
		"another installation": {func(_ *testing.T, w *world, _ *backup.Restore) { w.record.Installation = "demo-other123" },
			"the backup is one of installation"},
		"an unknown shard": {func(_ *testing.T, _ *world, r *backup.Restore) { r.Shards = []topology.ID{"shard/beta"} },
			"shard/beta is not in the backup"},
		"no identity": {func(_ *testing.T, w *world, r *backup.Restore) {
			w.lose()
			r.Identities = nil
		}, "its keys are needed"},
		"another restore": {func(_ *testing.T, w *world, _ *backup.Restore) { w.record.Restoring = "demo-20200101T000000Z" },
			"has not finished"},
		"an old record": {func(_ *testing.T, w *world, _ *backup.Restore) {
			w.record.Serial = 3
			w.witnessed = 4
		}, "is older than what was applied last"},
		"one shard of a lost installation": {func(_ *testing.T, w *world, r *backup.Restore) {
			w.lose()
			r.Shards = []topology.ID{"shard/alpha"}
		}, "the shards without --shard would begin without data"},
		"a partial backup of a lost installation": {func(t *testing.T, w *world, r *backup.Restore) {
			c := w.create()
			c.Shards = []topology.ID{"root-shard"}
			c.Now = func() time.Time { return w.now.Add(time.Minute) }
			m, err := c.Run(t.Context())
			require.NoError(t, err)
			w.lose()
			r.Name = m.Name
		}, "the backup has no data of shard/alpha: it was not selected"},
		"a backup of an earlier kcpctl, which does not say that it lacks a shard": {func(t *testing.T, w *world, r *backup.Restore) {
			w.record.Data["shard/alpha"] = record.Data{}
			m, err := w.create().Run(t.Context())
			require.NoError(t, err)
			m.Databases = m.Databases[:1]
			delete(m.Files, archive.DatabaseFile("shard/alpha"))
			require.NoError(t, m.Write(t.Context(), w.target))
			w.lose()
			r.Name = m.Name
		}, "the backup has no data of shard/alpha: its setup file did not have the shard"},
		"a copy on this machine with workloads": {func(t *testing.T, w *world, r *backup.Restore) {
			w.lose()
			w.elsewhere = true
			r.Topology = topologytest.BuildLocal(t, strings.Replace(sharded, "{cacheServer",
				"{workloads: {clusters: [{name: c1, context: eu}]}, cacheServer", 1))
		}, "the setup file has workloads/controller, cluster/c1"},
		"a copy on other clusters with workloads": {func(t *testing.T, w *world, r *backup.Restore) {
			w.lose()
			w.elsewhere = true
			r.Topology = withWorkloads(t)
		}, "may still run there: this one would take over workloads/controller, cluster/c1"},
		"data that cannot be replaced": {func(_ *testing.T, w *world, _ *backup.Restore) {
			w.refused = map[topology.ID]string{"shard/alpha": "it has an external etcd", "cache-server": "it is away"}
		}, "it has an external etcd\nit is away"},
		"a shard that the setup file lacks, of a lost installation": {func(t *testing.T, w *world, r *backup.Restore) {
			w.lose()
			r.Topology = topologytest.Build(t, topologytest.Header+"spec: {cacheServer: {}}\n")
		}, "shard/alpha is in the backup, and not in the setup file"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			m, err := w.create().Run(t.Context())
			require.NoError(t, err)
			r := w.restore(m.Name)
			tc.change(t, w, r)
			_, err = r.Plan(t.Context())
			require.ErrorContains(t, err, tc.err)
			require.Empty(t, w.data)
		})
	}
}

func withWorkloads(t *testing.T) *topology.Topology {
	t.Helper()
	return topologytest.Build(t, strings.Replace(sharded, "{cacheServer", "{workloads: {clusters: [{name: c1, context: eu}]}, cacheServer", 1))
}

// A restore in another place says what follows it instead of the original.
func TestRestoreInAnotherPlace(t *testing.T) {
	w := newWorld(t)
	m, err := w.create().Run(t.Context())
	require.NoError(t, err)
	w.lose()
	w.elsewhere = true
	r := w.restore(m.Name)
	p, err := r.Plan(t.Context())
	require.NoError(t, err, "without agents and workloads, it changes nothing elsewhere")
	require.Empty(t, p.TakenOver)
	r.Topology, r.OriginalLost = withWorkloads(t), true
	p, err = r.Plan(t.Context())
	require.NoError(t, err)
	require.Equal(t, []topology.ID{"workloads/controller", "cluster/c1"}, p.TakenOver)
	w.elsewhere, r.OriginalLost = false, false
	p, err = r.Plan(t.Context())
	require.NoError(t, err)
	require.Empty(t, p.TakenOver)
}
