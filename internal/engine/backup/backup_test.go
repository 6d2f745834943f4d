package backup_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/backup"
	"github.com/kcpctl/kcpctl/internal/engine/backup/archive"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil/etcdfile"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeetcd"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

func TestCreate(t *testing.T) {
	w := newWorld(t)
	m, err := w.create().Run(t.Context())
	require.NoError(t, err)
	require.Empty(t, m.Tears)
	require.Empty(t, m.Partial)
	require.Equal(t, w.record.Installation, m.Installation)
	require.Len(t, m.Databases, 2)
	require.Equal(t, topology.ID("root-shard"), m.Databases[0].Component)
	require.Equal(t, int64(4), m.Databases[0].Revision)
	require.Equal(t, 3, m.Databases[0].Keys)
	require.Equal(t, 1, m.Databases[1].LogicalClusters)
	require.Equal(t, []string{
		m.Name + "/etcd/root-shard.db.gz", m.Name + "/etcd/shard-alpha.db.gz", m.Name + "/installation.json",
		m.Name + "/keys.tar.age",
		m.Name + "/manifest.json", m.Name + "/setup.yaml",
	}, names(w.files(t)), "and nothing that is not part of it")
	require.Equal(t, &backup.Verified{Manifest: m}, clean(w.verify(t, m.Name)))

	second, err := w.create().Run(t.Context())
	require.NoError(t, err, "in the same second")
	require.Equal(t, m.Created, second.Created)
	require.NotEqual(t, m.Name, second.Name)
}

// clean makes the results of two readings comparable.
func clean(v *backup.Verified) *backup.Verified {
	for i := range v.Manifest.Databases {
		v.Manifest.Databases[i].Began = v.Manifest.Databases[i].Began.Local().UTC()
	}
	if len(v.Manifest.Partial) == 0 {
		v.Manifest.Partial = map[string]string{}
	}
	return v
}

// Without its record, an installation that runs is not backed up, and the error says how to get the record back.
func TestCreateSaysThatTheRecordIsLost(t *testing.T) {
	w := newWorld(t)
	w.record = &record.Record{}
	_, err := w.create().Run(t.Context())
	require.ErrorContains(t, err, "nothing was applied yet")
	w.objects = []plan.Item{{Component: "root-shard", Ref: plan.Ref{Name: "demo-root"}}}
	_, err = w.create().Run(t.Context())
	require.ErrorContains(t, err, `kcp "demo" is deployed (1 object), and the record of its installation does not exist`)
}

// No private key and nothing of the PKI is readable in a backup, and only its owner can read what is.
func TestKeysAreEncrypted(t *testing.T) {
	w := newWorld(t)
	m, err := w.create().Run(t.Context())
	require.NoError(t, err)
	for name, raw := range w.files(t) {
		require.NotContains(t, string(raw), "PRIVATE KEY", name)
		info, err := os.Stat(filepath.Join(w.dir, "backups", name))
		require.NoError(t, err)
		require.Equal(t, fs.FileMode(0o600), info.Mode().Perm(), name)
	}
	sealed := w.files(t)[m.Name+"/"+archive.FileKeys]
	_, err = archive.Unseal(bytes.NewReader(sealed), nil)
	require.Error(t, err)

	open := w.create()
	open.Recipients = nil
	_, err = open.Run(t.Context())
	require.Equal(t, clierr.BadInput, clierr.Code(err))
	require.ErrorContains(t, err, "no recipient to encrypt them to")
	open.WithoutKeys, w.now = true, w.now.Add(time.Second)
	m, err = open.Run(t.Context())
	require.NoError(t, err)
	require.NotContains(t, m.Files, archive.FileKeys)
}

// What can be saved is saved, and the rest is named.
func TestPartial(t *testing.T) {
	w := newWorld(t)
	w.etcds["etcd/alpha"].Stop(0)
	m, err := w.create().Run(t.Context())
	require.ErrorContains(t, err, "shard/alpha is not in the backup")
	require.Equal(t, clierr.Unknown, clierr.Code(err), "a job does not repeat it")
	require.Contains(t, m.Partial, "alpha")
	require.Len(t, m.Databases, 1)
	v := w.verify(t, m.Name)
	require.Empty(t, v.Damage)
	require.Empty(t, v.Tears, "a Workspace can be on the shard that is missing")

	w.etcds["etcd/root"].Stop(0)
	w.now = w.now.Add(time.Second)
	before := names(w.files(t))
	_, err = w.create().Run(t.Context())
	require.ErrorContains(t, err, "no shard has given a snapshot")
	require.Equal(t, before, names(w.files(t)))
}

