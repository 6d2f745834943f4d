package database_test

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"

	"github.com/kcpctl/kcpctl/internal/client/etcd/database"
	"github.com/kcpctl/kcpctl/internal/testutil/etcdfile"
)

func versions() []etcdfile.Version {
	return []etcdfile.Version{
		{Key: "/a", Value: "1"}, {Key: "/b", Value: "2"}, {Key: "/a", Value: "3"}, {Key: "/b", Deleted: true},
		{Key: "/other", Value: "4"},
	}
}

func write(t *testing.T, raw []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db")
	require.NoError(t, os.WriteFile(path, raw, 0o600))
	return path
}

func TestRead(t *testing.T) {
	path := write(t, etcdfile.Snapshot(t, versions()...))
	require.NoError(t, database.VerifySum(path))
	f, err := database.Open(path)
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, f.Check())
	var got []etcdfile.Version
	size, err := f.Read(
		func(key []byte) bool { return string(key) != "/other" },
		func(key, value []byte, deleted bool) error {
			got = append(got, etcdfile.Version{Key: string(key), Value: string(value), Deleted: deleted})
			return nil
		})
	require.NoError(t, err)
	require.Equal(t, versions()[:4], got)
	require.Equal(t, database.Size{Revision: 6, Keys: 2}, size)
}

func TestDamage(t *testing.T) {
	raw := etcdfile.Snapshot(t, versions()...)
	flipped := append([]byte(nil), raw...)
	flipped[len(raw)/2] ^= 1
	for name, data := range map[string][]byte{"a bit": flipped, "the end is missing": raw[:len(raw)/2], "empty": {}, "text": []byte("not a database")} {
		t.Run(name, func(t *testing.T) {
			require.ErrorIs(t, database.VerifySum(write(t, data)), database.ErrDamaged)
		})
	}
	_, err := database.Open(write(t, make([]byte, 1<<15)))
	require.ErrorIs(t, err, database.ErrDamaged)
}

// A prepared database has no members and no log, and its revision is higher than any that the old etcd reached.
func TestPrepare(t *testing.T) {
	path := write(t, etcdfile.Snapshot(t, versions()...))
	now := time.Date(2026, 11, 26, 0, 0, 0, 0, time.UTC)
	require.NoError(t, database.Prepare(path, now))
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true})
	require.NoError(t, err)
	require.NoError(t, db.View(func(tx *bolt.Tx) error {
		meta := tx.Bucket([]byte("meta"))
		for _, key := range []string{"consistent_index", "term", "confState"} {
			require.Nil(t, meta.Get([]byte(key)), key)
		}
		require.Equal(t, uint64(now.UnixMicro()),
			binary.BigEndian.Uint64(meta.Get([]byte("scheduledCompactRev"))))
		first, _ := tx.Bucket([]byte("members")).Cursor().First()
		require.Nil(t, first)
		require.NotNil(t, tx.Bucket([]byte("members_removed")))
		return nil
	}))
	require.NoError(t, db.Close())
	f, err := database.Open(path)
	require.NoError(t, err)
	defer f.Close()
	size, err := f.Read(func([]byte) bool { return false }, nil)
	require.NoError(t, err)
	require.Equal(t, database.Size{Revision: now.UnixMicro(), Keys: 2}, size)
}

// A second restore, also of an older backup, begins above what the etcd of the first one has reached.
func TestPrepareAgain(t *testing.T) {
	prepared := func(path string, now time.Time) int64 {
		require.NoError(t, database.Prepare(path, now))
		f, err := database.Open(path)
		require.NoError(t, err)
		defer f.Close()
		size, err := f.Read(func([]byte) bool { return false }, nil)
		require.NoError(t, err)
		return size.Revision
	}
	now := time.Date(2026, 11, 26, 0, 0, 0, 0, time.UTC)
	monday := write(t, etcdfile.Snapshot(t, versions()...))
	first := prepared(monday, now)
	sunday := write(t, etcdfile.Snapshot(t, versions()[:2]...))
	require.Greater(t, prepared(sunday, now.Add(time.Minute)), first+1_000_000, "the first etcd has written meanwhile")
	require.Equal(t, first+database.RevisionBump, prepared(monday, now.Add(-time.Hour)), "the clock was set back")
}

// A restore that continues recognizes what an interrupted one has placed by its digest.
func TestPrepareMakesTheSameFile(t *testing.T) {
	snapshot := etcdfile.Snapshot(t, versions()...)
	var files [][]byte
	for range 5 {
		path := write(t, snapshot)
		require.NoError(t, database.Prepare(path, time.Date(2026, 11, 26, 0, 0, 0, 0, time.UTC)))
		raw, err := os.ReadFile(path)
		require.NoError(t, err)
		files = append(files, raw)
	}
	for _, f := range files {
		require.True(t, bytes.Equal(files[0], f))
	}
}

func TestPrepareRefusesOtherFiles(t *testing.T) {
	require.ErrorIs(t, database.Prepare(filepath.Join(t.TempDir(), "none"), time.Now()), os.ErrNotExist)
	path := filepath.Join(t.TempDir(), "db")
	db, err := bolt.Open(path, 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, db.Close())
	require.ErrorIs(t, database.Prepare(path, time.Now()), database.ErrDamaged)
}
