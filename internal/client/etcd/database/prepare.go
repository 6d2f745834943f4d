package database

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	bolt "go.etcd.io/bbolt"
)

// RevisionBump is by how much Prepare raises a revision that is ahead of the clock: more than an etcd writes between a
// snapshot and its loss. 1,000,000,000 is the value in the documentation of etcd.
const RevisionBump = 1_000_000_000

// pageMultiple divides the size of all databases.
const pageMultiple = 512

// Prepare makes a copy of a database the first database of the members of a new etcd, each of which starts with the
// same file as member/snap/db and without a log. It does what etcdutl snapshot restore --bump-revision --mark-compacted
// does (etcd: etcdutl/snapshot/v3_snapshot.go): it removes the members of the old etcd and its position in the log.
// The revision rises, and everything before is compacted, so that clients that watch from a revision which the old
// etcd reached after the snapshot list again instead of missing changes.
//
// The new revision is the time in microseconds when the old etcd had stopped. No etcd writes that often, so it is also
// higher than all revisions that an earlier restore, of whichever backup, has led to. With the same time, a copy of the
// same database becomes the same file.
func Prepare(path string, stopped time.Time) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if size := info.Size(); size%pageMultiple == sha256.Size { // the digest of a snapshot, which does not belong to the database
		if err := os.Truncate(path, size-sha256.Size); err != nil {
			return err
		}
	}
	db, err := bolt.Open(path, 0o600, &bolt.Options{Timeout: openTimeout})
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	err = db.Update(func(tx *bolt.Tx) error { return prepare(tx, stopped.UnixMicro()) })
	return errors.Join(err, db.Close())
}

func prepare(tx *bolt.Tx, next int64) error {
	keys, meta := tx.Bucket([]byte(bucketKey)), tx.Bucket([]byte(bucketMeta))
	if keys == nil || meta == nil {
		return fmt.Errorf("%w: it is not a database of etcd", ErrDamaged)
	}
	for _, key := range []string{metaConsistentIndex, metaTerm, metaConfState} {
		if err := meta.Delete([]byte(key)); err != nil {
			return err
		}
	}
	for _, name := range []string{bucketMembers, bucketRemoved} {
		if err := tx.DeleteBucket([]byte(name)); err != nil && !errors.Is(err, bolt.ErrBucketNotFound) {
			return err
		}
		if _, err := tx.CreateBucket([]byte(name)); err != nil {
			return err
		}
	}
	last, _ := keys.Cursor().Last()
	if len(last) < revisionSize {
		return fmt.Errorf("%w: it has no revision", ErrDamaged)
	}
	if was := int64(binary.BigEndian.Uint64(last)); next <= was { // the clock was ahead
		next = was + RevisionBump
	}
	raised := revision(next)
	if err := keys.Put(raised, []byte{}); err != nil {
		return err
	}
	return meta.Put([]byte(metaCompaction), raised)
}

// revision encodes a revision as a key of the bucket.
func revision(main int64) []byte {
	out := binary.BigEndian.AppendUint64(nil, uint64(main))
	return binary.BigEndian.AppendUint64(append(out, '_'), 0)
}
