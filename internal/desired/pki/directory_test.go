package pki

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// testDisk changes a directory like osDisk, but does not wait for the disk: tests do not lose power.
type testDisk struct {
	osDisk
	root string
	// before is called before each change. If it fails, the change does not happen.
	before func(change string) error
	// synced are the files and directories that are on the disk when a step returns.
	synced []string
}

func (d *testDisk) change(op, path string, do func() error) error {
	if d.before != nil {
		rel, err := filepath.Rel(d.root, path)
		if err != nil {
			return err
		}
		if err := d.before(op + " " + filepath.ToSlash(rel)); err != nil {
			return err
		}
	}
	return do()
}

func (d *testDisk) create(path string, data []byte, sync bool) error {
	if sync {
		d.synced = append(d.synced, path)
	}
	return d.change("create", path, func() error { return d.osDisk.create(path, data, false) })
}

func (d *testDisk) rename(from, to string) error {
	return d.change("rename", from, func() error { return d.osDisk.rename(from, to) })
}

func (d *testDisk) removeAll(path string) error {
	return d.change("remove", path, func() error { return d.osDisk.removeAll(path) })
}

func (d *testDisk) syncDirs(dirs ...string) error {
	d.synced = append(d.synced, dirs...)
	return nil
}

func load(t *testing.T, dir string) (*Directory, *State) {
	t.Helper()
	d := DirectoryStore(dir)
	d.disk = &testDisk{root: dir}
	s, err := d.Load(t.Context())
	require.NoError(t, err)
	return d, s
}

func save(t *testing.T, dir string, s *State) {
	t.Helper()
	d, _ := load(t, dir)
	require.NoError(t, d.Save(t.Context(), s))
}

func TestDirectoryKeepsEverything(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	d, s := load(t, dir)
	require.Empty(t, s.CAs)
	require.NoDirExists(t, dir, "reading makes nothing")

	tp := topologytest.Build(t, full)
	want := ensure(t, tp, s, now()).State
	want.CAs[topology.ServerCA] = Authority{Pair: want.CAs[topology.ServerCA].Pair, Bundle: want.CAs[topology.ClientCA].Cert}
	want.Leaves[LeafKey{Secret: "demo-root-server"}] = want.Leaves[find(t, tp, "demo-root-server").Key()] // of this machine
	require.NoError(t, d.Save(t.Context(), want))
	_, got := load(t, dir)
	require.Empty(t, diff(want, got))
	require.NoError(t, prove(tp, got, now()))

	for _, f := range []string{
		"ca/server.crt", "ca/server.key", "ca/server.bundle", "service-account/sa.key", "service-account/sa.pub",
		"leaves/us/demo-shard-beta-server.crt", "leaves/us/demo-shard-beta-server.key", "leaves/_/demo-root-server.key",
	} {
		info, err := os.Stat(filepath.Join(dir, f))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), f)
	}
	info, err := os.Stat(dir)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	require.Equal(t, "directory "+dir, d.String())
}

func TestDirectoryWritesOnlyWhatChanged(t *testing.T) {
	dir := t.TempDir()
	tp, s := issued(t, "")
	save(t, dir, s)
	var steps []string
	d, s := load(t, dir)
	d.disk.(*testDisk).before = func(change string) error { steps = append(steps, change); return nil }
	require.NoError(t, d.Save(t.Context(), s))
	require.Empty(t, steps)

	delete(s.Leaves, find(t, tp, "demo-root-server").Key())
	require.NoError(t, d.Save(t.Context(), ensure(t, tp, s, now()).State))
	require.Equal(t, []string{
		"remove .saving",
		"create .saving/leaves/default/demo-root-server.crt", "create .saving/leaves/default/demo-root-server.key", "rename .saving",
		"rename .saved/leaves/default/demo-root-server.crt", "rename .saved/leaves/default/demo-root-server.key", "remove .saved",
	}, steps)
}

// A machine that loses power loses no authority. Certificates can be issued again, and there are many of them.
func TestDirectorySyncsWhatCannotBeIssuedAgain(t *testing.T) {
	dir := t.TempDir()
	_, s := issued(t, "")
	d, _ := load(t, dir)
	require.NoError(t, d.Save(t.Context(), s))
	synced := d.disk.(*testDisk).synced
	for name, data := range encodeFiles(s) {
		file := filepath.Join(dir, dirStaging, filepath.FromSlash(name))
		if isLeaf(name) {
			require.NotContains(t, synced, file)
			continue
		}
		if len(data) == 0 {
			continue // no bundle
		}
		require.Contains(t, synced, file)
		require.Contains(t, synced, filepath.Dir(file))
	}
	require.Equal(t, dir, synced[len(synced)-1], "the journal")
}

