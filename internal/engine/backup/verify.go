package backup

import (
	"compress/flate"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/kcpctl/kcpctl/internal/client/etcd/database"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/backup/archive"
	"github.com/kcpctl/kcpctl/internal/engine/backup/content"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/bytesize"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
)

// Verify reads a backup completely, and finds out whether it is what was written, and what does not fit together.
type Verify struct {
	Target archive.Target
	Name   string
	// Report is called with the progress.
	Report func(component topology.ID, s run.Status, message string)
}

// Verified is the result of Verify.
type Verified struct {
	Manifest *archive.Manifest `json:"manifest,omitempty"`
	// Damage are the reasons why files are not what was written.
	Damage []string `json:"damage,omitempty"`
	// Tears are what does not fit together.
	Tears []content.Tear `json:"tears,omitempty"`
}

// Run verifies the backup. The error is about reading it: what is wrong with it is in the result.
func (v *Verify) Run(ctx context.Context) (*Verified, error) {
	m, err := archive.Load(ctx, v.Target, v.Name)
	if errors.Is(err, archive.ErrDamaged) {
		return &Verified{Damage: []string{err.Error()}}, nil
	}
	if err != nil {
		return nil, err
	}
	out := &Verified{Manifest: m}
	for _, name := range slices.Sorted(maps.Keys(m.Files)) {
		if !slices.ContainsFunc(m.Databases, func(d archive.Database) bool { return d.File == name }) {
			if err := v.digest(ctx, m, name, io.Discard); err != nil {
				if !isDamage(err) {
					return nil, err
				}
				out.Damage = append(out.Damage, err.Error())
			}
		}
	}
	shards, errs := v.databases(ctx, m)
	for _, err := range errs {
		switch {
		case err == nil:
		case !isDamage(err):
			return nil, err
		default:
			out.Damage = append(out.Damage, err.Error())
		}
	}
	if len(out.Damage) == 0 {
		out.Tears = content.Tears(shards, missing(m))
	}
	return out, nil
}

// isDamage reports whether a file is not what was written.
func isDamage(err error) bool {
	return errors.Is(err, archive.ErrDamaged) || errors.Is(err, database.ErrDamaged)
}

// databases reads all snapshots, two at a time, because each is unpacked first.
func (v *Verify) databases(ctx context.Context, m *archive.Manifest) ([]*content.Shard, []error) {
	stage, err := archive.NewScratch(v.Target)
	if err != nil {
		return nil, []error{err}
	}
	defer stage.Remove()
	shards := make([]*content.Shard, len(m.Databases))
	errs := parallel.Map(2, parallel.Indices(m.Databases), func(i int) error {
		d := m.Databases[i]
		v.Report(d.Component, run.Running, "reading "+bytesize.Format(d.Size))
		var err error
		if shards[i], err = v.database(ctx, stage.Dir, m, d); err != nil {
			v.Report(d.Component, run.Failed, run.FirstLine(err))
			return err
		}
		v.Report(d.Component, run.Done,
			fmt.Sprintf("revision %d, %s, %s", d.Revision, gather.Count(d.Keys, "key", "keys"),
				gather.Count(d.LogicalClusters, "logical cluster", "logical clusters")))
		return nil
	})
	return slices.DeleteFunc(shards, func(s *content.Shard) bool { return s == nil }), errs
}

// database reads a snapshot.
func (v *Verify) database(ctx context.Context, dir string, m *archive.Manifest,
	d archive.Database) (*content.Shard, error) {
	raw := filepath.Join(dir, filepath.Base(d.File)+".raw")
	if err := v.unpack(ctx, m, d, raw); err != nil {
		return nil, err
	}
	defer os.Remove(raw)
	f, err := database.Open(raw)
	if err != nil {
		return nil, err
	}
	err = errors.Join(f.Check(), f.Close())
	if err != nil {
		return nil, err
	}
	found := d
	shard, err := inspect(raw, &found)
	if err != nil {
		return nil, err
	}
	if found.Revision != d.Revision || found.Keys != d.Keys {
		return nil, fmt.Errorf("%s: %w: it has revision %d and %d keys, and the manifest has %d and %d", d.File,
			archive.ErrDamaged, found.Revision, found.Keys, d.Revision, d.Keys)
	}
	return shard, nil
}

// unpack writes a snapshot to a file, and verifies its digests.
func (v *Verify) unpack(ctx context.Context, m *archive.Manifest, d archive.Database, to string) error {
	f, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	packed, in := io.Pipe()
	done := make(chan error, 1)
	go func() {
		z, err := gzip.NewReader(packed)
		if err == nil {
			_, err = io.Copy(f, z)
		}
		switch {
		case isCorrupt(err):
			err = fmt.Errorf("%s: %w: %w", d.File, archive.ErrDamaged, err)
		case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
			err = clierr.New(clierr.Failed, "free some space, and run the command again", "%w", err)
		}
		packed.CloseWithError(err)
		done <- err
	}()
	err = v.digest(ctx, m, d.File, in)
	in.CloseWithError(err)
	if unpacked := <-done; err == nil {
		err = unpacked
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return database.VerifySum(to)
}

// isCorrupt reports whether compressed content is not what was written. Any other error says nothing about it, such as
// one of the disk that it is unpacked to.
func isCorrupt(err error) bool {
	var corrupt flate.CorruptInputError
	return errors.Is(err, gzip.ErrHeader) || errors.Is(err, gzip.ErrChecksum) || errors.Is(err, io.EOF) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &corrupt)
}

// digest copies a file of the backup, and compares it with the manifest.
func (v *Verify) digest(ctx context.Context, m *archive.Manifest, name string, to io.Writer) error {
	r, err := v.Target.Get(ctx, path.Join(m.Name, name))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w: it does not exist", name, archive.ErrDamaged)
	}
	if err != nil {
		return err
	}
	defer r.Close()
	in := &counting{Reader: r, sum: sha256.New()}
	if _, err := io.Copy(to, in); err != nil {
		return err
	}
	want := m.Files[name]
	if in.size != want.Size || hex.EncodeToString(in.sum.Sum(nil)) != want.SHA256 {
		return fmt.Errorf("%s: %w: its SHA-256 differs from the manifest", name, archive.ErrDamaged)
	}
	return nil
}