// While a shard cannot be read, partial backups do not fill the target, and displace none that has all shards.
func TestPartialBackupsArePruned(t *testing.T) {
	w := newWorld(t)
	taken := func() string {
		t.Helper()
		c := w.create()
		c.Keep = backup.Keep{Last: 2}
		m, err := c.Run(t.Context())
		require.Equal(t, len(m.Partial) > 0, err != nil, err)
		w.now = w.now.Add(24 * time.Hour)
		return m.Name
	}
	var all []string
	for range 3 {
		all = append(all, taken())
	}
	w.etcds["etcd/alpha"].Stop(0)
	for range 4 {
		all = append(all, taken())
	}
	found, err := archive.List(t.Context(), w.target)
	require.NoError(t, err)
	var kept []string
	for _, m := range found.Complete {
		kept = append(kept, m.Name)
	}
	require.Equal(t, []string{all[1], all[2], all[5], all[6]}, kept)
	last := w.events[len(w.events)-1]
	require.Equal(t, []string{"prune", "deleted " + all[4]}, []string{last.Name, last.Message})

	failed := w.create()
	failed.Keep = backup.Keep{Last: 1}
	w.etcds["etcd/root"].Stop(0)
	before := names(w.files(t))
	_, err = failed.Run(t.Context())
	require.ErrorContains(t, err, "no shard has given a snapshot")
	require.Equal(t, before, names(w.files(t)), "nothing was written, so nothing is deleted")
}

// A setup file that is older than what was applied lacks shards and has another release of kcp. The record knows them.
func TestSetupFileIsOlderThanTheInstallation(t *testing.T) {
	w := newWorld(t)
	w.record.Data["root-shard"] = record.Data{Release: "v0.99.0"}
	w.record.Data["shard/beta"] = record.Data{}
	w.record.Data["shard/gone"] = record.Data{Removed: true}
	m, err := w.create().Run(t.Context())
	require.ErrorContains(t, err, "shard/beta is not in the backup: the setup file does not have it")
	require.Len(t, m.Databases, 2, "the others are saved")
	require.Equal(t, []string{"beta"}, slices.Collect(maps.Keys(m.Partial)))
	require.False(t, m.Complete())
	require.Equal(t, "v0.99.0", m.Databases[0].Kcp, "the release that has written the data")
	require.Equal(t, w.top.Component("shard/alpha").Version, m.Databases[1].Kcp, "the record does not know one")

	c := w.create()
	c.Shards = []topology.ID{"root-shard"}
	m, err = c.Run(t.Context())
	require.NoError(t, err, "it was not to have the others")
	require.Contains(t, m.Partial, "beta")
}

// A backup of a machine whose clock was ahead is the newest for long, and the new one is kept nevertheless.
func TestPruneKeepsTheNewBackup(t *testing.T) {
	w := newWorld(t)
	now := w.now
	w.now = now.AddDate(1, 0, 0)
	ahead, err := w.create().Run(t.Context())
	require.NoError(t, err)
	w.now = now
	c := w.create()
	c.Keep = backup.Keep{Last: 1}
	m, err := c.Run(t.Context())
	require.NoError(t, err)
	found, err := archive.List(t.Context(), w.target)
	require.NoError(t, err)
	require.Len(t, found.Complete, 2)
	require.Equal(t, []string{m.Name, ahead.Name}, []string{found.Complete[0].Name, found.Complete[1].Name})
}

// A copy of backups that was interrupted has a manifest without the files: it displaces no backup that is whole.
func TestABackupWithoutItsFilesDisplacesNone(t *testing.T) {
	w := newWorld(t)
	whole, err := w.create().Run(t.Context())
	require.NoError(t, err)
	w.now = w.now.Add(24 * time.Hour)
	copied, err := w.create().Run(t.Context())
	require.NoError(t, err)
	file := copied.Databases[1].File
	path := filepath.Join(w.dir, "backups", copied.Name, file)
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	for why, change := range map[string]func() error{
		"damaged: " + file + " is missing": func() error { return os.Remove(path) },
		fmt.Sprintf("damaged: %s has 10 bytes instead of %d", file, len(raw)): func() error {
			return os.WriteFile(path, raw[:10], 0o600)
		},
	} {
		require.NoError(t, change())
		found, err := archive.List(t.Context(), w.target)
		require.NoError(t, err)
		require.EqualError(t, found.Unusable[copied.Name], why)
		require.Len(t, found.Complete, 1)
		require.Equal(t, whole.Name, found.Complete[0].Name)
		require.Empty(t, backup.Prunable(found.Complete, backup.Keep{Last: 1}, w.now))
	}
}

