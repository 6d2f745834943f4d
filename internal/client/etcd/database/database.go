// Package database reads the database of an etcd member from a file, such as a snapshot, and makes it the first
// database of another etcd. It needs no etcd. It reads the format of etcd v3.4 to v3.6 (etcd: server/storage/schema and
// server/storage/mvcc).
package database

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"os"
	"time"

	bolt "go.etcd.io/bbolt"
)

// The buckets and keys of the file (etcd: server/storage/schema/bucket.go and meta.go).
const (
	bucketKey     = "key"
	bucketMeta    = "meta"
	bucketMembers = "members"
	bucketRemoved = "members_removed"

	metaConsistentIndex = "consistent_index"
	metaTerm            = "term"
	metaConfState       = "confState"
	metaCompaction      = "scheduledCompactRev"
)

// A key of the bucket is a revision: the main part, an underscore, the sub part, and a t if it deletes its key.
const (
	revisionSize  = 17
	tombstoneSize = revisionSize + 1
)

// openTimeout is how long to wait for the lock of a file that another process has open.
const openTimeout = 5 * time.Second

// ErrDamaged means that a file is not a complete database.
var ErrDamaged = errors.New("damaged")

// File is an open database.
type File struct {
	db   *bolt.DB
	path string
}

// Open opens a database to read it.
func Open(path string) (*File, error) {
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true, Timeout: openTimeout, Logger: nil})
	if errors.Is(err, bolt.ErrInvalid) || errors.Is(err, bolt.ErrChecksum) || errors.Is(err, bolt.ErrVersionMismatch) ||
		errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, fmt.Errorf("%s: %w: %w", path, ErrDamaged, err)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return &File{db, path}, nil
}

// Close closes the file.
func (f *File) Close() error { return f.db.Close() }

// VerifySum compares the SHA-256 at the end of a snapshot with its content.
func VerifySum(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	content := info.Size() - sha256.Size
	if content <= 0 {
		return fmt.Errorf("%s: %w: it is too short", path, ErrDamaged)
	}
	sum, want := sha256.New(), make([]byte, sha256.Size)
	if _, err := io.CopyN(sum, file, content); err != nil {
		return err
	}
	if _, err := io.ReadFull(file, want); err != nil {
		return err
	}
	if !bytes.Equal(sum.Sum(nil), want) {
		return fmt.Errorf("%s: %w: its SHA-256 differs", path, ErrDamaged)
	}
	return nil
}

// Check verifies the pages of the file, and returns the first problem.
func (f *File) Check() error {
	return f.db.View(func(tx *bolt.Tx) error {
		var first error
		for err := range tx.Check() { // until the end, because the sender waits
			if first == nil {
				first = fmt.Errorf("%s: %w: %w", f.path, ErrDamaged, err)
			}
		}
		return first
	})
}

// Size is how much a database holds.
type Size struct {
	// Revision is the last revision.
	Revision int64
	// Keys is the number of keys that exist.
	Keys int
}

// Read calls visit for every version of the keys that want selects, in the order of their revisions. A deleted key has
// no value. The key and the value must not be kept.
func (f *File) Read(want func(key []byte) bool, visit func(key, value []byte, deleted bool) error) (Size, error) {
	var size Size
	seed := maphash.MakeSeed()
	live := map[uint64]struct{}{}
	err := f.db.View(func(tx *bolt.Tx) error {
		keys := tx.Bucket([]byte(bucketKey))
		if keys == nil {
			return fmt.Errorf("%s: %w: it is not a database of etcd", f.path, ErrDamaged)
		}
		return keys.ForEach(func(rev, raw []byte) error {
			if len(rev) < revisionSize || len(rev) > tombstoneSize {
				return fmt.Errorf("%s: %w: revision of %d bytes", f.path, ErrDamaged, len(rev))
			}
			size.Revision = int64(binary.BigEndian.Uint64(rev))
			key, value, err := keyValue(raw)
			if err != nil {
				return fmt.Errorf("%s: %w: revision %d: %w", f.path, ErrDamaged, size.Revision, err)
			}
			if len(key) == 0 { // Prepare has raised the revision
				return nil
			}
			deleted := len(rev) == tombstoneSize
			if id := maphash.Bytes(seed, key); deleted {
				delete(live, id)
			} else {
				live[id] = struct{}{}
			}
			if !want(key) {
				return nil
			}
			return visit(key, value, deleted)
		})
	})
	size.Keys = len(live)
	return size, err
}

// keyValue returns the key and the value of a version (etcd: api/mvccpb/kv.proto, KeyValue).
func keyValue(raw []byte) (key, value []byte, err error) {
	for len(raw) > 0 {
		tag, n := binary.Uvarint(raw)
		if n <= 0 {
			return nil, nil, errMalformed
		}
		raw = raw[n:]
		number, n := binary.Uvarint(raw)
		if n <= 0 {
			return nil, nil, errMalformed
		}
		raw = raw[n:]
		switch tag & 7 {
		case 0: // a number
		case 2: // bytes
			if number > uint64(len(raw)) {
				return nil, nil, errMalformed
			}
			switch tag >> 3 {
			case 1:
				key = raw[:number]
			case 5:
				value = raw[:number]
			}
			raw = raw[number:]
		default:
			return nil, nil, errMalformed
		}
	}
	return key, value, nil
}

var errMalformed = errors.New("malformed protocol buffer")
