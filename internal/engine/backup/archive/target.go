package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/kcpctl/kcpctl/internal/kit/atomicfile"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/s3"
)

// Target is where backups are kept. A file exists completely, or not at all.
type Target interface {
	fmt.Stringer
	// Put writes a file. It replaces one of the same name.
	Put(ctx context.Context, name string, content io.Reader) error
	// Get reads a file. The error wraps fs.ErrNotExist if there is none.
	Get(ctx context.Context, name string) (io.ReadCloser, error)
	// List returns all files whose names begin with a prefix.
	List(ctx context.Context, prefix string) ([]Entry, error)
	// Delete deletes a file, if it exists.
	Delete(ctx context.Context, name string) error
}

// Entry is a file of a target.
type Entry struct {
	Name     string
	Size     int64
	Modified time.Time
}

// Open returns the target of a URL: a directory, as file:///DIR or as a path, or a bucket, as s3://BUCKET/PREFIX. env
// returns environment variables, which have the credentials of buckets.
func Open(url string, env func(string) string) (Target, error) {
	scheme, rest, ok := strings.Cut(url, "://")
	switch {
	case scheme == "s3" && ok:
		b, err := s3.Parse(url, env)
		if err != nil {
			return nil, err
		}
		return bucket{b}, nil
	case !ok:
		return directory{url}, nil
	case scheme == "file" && filepath.IsAbs(rest):
		return directory{rest}, nil
	case scheme == "file":
		return nil, clierr.New(clierr.BadInput, "write file:///DIR, or the path alone",
			"%s is not an absolute path", url)
	}
	return nil, clierr.New(clierr.BadInput, "name a directory, or a bucket as s3://BUCKET/PREFIX",
		"unknown target %q", url)
}

// bucket keeps backups in a bucket.
type bucket struct{ *s3.Bucket }

func (b bucket) List(ctx context.Context, prefix string) ([]Entry, error) {
	objects, err := b.Bucket.List(ctx, prefix)
	var out []Entry
	for _, o := range objects {
		out = append(out, Entry(o))
	}
	return out, err
}

// directory keeps backups in a directory that only its owner can read.
type directory struct{ dir string }

func (d directory) String() string { return d.dir }

func (d directory) path(name string) (string, error) {
	if !filepath.IsLocal(filepath.FromSlash(name)) {
		return "", fmt.Errorf("%q is not a name of a file in a backup", name)
	}
	return filepath.Join(d.dir, filepath.FromSlash(name)), nil
}

// Put writes a file with mode 0600.
func (d directory) Put(ctx context.Context, name string, content io.Reader) error {
	p, err := d.path(name)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(p), 0o700); err != nil {
		return explain(err)
	}
	return explain(atomicfile.WriteFrom(p, cancelable{ctx, content}, 0o600))
}

// cancelable ends with its context.
type cancelable struct {
	ctx context.Context
	io.Reader
}

func (c cancelable) Read(p []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.Reader.Read(p)
}

// explain adds the next step to an error of the file system.
func explain(err error) error {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return clierr.New(clierr.Failed, "free some space, or name another target with --to", "%w", err)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return clierr.New(clierr.Failed, "name a directory that you can write to with --to", "%w", err)
	}
	return err
}

func (d directory) Get(_ context.Context, name string) (io.ReadCloser, error) {
	p, err := d.path(name)
	if err != nil {
		return nil, err
	}
	return os.Open(p)
}

func (d directory) List(ctx context.Context, prefix string) ([]Entry, error) {
	return list(ctx, os.DirFS(d.dir), prefix)
}

// list returns the files of a target, without those that another run removes meanwhile. A directory that cannot be read
// is an entry: a target can be a volume with lost+found, or have backups of another user.
func list(ctx context.Context, dir fs.FS, prefix string) ([]Entry, error) {
	var out []Entry
	err := fs.WalkDir(dir, ".", func(name string, e fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil && name != ".":
			out = append(out, Entry{Name: name + "/"})
			return ctx.Err()
		case err != nil || !e.Type().IsRegular() || !strings.HasPrefix(name, prefix):
			return errors.Join(err, ctx.Err())
		}
		info, err := e.Info()
		if err == nil {
			out = append(out, Entry{name, info.Size(), info.ModTime()})
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return errors.Join(err, ctx.Err())
	})
	return out, err
}

// owned fails if a backup, or a part of it, is a symbolic link: kcpctl has not created the link, and files would be
// deleted through it, or would remain unnoticed.
func (d directory) owned(name string) error {
	p, err := d.path(name)
	if err != nil {
		return err
	}
	return filepath.WalkDir(p, func(at string, e fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return explain(err)
		case e.Type()&fs.ModeSymlink != 0:
			return clierr.New(clierr.Failed,
				"replace the link by what it leads to, and run the command again; or delete the backup yourself",
				"backup %s is not deleted: %s is a symbolic link, which kcpctl has not created", name, at)
		}
		return nil
	})
}

// Delete deletes a file, and its directories if they are empty. It fails if one of them is a symbolic link.
func (d directory) Delete(_ context.Context, name string) error {
	p, err := d.path(name)
	if err != nil {
		return err
	}
	for at := p; at != filepath.Clean(d.dir); at = filepath.Dir(at) {
		if info, err := os.Lstat(at); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			return clierr.New(clierr.Failed, "delete it yourself",
				"%s is not deleted: %s is a symbolic link, which kcpctl has not created", name, at)
		}
	}
	if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return explain(err)
	}
	for dir := filepath.Dir(p); dir != filepath.Clean(d.dir); dir = filepath.Dir(dir) {
		if os.Remove(dir) != nil { // it is not empty
			return nil
		}
	}
	return nil
}