// A stream that breaks, and a target that fails, leave no backup.
func TestInterrupted(t *testing.T) {
	w := newWorld(t)
	raw := etcdfile.Snapshot(t, rootVersions()...)
	w.etcds["etcd/root"].SetSnapshot(raw, 8<<10)
	w.etcds["etcd/alpha"].SetSnapshot(raw, 8<<10)
	_, err := w.create().Run(t.Context())
	require.ErrorContains(t, err, "no shard has given a snapshot")
	found, err := archive.List(t.Context(), w.target)
	require.NoError(t, err)
	require.Empty(t, found.Complete)
	require.Empty(t, found.Unusable)

	w = newWorld(t)
	full := errors.New("no space left on device")
	c := w.create()
	c.Target = failingTarget{w.target, archive.FileRecord, full}
	_, err = c.Run(t.Context())
	require.ErrorIs(t, err, full)
	require.Empty(t, w.files(t), "it removes what it has written")

	const killed = "demo-20261126T012016Z-abcde"
	require.NoError(t, w.target.Put(t.Context(), killed+"/"+archive.FileRecord, strings.NewReader("{}")))
	found, err = archive.List(t.Context(), w.target)
	require.NoError(t, err)
	require.Empty(t, found.Complete)
	require.Contains(t, found.Unusable, killed, "it has no manifest")
	_, err = (&backup.Verify{Target: w.target, Name: killed}).Run(t.Context())
	require.ErrorContains(t, err, "has no complete backup")
}

// Every change of every file is noticed.
func TestDamage(t *testing.T) {
	w := newWorld(t)
	m, err := w.create().Run(t.Context())
	require.NoError(t, err)
	for name, raw := range w.files(t) {
		path := filepath.Join(w.dir, "backups", name)
		for what, change := range map[string]func() error{
			"a bit is flipped": func() error { return os.WriteFile(path, flip(raw), 0o600) },
			"the end is gone":  func() error { return os.WriteFile(path, raw[:len(raw)-3], 0o600) },
			"it is gone":       func() error { return os.Remove(path) },
		} {
			if strings.HasSuffix(name, archive.FileManifest) && what != "the end is gone" {
				continue // the manifest describes the others
			}
			t.Run(name+": "+what, func(t *testing.T) {
				t.Cleanup(func() { require.NoError(t, os.WriteFile(path, raw, 0o600)) })
				require.NoError(t, change())
				require.NotEmpty(t, w.verify(t, m.Name).Damage)
				_, err := w.restore(m.Name).Plan(t.Context())
				require.ErrorContains(t, err, "damaged")
			})
		}
	}
	require.Empty(t, w.verify(t, m.Name).Damage)
}

func flip(raw []byte) []byte {
	out := bytes.Clone(raw)
	out[len(out)/2] ^= 1
	return out
}

func TestVerifyNamesWhatIsTorn(t *testing.T) {
	w := newWorld(t)
	w.etcds["etcd/root"].SetSnapshot(etcdfile.Snapshot(t, rootVersions()[:2]...), 0)
	m, err := w.create().Run(t.Context())
	require.NoError(t, err)
	v := w.verify(t, m.Name)
	require.Equal(t, m.Tears, v.Tears)
	require.Len(t, v.Tears, 1)
	require.Equal(t, "root:team", v.Tears[0].Path)
}

func TestPrunable(t *testing.T) {
	now := time.Date(2026, 11, 26, 0, 0, 0, 0, time.UTC)
	all := func(ages ...int) []*archive.Manifest { // negative: partial
		var out []*archive.Manifest
		for _, days := range ages {
			m := &archive.Manifest{Created: now.Add(-time.Duration(max(days, -days)) * 24 * time.Hour)}
			if days < 0 {
				m.Partial = map[string]string{"alpha": "lost"}
			}
			out = append(out, m)
		}
		return out
	}
	for name, tc := range map[string]struct {
		ages []int
		keep backup.Keep
		want []int
	}{
		"the newest": {[]int{3, 2, 1}, backup.Keep{Last: 2}, []int{3}},
		"and the younger": {[]int{30, 10, 2, 1},
			backup.Keep{Last: 1, Within: 14 * 24 * time.Hour}, []int{30}},
		"one is always kept":               {[]int{100}, backup.Keep{Within: time.Hour}, nil},
		"a partial one replaces no other":  {[]int{3, 2, -1}, backup.Keep{Last: 1}, []int{3}},
		"partial ones are all there is":    {[]int{-4, -3, -2}, backup.Keep{Last: 2}, []int{4}},
		"the others are older":             {[]int{5, 4, -3, -2, -1}, backup.Keep{Last: 2}, []int{3}},
		"an old partial one is not needed": {[]int{-3, 2}, backup.Keep{Last: 1}, []int{3}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []int
			for _, m := range backup.Prunable(all(tc.ages...), tc.keep, now) {
				got = append(got, int(now.Sub(m.Created).Hours()/24))
			}
			require.Equal(t, tc.want, got)
		})
	}
}

