package backup

import (
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/kcpctl/kcpctl/internal/client/etcd/database"
	"github.com/kcpctl/kcpctl/internal/engine/backup/archive"
	"github.com/kcpctl/kcpctl/internal/engine/backup/content"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/bytesize"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
)

// copy copies the snapshot of a shard into a directory, reads what is in it, and writes it compressed to the target.
func (c *Create) copy(ctx context.Context, dir, name string, s *source) error {
	id := s.shard.ID()
	s.database = archive.Database{
		Component: id, Shard: s.shard.ShardName(), Etcd: c.known.Data[id].Etcd, EtcdVersion: s.version,
		Kcp: cmp.Or(c.known.Data[id].Release, s.shard.Version), Prefix: s.shard.Storage.KeyPrefix(),
		File: archive.DatabaseFile(id),
	}
	if s.doubt != nil {
		s.database.Doubt = run.FirstLine(s.doubt)
	}
	raw := filepath.Join(dir, strings.ReplaceAll(string(id), "/", "-")+".db")
	f, err := os.OpenFile(raw, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	err = s.client.Snapshot(ctx, f, func() { s.database.Began = c.Now().UTC() }, func(done, total int64) {
		s.database.Size = done
		c.component(id, run.Running, bytesize.Of(done, total))
	})
	if err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	s.database.Ended = c.Now().UTC()
	if s.content, err = inspect(raw, &s.database); err != nil {
		return err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	c.component(id, run.Running, "compressing")
	packed := compress(f)
	defer packed.Close()
	sum := &counting{Reader: packed, sum: sha256.New()}
	if err := c.Target.Put(ctx, path.Join(name, s.database.File), sum); err != nil {
		return err
	}
	s.file = archive.File{Size: sum.size, SHA256: hex.EncodeToString(sum.sum.Sum(nil))}
	c.component(id, run.Done,
		fmt.Sprintf("%s, %s, %s", gather.Count(s.database.Keys, "key", "keys"),
			gather.Count(s.database.LogicalClusters, "logical cluster", "logical clusters"),
			bytesize.Format(s.database.Size)))
	return nil
}

// inspect reads a database, and completes its description.
func inspect(file string, d *archive.Database) (*content.Shard, error) {
	f, err := database.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	out := content.NewShard(d.Shard)
	prefix := strings.TrimSuffix(d.Prefix, "/") + "/"
	size, err := f.Read(
		func(key []byte) bool {
			rest, ok := strings.CutPrefix(string(key), prefix)
			return ok && content.Wants(rest)
		},
		func(key, value []byte, deleted bool) error {
			return out.Add(strings.TrimPrefix(string(key), prefix), value, deleted)
		})
	if err != nil {
		return nil, err
	}
	d.Revision, d.Keys, d.LogicalClusters = size.Revision, size.Keys, out.LogicalClusters()
	return out, nil
}

// compress returns a reader of the compressed content of another one.
func compress(r io.Reader) io.ReadCloser {
	out, in := io.Pipe()
	go func() {
		z, err := gzip.NewWriterLevel(in, gzip.BestSpeed)
		if err == nil {
			_, err = io.Copy(z, r)
			err = errors.Join(err, z.Close())
		}
		in.CloseWithError(err)
	}()
	return out
}

// counting counts and digests what is read.
type counting struct {
	io.Reader
	sum  hash.Hash
	size int64
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.sum.Write(p[:n])
	c.size += int64(n)
	return n, err
}
