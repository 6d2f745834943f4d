// Package datadir replaces the data directory of an etcd that does not run. The directory never holds a part of a
// database, also after a crash, and the previous one is kept beside it.
package datadir

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

const (
	// databaseFile is where an etcd finds its database, and logDir its log (etcd: server/config/config.go, BackendPath,
	// WALDir).
	databaseFile = "member/snap/db"
	logDir       = "member/wal"
	// suffixNext ends the name of the directory in which new data is completed.
	suffixNext = ".restoring"
)

// Directory is a data directory.
type Directory struct {
	Path string
	// Mark, if it is set, changes the new data before it gets its place.
	Mark func(dir string) error

	// step is called before each change of the file system. Nil: nothing.
	step func(name string) error
}

// Place makes a database the data of the directory. write creates the file. What the directory held is moved to a name
// with the suffix, which is returned; it is empty if there was nothing. An interrupted call is repeated.
func (d Directory) Place(suffix string, write func(path string) error) (aside string, err error) {
	next := d.Path + suffixNext
	if err := d.prepare(next, write); err != nil {
		return "", errors.Join(err, os.RemoveAll(next)) // it may have filled the disk
	}
	if aside, err = d.SetAside(suffix); err != nil {
		return "", err
	}
	if err := d.before("rename"); err != nil {
		return aside, err
	}
	if err := os.Rename(next, d.Path); err != nil {
		return aside, err
	}
	return aside, sync(filepath.Dir(d.Path))
}

// prepare completes the new data, and writes it to the disk.
func (d Directory) prepare(next string, write func(path string) error) error {
	file := filepath.Join(next, databaseFile)
	mark := func() error {
		if d.Mark == nil {
			return nil
		}
		return d.Mark(next)
	}
	for _, s := range []struct {
		name string
		do   func() error
	}{
		{"clear", func() error { return os.RemoveAll(next) }}, // an interrupted restore has left it
		{"create", func() error { return os.MkdirAll(filepath.Dir(file), 0o700) }},
		{"write", func() error { return write(file) }},
		{"mark", mark},
		{"sync", func() error { return syncTo(file, next) }},
	} {
		if err := d.before(s.name); err != nil {
			return err
		}
		if err := s.do(); err != nil {
			return err
		}
	}
	return nil
}

// SetAside renames the directory, so that the etcd begins without data. An earlier call may have moved a directory
// aside already, which is kept. It returns the new name, or "" if there is no directory.
func (d Directory) SetAside(suffix string) (string, error) {
	aside := d.Path + "." + suffix
	for n := 2; ; n++ {
		if _, err := os.Lstat(aside); errors.Is(err, fs.ErrNotExist) {
			break
		} else if err != nil {
			return "", err
		}
		aside = fmt.Sprintf("%s.%s-%d", d.Path, suffix, n)
	}
	if err := d.before("move aside"); err != nil {
		return "", err
	}
	err := os.Rename(d.Path, aside)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return aside, sync(filepath.Dir(d.Path))
}

// Holds reports whether the directory holds a database that no etcd has started with, by its size and SHA-256: an
// interrupted restore has placed it.
func (d Directory) Holds(size int64, digest string) (bool, error) {
	if _, err := os.Lstat(filepath.Join(d.Path, logDir)); !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	f, err := os.Open(filepath.Join(d.Path, databaseFile))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Size() != size {
		return false, err
	}
	got, err := Digest(f)
	return got == digest, err
}

// Digest returns the SHA-256 of the content of a reader.
func Digest(r io.Reader) (string, error) {
	sum := sha256.New()
	_, err := io.Copy(sum, r)
	return hex.EncodeToString(sum.Sum(nil)), err
}

func (d Directory) before(name string) error {
	if d.step == nil {
		return nil
	}
	return d.step(name)
}

// syncTo writes a file to the disk, and the directories up to another one.
func syncTo(file, top string) error {
	for path := file; ; path = filepath.Dir(path) {
		if err := sync(path); err != nil || path == top {
			return err
		}
	}
}

// sync writes a file or the entries of a directory to the disk.
func sync(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