// A partial backup does not replace one with other shards.
func TestPrunableKeepsEachShard(t *testing.T) {
	now := time.Date(2026, 11, 26, 0, 0, 0, 0, time.UTC)
	var all []*archive.Manifest
	for i, lacks := range []string{"alpha", "beta", "alpha"} {
		all = append(all, &archive.Manifest{
			Created: now.Add(time.Duration(i) * time.Hour), Partial: map[string]string{lacks: "lost"},
		})
	}
	require.Equal(t, all[:1], backup.Prunable(all, backup.Keep{Last: 1}, now))
}

// The backups of an installation do not count among those of another one.
func TestPrunableKeepsEachInstallation(t *testing.T) {
	now := time.Date(2026, 11, 26, 0, 0, 0, 0, time.UTC)
	var all []*archive.Manifest
	for i, installation := range []string{"a", "b", "a", "a"} {
		all = append(all, &archive.Manifest{Installation: installation, Created: now.Add(time.Duration(i) * time.Hour)})
	}
	require.Equal(t, []*archive.Manifest{all[0], all[2]}, backup.Prunable(all, backup.Keep{Last: 1}, now))
}

// Where an etcd had no majority, a newer snapshot can have less than an older one.
func TestPrunableKeepsWhatHasTheLastWrites(t *testing.T) {
	now := time.Date(2026, 11, 26, 0, 0, 0, 0, time.UTC)
	var all []*archive.Manifest
	const none = "etcd/alpha has no majority"
	for i, doubt := range []string{"", "", none, none, none} {
		all = append(all, &archive.Manifest{
			Created: now.Add(time.Duration(i) * time.Hour), Recipients: []string{"age1"},
			Databases: []archive.Database{{Shard: "root"}, {Shard: "alpha", Doubt: doubt}},
		})
	}
	require.Equal(t, all[2:3], backup.Prunable(all, backup.Keep{Last: 2}, now))
}

// The manifest says that the last writes may be missing.
func TestBackupWithoutAMajority(t *testing.T) {
	w := newWorld(t)
	w.top = topologytest.Build(t, strings.Replace(sharded, "cacheServer: {}", "etcd: {managed: {replicas: 3}}, cacheServer: {}", 1))
	for id := range w.etcds {
		w.etcds[id] = fakeetcd.New(t, w.top.Component(id), w.state)
	}
	w.etcds["etcd/root"].SetSnapshot(etcdfile.Snapshot(t, rootVersions()...), 0)
	w.etcds["etcd/alpha"].SetSnapshot(etcdfile.Snapshot(t, alphaVersions()...), 0)
	w.etcds["etcd/alpha"].Stop(0)
	w.etcds["etcd/alpha"].Stop(1)
	m, err := w.create().Run(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"alpha: etcd/alpha has no majority: demo-etcd-alpha-2 may lack the last writes"}, m.Doubtful())
	require.False(t, m.Complete())
}

// Newer backups without keys never displace the newest one that can bring back the installation.
func TestPrunableKeepsKeys(t *testing.T) {
	now := time.Date(2026, 11, 26, 0, 0, 0, 0, time.UTC)
	backups := func(keyed ...bool) (out []*archive.Manifest) { // the oldest first
		for i, keys := range keyed {
			m := &archive.Manifest{Created: now.Add(time.Duration(i-len(keyed)) * time.Hour)}
			if keys {
				m.Recipients = []string{"age1"}
			}
			out = append(out, m)
		}
		return out
	}
	all := backups(true, true, false, false)
	require.Equal(t, []*archive.Manifest{all[0], all[2]}, backup.Prunable(all, backup.Keep{Last: 1}, now))
	all = backups(true, false, true)
	require.Equal(t, all[:2], backup.Prunable(all, backup.Keep{Last: 1}, now), "one is enough")
	all[0].Partial = map[string]string{"alpha": "lost"}
	all[2].Recipients = nil
	require.Equal(t, all[:2], backup.Prunable(all, backup.Keep{Last: 1}, now), "a partial one cannot")
}