func TestDirectoryDropsTheBundleOfARotation(t *testing.T) {
	dir := t.TempDir()
	_, s := issued(t, "")
	s.CAs[topology.ServerCA] = Authority{Pair: s.CAs[topology.ServerCA].Pair, Bundle: s.CAs[topology.ClientCA].Cert}
	save(t, dir, s)
	s.CAs[topology.ServerCA] = Authority{Pair: s.CAs[topology.ServerCA].Pair}
	save(t, dir, s)
	_, got := load(t, dir)
	require.Empty(t, got.CAs[topology.ServerCA].Bundle)
}

var errCrash = errors.New("crash")

// Whenever a save dies, the next run finds all of it or nothing of it, and goes on.
func TestDirectorySurvivesACrashAtEveryStep(t *testing.T) {
	tp, theirs := issued(t, "spec: {encryption: {}, etcd: {embedded: {}}}")
	empty := &State{CAs: map[topology.CA]Authority{}, Leaves: map[LeafKey]Pair{}}
	imported := &State{CAs: map[topology.CA]Authority{topology.ClientCA: theirs.CAs[topology.ClientCA]}, Leaves: map[LeafKey]Pair{}}
	rotating := rotate(t, tp, theirs)
	for name, tc := range map[string]struct{ before, after *State }{
		"first save":         {before: empty, after: ensure(t, tp, empty, now()).State},
		"imported authority": {before: imported, after: ensure(t, tp, imported, now()).State},
		"renewal":            {before: theirs, after: ensure(t, tp, theirs, now().Add(8700*time.Hour)).State},
		"rotation":           {before: rotating, after: rotate(t, tp, rotating)},
	} {
		t.Run(name, func(t *testing.T) {
			crashes := 0
			for ; ; crashes++ {
				dir := filepath.Join(t.TempDir(), "pki")
				before, after := few(tc.before), few(tc.after)
				save(t, dir, before)
				found := saveAndCrash(t, dir, after, crashes)
				if found == nil {
					break
				}
				if diff(after, found) != "" {
					require.Empty(t, diff(before, found), "neither before nor after the save")
				}
				save(t, dir, after)
				_, final := load(t, dir)
				require.Empty(t, diff(after, final))
				require.NoDirExists(t, filepath.Join(dir, dirJournal))
			}
			require.Greater(t, crashes, 10)
		})
	}
}

// few is a state with two of its leaves: each is saved as the next, and disks are slow.
func few(s *State) *State {
	out := s.clone()
	maps.DeleteFunc(out.Leaves, func(k LeafKey, _ Pair) bool { return k.Secret != "demo-root-server" && k.Secret != "demo-root-client" })
	return out
}

// saveAndCrash saves until step n and returns what the next run finds, or nil if the save has no such step.
func saveAndCrash(t *testing.T, dir string, s *State, n int) *State {
	t.Helper()
	d, _ := load(t, dir)
	d.disk.(*testDisk).before = func(string) error {
		if n--; n < 0 {
			return errCrash
		}
		return nil
	}
	err := d.Save(t.Context(), s)
	if err == nil {
		return nil
	}
	require.ErrorIs(t, err, errCrash)
	_, found := load(t, dir)
	return found
}

func TestDirectoryRefusesToReplace(t *testing.T) {
	_, one := issued(t, "")
	_, two := issued(t, "")
	for name, first := range map[string]func(t *testing.T, dir string) *Directory{
		"never loaded": func(t *testing.T, dir string) *Directory {
			save(t, dir, one)
			return DirectoryStore(dir)
		},
		"loaded before the other run saved": func(t *testing.T, dir string) *Directory {
			d, _ := load(t, dir)
			save(t, dir, one)
			return d
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			err := first(t, dir).Save(t.Context(), two)
			require.ErrorIs(t, err, ErrChanged)
			require.Equal(t, clierr.Conflict, clierr.Code(err))
			_, got := load(t, dir)
			require.Empty(t, diff(one, got))
		})
	}
}

// Saves do not wait until certificates are on the disk: after a power failure their files can be empty.
func TestEmptyLeavesAreIssuedAgain(t *testing.T) {
	tp, s := issued(t, "")
	for name, empty := range map[string][]string{"both": {".crt", ".key"}, "certificate": {".crt"}, "key": {".key"}} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, DirectoryStore(dir).Save(t.Context(), s))
			for _, ext := range empty {
				require.NoError(t, os.Truncate(filepath.Join(dir, "leaves/default/demo-root-client"+ext), 0))
			}
			store := DirectoryStore(dir)
			loaded, err := store.Load(t.Context())
			require.NoError(t, err)
			r := ensure(t, tp, loaded, now())
			require.Len(t, r.Changes, 1)
			require.Equal(t, "it is missing", r.Changes[0].Reason)
			require.NoError(t, store.Save(t.Context(), r.State))
			again, err := DirectoryStore(dir).Load(t.Context())
			require.NoError(t, err)
			require.Equal(t, r.State.Leaves, again.Leaves)
		})
	}
}

func TestDirectoryRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(t *testing.T, dir string)
		want   string
	}{
		"key that others can read": {
			change: func(t *testing.T, dir string) { require.NoError(t, os.Chmod(dir+"/ca/client.key", 0o640)) },
			want:   "client.key (mode 0640)",
		},
		"leaf's key that others can read": {
			change: func(t *testing.T, dir string) {
				require.NoError(t, os.Chmod(dir+"/leaves/default/demo-root-client.key", 0o604))
			},
			want: "demo-root-client.key (mode 0604)",
		},
		"authority's certificate gone": {
			change: func(t *testing.T, dir string) { require.NoError(t, os.Remove(dir+"/ca/client.crt")) },
			want:   "the client CA: a key or a bundle exists, but no certificate",
		},
		"key of another authority": {
			change: func(t *testing.T, dir string) {
				require.NoError(t, os.Rename(dir+"/ca/server.key", dir+"/ca/client.key"))
			},
			want: "the client CA: the private key does not belong to the certificate",
		},
		"half a leaf": {
			change: func(t *testing.T, dir string) {
				require.NoError(t, os.Remove(dir+"/leaves/default/demo-root-client.key"))
			},
			want: "demo-root-client: the certificate or the key is missing",
		},
		"service-account key gone": {
			change: func(t *testing.T, dir string) { require.NoError(t, os.Remove(dir+"/service-account/sa.key")) },
			want:   "the service-account keys: a public key exists, but no private key",
		},
		"unknown authority": {
			change: func(t *testing.T, dir string) {
				require.NoError(t, os.Rename(dir+"/ca/client.crt", dir+"/ca/clients.crt"))
			},
			want: "the client CA: a key or a bundle exists, but no certificate",
		},
		"unknown file": {
			change: func(t *testing.T, dir string) {
				require.NoError(t, os.WriteFile(dir+"/ca/clients.crt", nil, 0o600))
			},
			want: `"clients-ca.crt" is not part of a PKI`,
		},
		"dangling link": {
			change: func(t *testing.T, dir string) {
				require.NoError(t, os.Remove(dir+"/ca/client.crt"))
				require.NoError(t, os.Symlink("/nowhere", dir+"/ca/client.crt"))
			},
			want: "no such file or directory",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			_, s := issued(t, "")
			save(t, dir, s)
			tc.change(t, dir)
			d := DirectoryStore(dir)
			_, err := d.Load(t.Context())
			require.ErrorContains(t, err, tc.want)
			_, other := issued(t, "")
			require.Error(t, d.Save(t.Context(), other), "nothing is replaced")
		})
	}
}

func TestDirectoryUsesBroughtAuthorities(t *testing.T) {
	_, theirs := issued(t, "")
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "ca"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ca", "server.crt"), theirs.CAs[topology.ServerCA].Cert, 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ca", "server.key"), theirs.CAs[topology.ServerCA].Key, 0o600))
	tp := topologytest.Build(t, "")
	d, s := load(t, dir)
	r := ensure(t, tp, s, now())
	require.Equal(t, []topology.CA{topology.ClientCA, topology.RequestHeaderCA, topology.EtcdCA}, r.CAs)
	require.NoError(t, d.Save(t.Context(), r.State))
	_, got := load(t, dir)
	require.Equal(t, theirs.CAs[topology.ServerCA], got.CAs[topology.ServerCA])
	require.NoError(t, prove(tp, got, now()))
}

func TestDirectoryStopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := DirectoryStore(t.TempDir()).Load(ctx)
	require.ErrorIs(t, err, context.Canceled)
}

// In a directory that others can write, subdirectories can be replaced whatever their own mode is.
func TestDirectoryThatOthersCanWrite(t *testing.T) {
	for _, mode := range []os.FileMode{0o777, 0o720} {
		dir := t.TempDir()
		require.NoError(t, os.Chmod(dir, mode))
		store := DirectoryStore(dir)
		_, err := store.Load(t.Context())
		require.ErrorContains(t, err, "other users can replace the keys in "+dir)
		require.Equal(t, "run chmod go-w "+dir, clierr.Hint(err))
		require.NoError(t, os.Chmod(dir, 0o700))
		_, err = store.Load(t.Context())
		require.NoError(t, err)
	}
}
