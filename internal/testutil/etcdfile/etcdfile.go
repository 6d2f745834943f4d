// Package etcdfile writes files with databases of etcd for tests.
package etcdfile

import (
	"crypto/sha256"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	bolt "go.etcd.io/bbolt"
)

// Version is a version of a key. A deleted one has no value.
type Version struct {
	Key, Value string
	Deleted    bool
}

// Snapshot returns a database with versions from revision 2, followed by its SHA-256, as etcd sends it.
func Snapshot(t testing.TB, versions ...Version) []byte {
	t.Helper()
	file := filepath.Join(t.TempDir(), "db")
	db, err := bolt.Open(file, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		meta, err := tx.CreateBucket([]byte("meta"))
		if err != nil {
			return err
		}
		members, err := tx.CreateBucket([]byte("members"))
		if err != nil {
			return err
		}
		keys, err := tx.CreateBucket([]byte("key"))
		if err != nil {
			return err
		}
		for i, v := range versions {
			rev := revision(uint64(i + 2))
			if v.Deleted {
				rev = append(rev, 't')
			}
			if err := keys.Put(rev, keyValue(v)); err != nil {
				return err
			}
		}
		for _, key := range []string{"consistent_index", "term", "confState"} {
			if err := meta.Put([]byte(key), []byte("12345678")); err != nil {
				return err
			}
		}
		return members.Put([]byte("1"), []byte("{}"))
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(raw)
	return append(raw, sum[:]...)
}

func revision(main uint64) []byte {
	return binary.BigEndian.AppendUint64(append(binary.BigEndian.AppendUint64(nil, main), '_'), 0)
}

// keyValue encodes a mvccpb.KeyValue.
func keyValue(v Version) []byte {
	out := bytes(nil, 1, v.Key)
	out = append(out, 2<<3, 1) // the create revision
	if !v.Deleted {
		out = bytes(out, 5, v.Value)
	}
	return out
}

func bytes(b []byte, field int, v string) []byte {
	return append(binary.AppendUvarint(append(b, byte(field<<3|2)), uint64(len(v))), v...)
}
